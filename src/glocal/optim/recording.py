"""Record what a function launches on a GPU, and launch it again as a whole: a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch


def recorded(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Record what a function launches; `replay()` of the result launches it again, on the same memory.

    The function runs twice first, so that kernels are compiled and caches are filled. It must not wait for the GPU.

    Raises
    ------
    RuntimeError
        If it cannot be recorded.
    """
    aside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            work()
        aside.synchronize()
        graph.capture_begin()
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # the first error is the one that counts
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(aside)
    return graph
