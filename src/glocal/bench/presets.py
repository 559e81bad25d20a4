"""`glocal bench presets`: whole style transfers with every preset, from pictures in memory to the result in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from glocal.apps.style.options import PRESETS
from glocal.apps.style.transfer import stylize
from glocal.bench.options import BenchOptions
from glocal.bench.timing import amount, summary
from glocal.errors import ArgumentError
from glocal.machine import check_device

SIZES = (256, 512, 1024)
_QUICK_SIZES = (16, 32)
_MOST_RUNS = 3
_AIMS = {("brush", 512): 1.0, ("bold", 512): 1.0, ("brush", 1024): 2.0, ("bold", 1024): 2.0}  # seconds on an H200


@dataclass(frozen=True)
class PresetRow:
    """The median time of a preset at one size, its spread, and the memory that torch reserved on the GPU for it.

    `target` is in seconds and holds for an H200; it and `gpu_mib` are None where there is none.
    """

    preset: str
    size: int
    seconds: float
    spread: float
    gpu_mib: float | None
    target: float | None


def run(
    photo: np.ndarray[Any, Any], painting: np.ndarray[Any, Any], options: BenchOptions, device: str = "cpu"
) -> list[PresetRow]:
    """Measure every preset at every size that is at most that of `photo` (h, w, 3).

    One run goes before that does not count: it compiles kernels. Then `options.repeats` runs count, but at most three.
    """
    check_device("bench", device)
    sizes = _QUICK_SIZES if options.quick else tuple(size for size in SIZES if size <= max(photo.shape[:2]))
    if not sizes:
        message = (
            f"bench: the photo has {photo.shape[1]} x {photo.shape[0]} pixels, but the smallest size is {min(SIZES)}. "
            "Use a larger photo."
        )
        raise ArgumentError(message)
    return [_row(photo, painting, preset, size, options, device) for size in sizes for preset in PRESETS]


def _row(
    photo: np.ndarray[Any, Any],
    painting: np.ndarray[Any, Any],
    preset: str,
    size: int,
    options: BenchOptions,
    device: str,
) -> PresetRow:
    few = {"iterations": 1} if options.quick and PRESETS[preset].method == "networks" else {}
    work = partial(stylize, photo, painting, preset=preset, size=size, device=device, **few)
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    if not options.quick:
        work()
    times = summary([_seconds(work) for _ in range(1 if options.quick else min(options.repeats, _MOST_RUNS))])
    memory = torch.cuda.max_memory_reserved() / 2**20 if on_gpu else None
    aim = _AIMS.get((preset, size)) if on_gpu else None
    return PresetRow(preset, size, times.seconds, times.spread, memory, aim)


def _seconds(work: Callable[[], object]) -> float:
    """Time a work whose result is in the computer's own memory, so that nothing runs on the GPU any more."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def text(lines: Sequence[PresetRow]) -> str:
    """Lay rows out for a terminal.

    >>> print(text([PresetRow("bold", 512, 0.5, 0.01, None, 1.0)]))
    bold        512  500 ms     target 1.00 s
    """
    cells = [
        f"{line.preset:10s} {line.size:4d}  {amount(line.seconds, 's'):9s}"
        + ("" if line.gpu_mib is None else f"  {line.gpu_mib:5.0f} MiB")
        + ("" if line.target is None else f"  target {line.target:.2f} s")
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in cells)
