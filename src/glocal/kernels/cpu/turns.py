"""Threads that take parts of a work by themselves, inside of compiled loops.

`threads.share` calls Python for every part. Where parts take less than a millisecond, threads then wait for the
interpreter lock, and for each other to wake up. Here a thread enters compiled code once, and takes parts until none is
left. The caller waits for the last part without sleeping, if that does not take long.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.standby import hand_over
from glocal.kernels.cpu.threads import count
from glocal.kernels.known import ChangedError

_INDEX = ir.IntType(64)
_APART = 8  # int64 between the counters: each has a cache line of its own
_PATIENCE = 300_000  # looks at the counter before the caller sleeps: about 100 microseconds; to be woken takes as long


def _counter(context: Any, builder: Any, signature: Any, args: Any, place: int) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [_INDEX(place)])


@intrinsic
def take(typing: Any, turns: Any) -> Any:
    """Take the next part: its number, which no other thread gets."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _counter(context, builder, signature, args, 0)
        return builder.atomic_rmw("add", place, _INDEX(1), "acq_rel")

    return types.int64(turns), generate


@njit(nogil=True, cache=True)
def finish(turns, done):
    """Count a part as finished. `done` is False if its neighbours are outside of what was promised."""
    if not done:
        turns[2 * _APART] = 1
    _count(turns)


@intrinsic
def _count(typing: Any, turns: Any) -> Any:
    """Count a part as finished. What was written for it is visible to who sees it in `finished`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _counter(context, builder, signature, args, _APART)
        return builder.atomic_rmw("add", place, _INDEX(1), "acq_rel")

    return types.int64(turns), generate


@intrinsic
def finished(typing: Any, turns: Any) -> Any:
    """Count the parts that are done."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_counter(context, builder, signature, args, _APART), "acquire", 8)

    return types.int64(turns), generate


@njit(nogil=True, cache=True)
def _all_done(turns, parts, patience):
    """Look `patience` times whether all parts are done."""
    look = 0
    while look < patience and finished(turns) < parts:
        look += 1
    return look < patience


def share_turns(parts: int, loop: Any, *args: Any) -> None:
    """Run the compiled `loop(turns, *args)`, which takes `parts` parts, on `threads.count()` threads.

    The loop calls `take(turns)` for the number of its next part, and `finish(turns, done)` after each part. Raises
    ChangedError if a part was not done.
    """
    turns = np.zeros(3 * _APART, np.int64)
    tasks = [hand_over(loop, turns, *args, begun=turns) for _ in range(min(count(), parts) - 1)]
    loop(turns, *args)
    given = [task for task in tasks if task is not None]
    if given and not _all_done(turns, parts, _PATIENCE):
        for task in given:
            task.wait()
    for task in given:
        task.over = True
    if turns[2 * _APART]:
        raise ChangedError
