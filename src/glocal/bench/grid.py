"""The layer on a grid compared with torch's `conv2d` on the padded image: forward and backward, time and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as tf

from glocal.bench.memory import peak_mib
from glocal.bench.timing import Row, interleave, rows
from glocal.graphs.grid import grid_graph
from glocal.nn import functional

CONV = "torch conv2d"
CASES = ((3, 50, 5), (16, 16, 3), (64, 64, 3), (64, 64, 5))  # channels in and out, side of the filter


def run(side: int, repeats: int) -> list[Row]:
    """Measure one row for each of `CASES`, on an image of `side` x `side` pixels with reflected borders."""
    return [line for c, m, size in CASES for line in _rows(side, c, m, size, repeats)]


def _rows(side: int, c: int, m: int, size: int, repeats: int) -> list[Row]:
    make = torch.Generator().manual_seed(5)
    graph, pad = grid_graph((side, side), size=size), (size // 2,) * 4
    x = torch.randn(side * side, c, generator=make)
    filters = torch.randn(size * size, c, m, generator=make)
    gradient = torch.randn(side * side, m, generator=make)
    # conv2d gets everything in the layout that it is usually given.
    image, slope = (t.T.reshape(1, -1, side, side).contiguous() for t in (x, gradient))
    kernel = filters.permute(2, 1, 0).reshape(m, c, size, size).contiguous()

    def step(layer: Callable[[Tensor, Tensor], Tensor], given: tuple[Tensor, Tensor], g: Tensor) -> Callable[[], Any]:
        def once() -> list[Tensor]:
            leaves = [tensor.detach().requires_grad_() for tensor in given]
            y = layer(leaves[0], leaves[1])
            y.backward(g)
            found = [leaf.grad for leaf in leaves if leaf.grad is not None]
            return [y.detach(), *found]

        return once

    works = {
        "ours": step(lambda x, f: functional.graph_conv(x, graph, f), (x, filters), gradient),
        CONV: step(lambda x, k: tf.conv2d(tf.pad(x, pad, mode="reflect"), k), (image, kernel), slope),
    }
    ours, (y, gx, gk) = works["ours"](), works[CONV]()
    theirs = (y.flatten(2)[0].T, gx.flatten(2)[0].T, gk.flatten(2).permute(2, 1, 0))
    worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))
    work = f"GraphConv {c}->{m} on a {side}x{side} grid, {size}x{size}: x, filters"
    times = interleave(works, repeats=repeats)
    return rows(work, times, {CONV: 1}, {}, f"values and gradients differ by {worst:.0e}")


def memory_rows() -> list[Row]:
    """Measure the memory of a layer at 24 megapixels, compared with twice that of its signal."""
    twice, lines = 2 * 24e6 * 3 * 4 / 2**20, []
    for passes, target in (("forward", 1.0), ("backward", None)):
        peak = peak_mib("grid:memory_case", backward=passes == "backward")
        both = (
            "forward, result included" if passes == "forward" else "forward and backward, result and gradient included"
        )
        work = f"GraphConv 3->3 on a grid of 24 megapixels, 3x3: peak memory, {both}"
        note = "above the inputs, fresh process"
        lines.append(Row(work, "twice the signal", "MiB", peak, twice, twice / peak, target, note=note))
    return lines


def memory_case(*, backward: bool, small: bool) -> Callable[[], object]:
    """Prepare a layer for the measurement of memory, with or without the gradient of x."""
    shape = (64, 64) if small else (4000, 6000)
    x = torch.rand(shape[0] * shape[1], 3, requires_grad=backward)
    filters, gradient = torch.randn(9, 3, 3), torch.ones_like(x) if backward else None

    def work() -> object:
        y = functional.graph_conv(x, grid_graph(shape), filters)
        if backward:
            y.backward(gradient)
        return y

    return work
