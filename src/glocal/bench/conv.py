"""The graph convolution compared with torch indexing, PyTorch Geometric and, on a grid, conv2d: time and memory."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.bench import grid
from glocal.bench.memory import peak_mib
from glocal.bench.options import BenchOptions
from glocal.bench.timing import Row, interleave, rows
from glocal.graph import Graph
from glocal.graphs.grid import grid_graph
from glocal.graphs.patch import patch_graph
from glocal.kernels import ops
from glocal.nn import functional

INDEXING, GEOMETRIC = "torch indexing", "PyTorch Geometric"


@dataclass(frozen=True)
class Case:
    """One size: the graph, the tensors, which of (x, filters, weights) need a gradient, and the ratios to reach."""

    work: str
    graph: Graph
    channels: tuple[int, int]
    needs: tuple[bool, bool, bool]
    targets: dict[str, float | None]


def run(lab: Tensor, options: BenchOptions) -> list[Row]:
    """Measure all rows on the style graph of `lab` (h, w, 3) and on random graphs of the denoisers' sizes."""
    repeats = 3 if options.quick else options.repeats
    style = _weighted(patch_graph(lab, k=25, patch=3, coords=1.0))
    size = f"n={style.num_vertices}, d=25"
    x_filters, x_only, everything = (True, True, False), (True, False, False), (True, True, True)
    peers: dict[str, float | None] = {INDEXING: 4, GEOMETRIC: 25}
    image, sound = (1024, 2000) if options.quick else (16384, 16000)
    between = local_graph(image, 9, sources=4 * image)
    cases = [
        Case(f"GraphConv 3->50, {size}: x, filters", style, (3, 50), x_filters, peers),
        Case(f"GraphConv 3->50, {size}: x", style, (3, 50), x_only, dict.fromkeys(peers)),
        Case(f"GraphConv 3->50, {size}: x, filters, weights", style, (3, 50), everything, dict.fromkeys(peers)),
        Case(f"GraphConv 3->128, {size}: x", style, (3, 128), x_only, {INDEXING: None}),
        Case(f"GraphConv 10->10, n={sound}, d=5: all", local_graph(sound, 5), (10, 10), everything, {INDEXING: 1}),
        Case("GraphConv 10->10, n=1000, d=5: all", local_graph(1000, 5), (10, 10), everything, {INDEXING: 1}),
        Case(f"GraphConv 3->50, {4 * image} sources, n={image}, d=9: all", between, (3, 50), everything, {INDEXING: 1}),
    ]
    lines = [line for case in cases for line in _conv_rows(case, repeats)]
    lines += _shared_rows(local_graph(image, 9), repeats)
    lines += _gram_rows(f"n={style.num_vertices}", style, repeats)
    side = 32 if options.quick else 256
    lines += _gram_rows(f"{side}x{side} grid, 5x5", grid_graph((side, side), size=5), repeats)
    lines += grid.run(side, repeats)
    if not options.quick:
        lines += [_memory_row(), *grid.memory_rows()]
    return lines


def local_graph(n: int, d: int, *, reach: int = 40, sources: int | None = None) -> Graph:
    """Make a graph with random neighbours at most `reach` away and random weights, in the same or another signal."""
    make = torch.Generator().manual_seed(0)
    m = n if sources is None else sources
    steps = torch.randint(-reach, reach + 1, (n, d), generator=make)
    centers = torch.arange(n).unsqueeze(1) * m // n
    return _weighted(Graph((centers + steps).clamp(0, m - 1), num_sources=m))


def _weighted(graph: Graph) -> Graph:
    make = torch.Generator().manual_seed(1)
    return graph.with_weights(torch.rand(graph.neighbors.shape, generator=make))


def indexing(x: Tensor, neighbors: Tensor, weights: Tensor, filters: Tensor) -> Tensor:
    """Return the layer as one writes it in torch: index, weigh, multiply."""
    patches = x[neighbors] * weights.unsqueeze(-1)
    return patches.flatten(1) @ filters.flatten(0, 1)


def geometric_layer(graph: Graph) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the layer as message passing: for each tap its edges, a weighted sum of messages and a linear map."""
    from torch_geometric.nn import MessagePassing

    class Layer(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")

        def forward(self, x: Tensor, edges: list[Tensor], weights: Tensor, filters: Tensor) -> Tensor:
            taps = zip(edges, weights.unbind(1), filters.unbind(0), strict=True)
            maps = [self.propagate(edge, x=x, weight=weight) @ tap for edge, weight, tap in taps]
            return torch.stack(maps).sum(0)

        def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
            return x_j * weight.unsqueeze(-1)

    layer, own = Layer(), torch.arange(graph.num_vertices)
    edges = [torch.stack([column.long(), own]) for column in graph.neighbors.unbind(1)]
    return lambda x, weights, filters: layer(x, edges, weights, filters)


def _conv_rows(case: Case, repeats: int) -> list[Row]:
    graph, (c, m) = case.graph, case.channels
    make = torch.Generator().manual_seed(2)
    x = torch.randn(graph.num_sources, c, generator=make)
    filters = torch.randn(graph.degree, c, m, generator=make)
    gradient = torch.randn(graph.num_vertices, m, generator=make)
    assert graph.weights is not None
    given = tuple(zip((x, filters, graph.weights), case.needs, strict=True))
    long = graph.neighbors.long()

    def step(layer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[], Any]:
        def once() -> list[Tensor | None]:
            leaves = [tensor.detach().requires_grad_(need) for tensor, need in given]
            layer(*leaves).backward(gradient)
            return [leaf.grad for leaf in leaves]

        return once

    works = {
        "ours": step(lambda x, f, w: ops.graph_conv(x, graph.neighbors, w, f)),
        INDEXING: step(lambda x, f, w: indexing(x, long, w, f)),
    }
    if GEOMETRIC in case.targets and importlib.util.find_spec("torch_geometric") is not None:
        layer = geometric_layer(graph)
        works[GEOMETRIC] = step(lambda x, f, w: layer(x, w, f))
    note = _difference(works["ours"](), works[INDEXING]())
    missing = {GEOMETRIC: "not installed: pip install torch_geometric"}
    return rows(case.work, interleave(works, repeats=repeats), case.targets, missing, note)


def _shared_rows(graph: Graph, repeats: int) -> list[Row]:
    make = torch.Generator().manual_seed(3)
    x = torch.randn(graph.num_vertices, 18, generator=make)
    taps, gradient = torch.randn(graph.degree, generator=make), torch.randn(x.shape, generator=make)
    assert graph.weights is not None
    given, long = (x, taps, graph.weights), graph.neighbors.long()

    def step(layer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[], Any]:
        def once() -> list[Tensor | None]:
            leaves = [tensor.detach().requires_grad_() for tensor in given]
            layer(*leaves).backward(gradient)
            return [leaf.grad for leaf in leaves]

        return once

    works = {
        "ours": step(lambda x, h, w: ops.shared_conv(x, graph.neighbors, w, h)),
        INDEXING: step(lambda x, h, w: torch.einsum("ndc,nd->nc", x[long], w * h)),
    }
    note = _difference(works["ours"](), works[INDEXING]())
    work = f"shared filter, 18 channels, n={graph.num_vertices}, d={graph.degree}: all"
    return rows(work, interleave(works, repeats=repeats), {INDEXING: 1}, {}, note)


def _gram_rows(where: str, graph: Graph, repeats: int) -> list[Row]:
    make = torch.Generator().manual_seed(4)
    x = torch.randn(graph.num_vertices, 3, generator=make)
    filters, bias = torch.randn(graph.degree, 3, 50, generator=make), torch.randn(50, generator=make)
    gradient = torch.randn(50, 50, generator=make)
    long = graph.neighbors.long()
    weights = torch.ones(long.shape) if graph.weights is None else graph.weights

    def maps_product(maps: Tensor) -> Tensor:
        maps = torch.relu(maps + bias)
        return maps.T @ maps

    def step(layer: Callable[[Tensor], Tensor]) -> Callable[[], Any]:
        def once() -> list[Tensor | None]:
            leaf = x.detach().requires_grad_()
            layer(leaf).backward(gradient)
            return [leaf.grad]

        return once

    composed = "graph_conv, relu, product"
    works = {
        "ours": step(lambda x: functional.gram(x, graph, filters, bias)),
        composed: step(lambda x: maps_product(functional.graph_conv(x, graph, filters))),
        INDEXING: step(lambda x: maps_product(indexing(x, long, weights, filters))),
    }
    note = _difference(works["ours"](), works[INDEXING]())
    targets: dict[str, float | None] = {composed: 1, INDEXING: None}
    return rows(f"Gram matrix of 50 maps, {where}: x", interleave(works, repeats=repeats), targets, {}, note)


def _difference(ours: list[Tensor | None], theirs: list[Tensor | None]) -> str:
    """Return the largest difference of the gradients relative to the largest one: both sides must do the same work."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    return f"gradients differ by {worst:.0e}"


def _memory_row() -> Row:
    ours, theirs = (peak_mib("conv:memory_case", side=side) for side in ("ours", "torch"))
    work = "GraphConv 3->50, n=65536, d=25: peak memory"
    return Row(
        work, INDEXING, "MiB", ours, theirs, theirs / ours, 3, note="x, filters; above the inputs, fresh processes"
    )


def memory_case(side: str, *, small: bool) -> Callable[[], object]:
    """Prepare one forward and backward pass for the measurement of memory; gradients of x and filters."""
    graph = local_graph(1024 if small else 65536, 25, reach=20 * 256)
    assert graph.weights is not None
    weights, x = graph.weights, torch.rand(graph.num_vertices, 3, requires_grad=True)
    filters = torch.randn(25, 3, 50, requires_grad=True)
    gradient = torch.randn(graph.num_vertices, 50)
    if side == "torch":
        long = graph.neighbors.long()
        return lambda: indexing(x, long, weights, filters).backward(gradient)
    return lambda: functional.graph_conv(x, graph, filters).backward(gradient)
