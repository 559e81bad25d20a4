"""Process large pictures one band at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from glocal.kernels.cpu.threads import one_thread

BAND = 1 << 16
"""The number of colours in a band. Its temporaries fit into the cache, whatever the size of the picture."""


def in_bands(function: Callable[[Tensor], Tensor], colors: Tensor) -> Tensor:
    """Apply a function of colours (m, 3) -> (m, 3) to (..., 3). Each thread processes its own bands.

    With one thread per band no thread waits for another. With all threads on each of some fifty operations, each
    operation would wait for the slowest thread. Memory: the result and, for each thread, the temporaries of a band.

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
