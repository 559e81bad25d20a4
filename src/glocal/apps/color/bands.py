"""Large pictures a band at a time, and how many threads that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

BAND = 1 << 16
"""Colours worked on at a time: the temporaries of a band fit into the cache, whatever the size of the picture."""


@contextmanager
def one_thread() -> Iterator[int]:
    """Let torch use one thread for each operation, and give the number that it used before.

    Matrices as small as palettes cost less than waking a second thread: on two busy cores 0.06 s of work took 3 s.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def in_bands(function: Callable[[Tensor], Tensor], colors: Tensor) -> Tensor:
    """Apply a function of colours (m, 3) -> (m, 3) to (..., 3), each thread with bands of its own.

    One thread a band, instead of all threads for each of some fifty operations, never waits for the slowest of them.
    Cost: the result and, for each thread, the temporaries of a band.

    >>> in_bands(lambda rgb: 1 - rgb, torch.zeros(2, 2, 3)).sum()
    tensor(12.)
    """
    out = torch.empty_like(colors, memory_format=torch.contiguous_format)
    flat, goal = colors.reshape(-1, 3), out.view(-1, 3)

    def work(start: int) -> None:
        goal[start : start + BAND] = function(flat[start : start + BAND])

    starts = range(0, len(flat), BAND)
    if len(starts) == 1:
        work(0)
        return out
    with one_thread() as threads, ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, start) for start in starts]:
            done.result()
    return out
