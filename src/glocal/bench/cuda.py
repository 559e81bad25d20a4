"""`glocal bench cuda`: layers, searches and whole style transfers compared with plain PyTorch on the same GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glocal.apps.style.options import style_options
from glocal.apps.style.solve import Task, solve
from glocal.bench import cuda_kernels
from glocal.bench.options import BenchOptions
from glocal.bench.style import PLAIN
from glocal.bench.style_reference import nonlocal_neighbors, plain_style_transfer
from glocal.bench.timing import Row, interleave, rows
from glocal.graphs.patch import patch_graph
from glocal.machine import check_device

_GRAPH_AIM, _STYLE_AIMS = "5 ms", {256: "0.6 s", 1024: "8 s"}


def run(pairs: list[tuple[Tensor, Tensor]], options: BenchOptions, device: str = "cuda") -> list[Row]:
    """Measure pairs of photo and painting (side, side, 3) in Lab, `side` 32 times a power of two, with the paper's preset.

    Layers are measured on the graph of the first photo. Whole runs of ours are the second of two.
    """
    check_device("bench", device)
    return cuda_kernels.run(pairs[0][0], options, device) + style_rows(pairs, options, device)


def style_rows(pairs: list[tuple[Tensor, Tensor]], options: BenchOptions, device: str) -> list[Row]:
    """Measure the search for the graph of the first photo, and whole runs. Those of the plain version are single."""
    photo = pairs[0][0].to(device)
    side = photo.shape[0]
    times = interleave(
        {
            "ours": lambda: _done(patch_graph(photo, k=25, patch=3, coords=1.0)),
            PLAIN: lambda: _done(nonlocal_neighbors(photo)),
        },
        repeats=1 if options.quick else options.repeats,
    )
    lines = rows(f"exact style graph {side}x{side}, k = 25", times, {PLAIN: None}, {}, f"aim on an H200: {_GRAPH_AIM}")
    iterations = 3 if options.quick else 300
    for one, other in pairs:
        images = one.to(device), other.to(device)
        side = images[0].shape[0]
        sides = [32 * 2**k for k in range((side // 32).bit_length())]
        chosen = style_options("paper", {"iterations": iterations, "size": side})
        task = Task(images[0], (images[1],))
        seconds = [_seconds(partial(solve, task, chosen)) for _ in range(2)][1]
        theirs = _seconds(partial(plain_style_transfer, *images, sides=sides, iterations=iterations))
        work = f"style transfer {side}x{side}, paper, {iterations} iterations a level"
        note = f"aim on an H200: {_STYLE_AIMS[side]}" if side in _STYLE_AIMS else ""
        lines.append(Row(work, PLAIN, "s", seconds, theirs, theirs / seconds, None, note=note))
    return lines


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    _done(work())
    return time.perf_counter() - began


def _done(result: Any) -> Any:
    """Wait until the GPU has made it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result
