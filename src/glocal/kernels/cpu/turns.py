"""Threads that take parts of a work by themselves, inside of compiled loops.

`threads.share` calls Python for every part. Where parts take less than a millisecond, threads then wait for the
interpreter lock, and for each other to wake up. Here a thread enters compiled code once, and takes parts until none is
left. The caller waits for the last part without sleeping, if that does not take long.

A helper would then return to Python just when the caller does, and one of them would sleep until the other releases the
interpreter. A sleeping thread takes up to 50 microseconds to wake. So a helper looks for the next work in compiled code
for a while, and returns to Python when a caller has gone into its own part of that work.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import os
import platform
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
_SIZE = 6 * _APART
_ERROR, _WAITED, _OWN, _WORKS = 2 * _APART, 3 * _APART, 4 * _APART, 5 * _APART  # places behind the two counters
_PATIENCE = 300_000  # looks at the counter before the caller sleeps: about 100 microseconds; to be woken takes as long
_LINGER = 250  # looks for the next work before a helper returns to Python: about 300 microseconds
_PAUSE = platform.machine().lower() in ("x86_64", "amd64")
_begun = np.zeros(1, np.int64)  # how many works have begun
_BEGUN: int = _begun.ctypes.data
_compiled: set[Any] = set()  # loops and their dtypes


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


@intrinsic
def _next_number(typing: Any, address: Any) -> Any:
    """Add 1 to the number at an address, for all threads at once, and return the new one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], _INDEX.as_pointer())
        return builder.add(builder.atomic_rmw("add", place, _INDEX(1), "acq_rel"), _INDEX(1))

    return types.int64(types.int64), generate


@intrinsic
def _look(typing: Any, address: Any) -> Any:
    """Read the number at an address that another thread writes to."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], _INDEX.as_pointer()), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def _pause(typing: Any) -> Any:
    """Leave the core to its other thread for a moment, where it has one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _PAUSE:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), generate


if os.name == "posix":
    _let_others = types.ExternalFunction("sched_yield", types.int32())
else:

    @njit(nogil=True)
    def _let_others():
        """Nothing: Windows has no such function."""


@njit(nogil=True, cache=True)
def enter(turns, helps):
    """Count the caller's work as begun. Helpers that linger then return to Python, whose interpreter it does not need."""
    if not helps:
        turns[_OWN] = _next_number(turns[_WORKS])


@njit(nogil=True, cache=True)
def linger(turns, helps):
    """In a helper, look for the next work that begins, for a while and as long as the caller does not wait.

    In between, threads of torch that are woken for an operation get the core.
    """
    look, waited = 0, turns.ctypes.data + _WAITED * 8
    while helps and look < _LINGER and _look(turns[_WORKS]) == turns[_OWN] and not _look(waited):
        look += 1
        for _ in range(40):
            _pause()
        _let_others()


@njit(nogil=True, cache=True)
def finish(turns, done):
    """Count a part as finished. `done` is False if its neighbours are outside of what was promised."""
    if not done:
        turns[_ERROR] = 1
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
    """Run the compiled `loop(turns, helps, *args)`, which takes `parts` parts, on `threads.count()` threads.

    `helps` is 0 in the caller and 1 in helpers. The loop calls `enter(turns, helps)`, then `take(turns)` for the number of
    its next part and `finish(turns, done)` after each part, and `linger(turns, helps)` at the end. Raises ChangedError if
    a part was not done.
    """
    turns = np.zeros(_SIZE, np.int64)
    turns[_WORKS] = _BEGUN
    variant = loop, args[0].dtype
    helpers = min(count(), parts) - 1 if variant in _compiled else 0  # a fork must not find a helper in the compiler
    tasks = [hand_over(loop, turns, 1, *args) for _ in range(helpers)]
    loop(turns, 0, *args)
    _compiled.add(variant)
    given = [task for task in tasks if task is not None]
    if given and not _all_done(turns, parts, _PATIENCE):
        turns[_WAITED] = 1
        for task in given:
            task.wait()
    for task in given:
        task.finished = True
    if turns[_ERROR]:
        raise ChangedError
