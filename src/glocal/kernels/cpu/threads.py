"""Share parts of a work among threads.

Compiled functions release the interpreter lock, so Python's own threads suffice: no second pool that competes with the
one of torch, and nothing to compile for it. Who works on a part never changes its result: the cut into parts is the
caller's, and must not depend on the number of threads where it could be seen in the result.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from typing import TypeVar

import torch

Value = TypeVar("Value")
_lock = Lock()
_inside = 0  # how many are in `undisturbed`
_count: int | None = None  # threads to work on meanwhile


def count() -> int:
    """How many threads `share` works on: as many as torch has been given."""
    return torch.get_num_threads() if _count is None else _count


@contextmanager
def one_thread() -> Iterator[int]:
    """Let torch work on one thread inside, and give the number that it had before.

    Where its steps are short, waiting for a second thread costs more than it brings: on two busy cores 0.06 s of work on
    palettes took 3 s, and speech was ten times slower than on one. Nothing is set where torch has one thread already: this
    thread may have begun while another one is inside, and the number that it sets is that of later threads too.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield 1
        return
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let torch work on one thread inside, and `share` on as many as before.

    After each operation torch's threads wait for the next one without sleeping, for some milliseconds, on the very cores
    where the threads of `share` are to work. Where both take turns quickly, torch is better off with one thread. Where
    the kernels that share do not run, torch keeps its threads. A Python thread that uses torch for the first time while
    another is inside starts with one thread, as torch hands down the number that is set then.
    """
    global _count, _inside
    if not kernels_share():
        yield
        return
    with one_thread() as before:
        with _lock:
            _count, _inside = (before if _inside == 0 else _count), _inside + 1
        try:
            yield
        finally:
            with _lock:
                _inside -= 1
                if _inside == 0:
                    _count = None


def kernels_share() -> bool:
    """Whether `share` computes the layers on the CPU: the backend is `cpu`."""
    from glocal.kernels import select

    return select.chosen("graph_conv", "cpu").name == "cpu"


def apart(works: Sequence[Callable[[], Value]]) -> list[Value]:
    """Call each function on a thread of its own, on which torch uses no other. Return the results in order.

    The functions see whether gradients are on, but not the caller's autocast.

    >>> apart([lambda: 1, lambda: 2])
    [1, 2]
    """
    gradients = torch.is_grad_enabled()

    def alone(work: Callable[[], Value]) -> Value:
        torch.set_num_threads(1)
        with torch.set_grad_enabled(gradients):
            return work()

    with one_thread() as before:
        futures: list[Future[Value]] = []
        with suppress(RuntimeError):  # Python ends, and there can be no more threads
            for work in works[1:before]:
                futures.append(workers().submit(alone, work))
        try:
            found = [works[0]()]
            for future, work in zip(futures, works[1:], strict=False):
                found.append(work() if future.cancel() else future.result())  # it is not waited for if it has not begun
            return found + [work() for work in works[1 + len(futures) :]]
        finally:  # no thread is left that would set the number of threads later
            wait([future for future in futures if not future.cancel()])


def share(parts: int, work: Callable[[int], None]) -> None:
    """Call `work(part)` for every part 0, 1, ..., parts - 1, on `count()` threads.

    >>> seen = []
    >>> share(4, seen.append)
    >>> sorted(seen)
    [0, 1, 2, 3]
    """
    counter = itertools.count()  # next() is atomic under the interpreter lock

    def drain() -> None:
        while (part := next(counter)) < parts:
            work(part)

    def help_drain() -> None:
        if _count is not None and torch.get_num_threads() != 1:
            torch.set_num_threads(1)  # as in the thread that is in `undisturbed`; helpers keep it
        drain()

    helpers = min(count(), parts) - 1
    futures = [workers().submit(help_drain) for _ in range(helpers)]
    drain()
    for future in futures:
        if not future.cancel():  # a helper that has not begun yet is not needed any more; it is not waited for
            future.result()


def workers() -> ThreadPoolExecutor:
    """Return the threads that help the caller, one less than there are cores. They start when they are first needed."""
    return _pool(max(1, (os.cpu_count() or 1) - 1))


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=size, thread_name_prefix="glocal")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork; the child makes its own
    os.register_at_fork(after_in_child=_pool.cache_clear)
