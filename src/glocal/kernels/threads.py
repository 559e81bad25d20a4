"""Share parts of a work among threads.

Compiled functions release the interpreter lock, so Python's own threads suffice: no second pool that competes with the
one of torch, and nothing to compile for it. Who works on a part never changes its result: the cut into parts is the
caller's and must not depend on the number of threads.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_pool: ThreadPoolExecutor | None = None


def share(parts: int, work: Callable[[int], None]) -> None:
    """Call `work(part)` for every part 0, 1, ..., parts - 1, on `torch.get_num_threads()` threads.

    >>> seen = []
    >>> share(4, seen.append)
    >>> sorted(seen)
    [0, 1, 2, 3]
    """
    counter = itertools.count()  # next() is atomic under the interpreter lock

    def drain() -> None:
        while (part := next(counter)) < parts:
            work(part)

    helpers = min(torch.get_num_threads(), parts) - 1
    futures = [_workers().submit(drain) for _ in range(helpers)]
    drain()
    for future in futures:
        future.result()


def most_threads() -> int:
    """How many threads may meet in one work: the caller, and any worker of the pool, which may be larger than a call uses."""
    return 1 + _size()


def _size() -> int:
    return max(1, (os.cpu_count() or 1) - 1)


def _workers() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=_size(), thread_name_prefix="glocal")
    return _pool


def _forget() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # threads do not survive a fork; the child makes its own
    os.register_at_fork(after_in_child=_forget)
