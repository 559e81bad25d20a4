"""The kernels of a GPU compared with plain torch on the same GPU, each row with its floor.

The floor of a row is the larger of two times: the fewest bytes that must be moved, at the measured speed of a copy, and
the operations, at the measured rate of a large matrix product. The note of a row says how far above it we are.

A layer is small work for a GPU, and what the host does for a call can take longer. So layers have more than one row, ours
and the peers': single calls from Python, which the aims are about; graphed calls, which are single calls of a layer that
`torch.cuda.make_graphed_callables` has recorded; and the whole step recorded as a CUDA graph and replayed.
"""

from __future__ import annotations

import gc
import importlib.util
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glocal.bench.options import BenchOptions
from glocal.bench.timing import Row, Timing, rows, summary
from glocal.graph import Graph
from glocal.graphs.grid import grid_graph
from glocal.graphs.knn import knn_graph
from glocal.graphs.patch import patch_graph
from glocal.graphs.window import window_graph
from glocal.nn.functional import graph_conv
from glocal.optim.recording import recorded

INDEXING, GEOMETRIC, CONV2D = "torch indexing", "PyTorch Geometric", "conv2d"
SORTED, KEOPS, PORTABLE = "cdist + topk", "KeOps", "plain torch"
_MISSING = {GEOMETRIC: "not installed: pip install torch_geometric", KEOPS: "not installed: pip install pykeops"}
Layer = Callable[..., Tensor]
_QUEUED = 10  # calls that are queued before the host waits, as in training
_SLOW = 0.5  # seconds: what takes longer is timed once


@dataclass(frozen=True)
class Ceilings:
    """What the device can do: bytes moved and operations in a second."""

    copy: float
    bfloat16: float
    tf32: float
    float32: float

    def floor(self, moved: float, operations: float, rate: float) -> tuple[float, str]:
        """Seconds that moving `moved` bytes and computing at least take, and which of the two it is."""
        return max((moved / self.copy, "bytes"), (operations / rate, "operations"))


def run(lab: Tensor, options: BenchOptions, device: str = "cuda") -> list[Row]:
    """Measure layers on the style graph of `lab` (h, w, 3), layers on a grid, and the searches."""
    repeats = 3 if options.quick else options.repeats
    top = ceilings(256 if options.quick else 8192, device)
    graph = patch_graph(lab.to(device), k=25, patch=3, coords=1.0)
    lines = []
    for c, m in ((3, 50), (64, 64)):
        for dtype in (torch.float32, torch.bfloat16):
            lines += _layer_rows(graph, c, m, dtype, top, repeats)
    for c, m, size in ((3, 50, 5), (16, 16, 3), (64, 64, 3), (64, 64, 5)):
        for dtype in (torch.float32, torch.bfloat16):
            lines += _grid_rows(lab.shape[0], c, m, size, dtype, top, repeats, device)
    lines += _knn_rows(512 if options.quick else 65536, top, repeats, device)
    lines += _patch_rows(24 if options.quick else 1024, top, repeats, device)
    lines += _match_rows(16 if options.quick else 256, top, repeats, device)
    lines += _video_rows((2, 8, 8) if options.quick else (5, 360, 640), top, repeats, device)
    lines += _window_rows((1, 16, 16) if options.quick else (32, 64, 64), top, repeats, device)
    return lines


def ceilings(side: int, device: str) -> Ceilings:
    """Measure a copy of `16 side^2` bytes and products of two matrices (side, side)."""
    source = torch.randn(4 * side * side, device=device)
    target = torch.empty_like(source)
    copy = _seconds({"": lambda: target.copy_(source)}, 5, device)[""].seconds
    rates = []
    before = torch.get_float32_matmul_precision()
    try:
        for dtype, precision in ((torch.bfloat16, before), (torch.float32, "high"), (torch.float32, "highest")):
            torch.set_float32_matmul_precision(precision)
            matrix = torch.randn(side, side, device=device).to(dtype)
            rates.append(2 * side**3 / _seconds({"": partial(torch.mm, matrix, matrix)}, 3, device)[""].seconds)
    finally:
        torch.set_float32_matmul_precision(before)
    return Ceilings(8 * source.numel() / copy, *rates)


def _layer_rows(graph: Graph, c: int, m: int, dtype: torch.dtype, top: Ceilings, repeats: int) -> list[Row]:
    """Measure the layer, forward and backward for signal and filters."""
    n, d = graph.neighbors.shape
    x, filters, g = _drawn(graph.device, dtype, (n, c), (d, c, m), (n, m))
    long = graph.neighbors.long()

    def indexing(x: Tensor, filters: Tensor) -> Tensor:
        return x[long].flatten(1) @ filters.flatten(0, 1)

    layers: dict[str, Layer] = {"ours": lambda x, f: graph_conv(x, graph, f), INDEXING: indexing}
    targets: dict[str, float | None] = {INDEXING: 3 if dtype == torch.float32 else 6, GEOMETRIC: 5}
    if importlib.util.find_spec("torch_geometric") is not None:
        layers[GEOMETRIC] = _message_passing(graph)
    moved = x.element_size() * n * (3 * c + 2 * m) + 4 * 3 * n * d
    rate = top.bfloat16 if dtype == torch.bfloat16 else max(top.float32, top.tf32 / 3)
    floor = top.floor(moved, 6 * n * d * c * m, rate)
    work = f"GraphConv {c}->{m}, n={n}, d={d}, {_name(dtype)}"
    return _step_rows(work, layers, (x, filters), g, targets, floor, repeats)


def _message_passing(graph: Graph) -> Layer:
    """Return the layer as message passing: for each tap a sum of messages and a linear map."""
    from torch_geometric.nn import MessagePassing

    class Layer(MessagePassing):
        def forward(self, x: Tensor, edges: list[Tensor], filters: Tensor) -> Tensor:
            maps = [self.propagate(edge, x=x) @ tap for edge, tap in zip(edges, filters.unbind(0), strict=True)]
            return torch.stack(maps).sum(0)

    own = torch.arange(graph.num_vertices, device=graph.device)
    edges = [torch.stack([column.long(), own]) for column in graph.neighbors.unbind(1)]
    layer = Layer(aggr="add")
    return lambda x, filters: layer(x, edges, filters)


def _grid_rows(
    side: int, c: int, m: int, size: int, dtype: torch.dtype, top: Ceilings, repeats: int, device: str
) -> list[Row]:
    """Measure the layer on a grid, and `conv2d` of the padded picture with channels last."""
    graph, pad, n = grid_graph((side, side), size=size).to(device), size // 2, side * side
    x, filters, g = _drawn(graph.device, dtype, (n, c), (size * size, c, m), (n, m))

    def dense(x: Tensor, filters: Tensor) -> Tensor:
        picture = x.view(1, side, side, c).permute(0, 3, 1, 2)
        padded = torch.nn.functional.pad(picture, (pad, pad, pad, pad), mode="reflect")
        kernel = filters.view(size, size, c, m).permute(3, 2, 0, 1)
        return torch.nn.functional.conv2d(padded, kernel).permute(0, 2, 3, 1).reshape(n, m)

    layers: dict[str, Layer] = {"ours": lambda x, f: graph_conv(x, graph, f), CONV2D: dense}
    rate = top.bfloat16 if dtype == torch.bfloat16 else top.tf32
    floor = top.floor(x.element_size() * n * (3 * c + 2 * m), 6 * n * size * size * c * m, rate)
    work = f"GraphConv on a grid {side}x{side}, {c}->{m}, {size}x{size}, {_name(dtype)}"
    return _step_rows(work, layers, (x, filters), g, {CONV2D: round(1 / 1.15, 2)}, floor, repeats)


def _knn_rows(n: int, top: Ceilings, repeats: int, device: str) -> list[Row]:
    f, k = 64, 16
    (x,) = _drawn(device, torch.float32, (n, f))

    def chunked() -> Tensor:
        return torch.cat([torch.cdist(part, x).topk(k, largest=False).indices for part in x.split(8192)])

    works: dict[str, Callable[[], Any]] = {"ours": lambda: knn_graph(x, k=k), SORTED: chunked}
    if importlib.util.find_spec("pykeops") is not None:
        works[KEOPS] = _lazy_search(x, k)
    floor = top.floor(4 * n * (2 * f + k), 2 * n * n * f, top.tf32)
    work, targets = f"knn_graph of {n} rows of {f}, k = {k}, exact", {SORTED: 3.0, KEOPS: None}
    return _rows(work, works, targets, floor, min(repeats, 5), device)


def _lazy_search(x: Tensor, k: int) -> Callable[[], Any]:
    """Return the search as a reduction of KeOps. It needs a C++ compiler and CUDA's headers, and compiles when first called."""
    from pykeops.torch import LazyTensor

    rows_of, columns = LazyTensor(x.unsqueeze(1)), LazyTensor(x.unsqueeze(0))
    return lambda: ((rows_of - columns) ** 2).sum(-1).argKmin(k, dim=1)


def _patch_rows(side: int, top: Ceilings, repeats: int, device: str) -> list[Row]:
    radius, k, patch = (3, 5, 3) if side < 64 else (10, 9, 7)
    lines = []
    for c in (1, 3):
        (picture,) = _drawn(device, torch.float32, (side, side, c))
        search = partial(patch_graph, picture, k=k, patch=patch, search_radius=radius)
        works: dict[str, Callable[[], Any]] = {"ours": search, PORTABLE: _portable(search)}
        # At least a difference and a square for each channel, two window sums, and a comparison.
        operations = side**2 * (2 * radius + 1) ** 2 * (3 * c - 1 + 2 * (patch.bit_length() + 1) + 1)
        floor = top.floor(4 * side**2 * (c + 2 * k), operations, top.float32 / 2)
        work = f"patch_graph {side}x{side}x{c}, {patch}x{patch}, radius {radius}, k = {k}"
        lines += _rows(work, works, {PORTABLE: None}, floor, min(repeats, 3), device)
    return lines


def _match_rows(side: int, top: Ceilings, repeats: int, device: str) -> list[Row]:
    """Measure the search for the patches of one picture in another."""
    patch, lines = 3 if side < 64 else 7, []
    query, source = _drawn(device, torch.float32, (side, side, 3), (side, side, 3))
    for k in (1, 8):
        search = partial(patch_graph, query, source=source, k=k, patch=patch)
        works: dict[str, Callable[[], Any]] = {"ours": search, PORTABLE: _portable(search)}
        f = 3 * patch * patch
        floor = top.floor(4 * side**2 * (6 + 2 * k), 2 * side**4 * f, top.tf32)
        work = f"patch_graph {side}x{side}x3 in another picture, {patch}x{patch}, k = {k}"
        lines += _rows(work, works, {PORTABLE: None}, floor, min(repeats, 3), device)
    return lines


def _video_rows(shape: tuple[int, int, int], top: Ceilings, repeats: int, device: str) -> list[Row]:
    """Measure the search for similar patches in a video."""
    small = shape[0] < 5
    patch, radius, k = ((1, 3, 3), (1, 2, 2), 3) if small else ((1, 7, 7), (2, 10, 10), 9)
    (video,) = _drawn(device, torch.float32, (*shape, 3))
    search = partial(patch_graph, video, k=k, patch=patch, search_radius=radius)
    works: dict[str, Callable[[], Any]] = {"ours": search, PORTABLE: _portable(search)}
    n, candidates = shape[0] * shape[1] * shape[2], math.prod(2 * r + 1 for r in radius)
    operations = n * candidates * (8 + 2 * (patch[1].bit_length() + 1) + 1)
    floor = top.floor(4 * n * (3 + 2 * k), operations, top.float32 / 2)
    work = f"patch_graph of a video {'x'.join(map(str, shape))}x3, patch {patch}, radius {radius}, k = {k}"
    return _rows(work, works, {PORTABLE: None}, floor, min(repeats, 3), device)


def _window_rows(shape: tuple[int, int, int], top: Ceilings, repeats: int, device: str) -> list[Row]:
    f, k, radius = 32, 8, 6 if shape[0] == 1 else 9
    (x,) = _drawn(device, torch.float32, (*shape, f))
    x = torch.nn.functional.normalize(x, dim=-1)
    search = partial(window_graph, x, radius=radius, k=k, exclude=1)
    works: dict[str, Callable[[], Any]] = {"ours": search, PORTABLE: _portable(search)}
    n = shape[0] * shape[1] * shape[2]
    floor = top.floor(4 * n * (f + 2 * k), 2 * n * (2 * radius + 1) ** 2 * f, top.tf32 / 3)
    work = f"window_graph of {shape[0]} x {shape[1]}x{shape[2]} vertices, {f} features, radius {radius}, k = {k}"
    return _rows(work, works, {PORTABLE: None}, floor, repeats, device)


def _portable(search: Callable[[], Any]) -> Callable[[], Any]:
    """Return the same search by the backend that is plain torch."""

    def run() -> Any:
        before = os.environ.get("GLOCAL_BACKEND")
        os.environ["GLOCAL_BACKEND"] = "portable"
        try:
            return search()
        finally:
            os.environ.pop("GLOCAL_BACKEND")
            if before is not None:
                os.environ["GLOCAL_BACKEND"] = before

    return run


def _rows(
    work: str,
    works: Mapping[str, Callable[[], Any]],
    targets: Mapping[str, float | None],
    floor: tuple[float, str],
    repeats: int,
    device: Any,
) -> list[Row]:
    times = _seconds(works, repeats, device)
    share = times["ours"].seconds / floor[0]
    note = f"floor {floor[0] * 1e3:.3g} ms ({floor[1]}), we take {share:.1f} times that"
    return rows(work, times, targets, _MISSING, note)


def _step_rows(
    work: str,
    layers: Mapping[str, Layer],
    given: tuple[Tensor, ...],
    g: Tensor,
    targets: Mapping[str, float | None],
    floor: tuple[float, str],
    repeats: int,
) -> list[Row]:
    """Measure layers forward and backward in single calls, and on a GPU also graphed and replayed."""
    device = g.device
    steps = {name: _step(layer, given, g) for name, layer in layers.items()}
    found = _rows(f"{work}, single calls", steps, targets, floor, repeats, device)
    if device.type == "cuda":
        nearest = next(iter(targets))
        graphed = {name: _graphed(layers[name], given, g) for name in ("ours", nearest)}
        found += _rows(f"{work}, graphed calls", graphed, {nearest: None}, floor, repeats, device)
        again = {name: _replayed(step) for name, step in steps.items()}
        found += _rows(f"{work}, replayed", again, dict.fromkeys(targets), floor, repeats, device)
    return found


def _graphed(layer: Layer, given: tuple[Tensor, ...], g: Tensor) -> Callable[[], Any]:
    leaves = tuple(t.detach().requires_grad_() for t in given)
    gc.collect()  # a graph that is deleted during a recording would end it
    fast: Any = torch.cuda.make_graphed_callables(layer, leaves)
    return lambda: torch.autograd.grad(fast(*leaves), leaves, g)


def _replayed(work: Callable[[], Any]) -> Callable[[], Any]:
    """Record a work as a CUDA graph, and return its replay; or the work itself, where it waits for the GPU inside."""
    try:
        return recorded(work).replay
    except RuntimeError:
        torch.cuda.synchronize()
        return work


def _step(layer: Layer, given: tuple[Tensor, ...], g: Tensor) -> Callable[[], Any]:
    leaves = [t.detach().requires_grad_() for t in given]
    return lambda: torch.autograd.grad(layer(*leaves), leaves, g)


def _seconds(works: Mapping[str, Callable[[], Any]], repeats: int, device: Any) -> dict[str, Timing]:
    """Time works in turn; short ones by several calls, one queued after the other, and very long ones once."""
    waits = torch.device(device).type == "cuda"

    def timed(work: Callable[[], Any], calls: int) -> float:
        if waits:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        if waits:
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / calls

    calls, kept = {}, {}
    for name, work in works.items():
        timed(work, 1)
        once = timed(work, 1)
        calls[name] = _QUEUED if once < 0.01 else 1
        kept[name] = [once] if once > _SLOW else []
    for _ in range(repeats):
        for name, work in works.items():
            if len(kept[name]) != 1 or kept[name][0] <= _SLOW:
                kept[name].append(timed(work, calls[name]))
    return {name: summary(values) for name, values in kept.items()}


def _drawn(device: Any, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    make = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=make).to(device, dtype) for shape in shapes]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
