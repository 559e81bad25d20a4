"""The laws glocal promises, as functions: use them on layers and graphs of your own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal.graph import Graph

Layer = Callable[[Tensor, Graph], Tensor]


def relabel(graph: Graph, order: Tensor) -> Graph:
    """Renumber the vertices: new vertex `i` is the old vertex `order[i]`. Cost: O(n d).

    For a graph between two signals this numbers the rows of the result; those of the source stay as they are.
    """
    weights, distances = (None if t is None else t[order] for t in (graph.weights, graph.distances))
    if graph.num_sources != graph.num_vertices:
        return Graph(graph.neighbors[order], weights, distances, num_sources=graph.num_sources)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return Graph(place[graph.neighbors.long()][order], weights, distances)


def assert_commutes_with_relabelling(
    layer: Layer, x: Tensor, graph: Graph, *, seed: int = 0, tolerance: float = 1e-5
) -> None:
    """Check that the names of the vertices do not matter: `layer(x[p], relabel(graph, p)) = layer(x, graph)[p]`.

    On a graph between two signals the rows of x keep their places: `layer(x, relabel(graph, p)) = layer(x, graph)[p]`.
    """
    order = torch.randperm(graph.num_vertices, generator=torch.Generator().manual_seed(seed)).to(x.device)
    one_signal = graph.num_sources == graph.num_vertices
    ours = layer(x[..., order, :] if one_signal else x, relabel(graph, order))
    torch.testing.assert_close(ours, layer(x, graph)[..., order, :], rtol=tolerance, atol=tolerance)


def assert_linear(layer: Layer, x: Tensor, y: Tensor, graph: Graph, *, tolerance: float = 1e-5) -> None:
    """Check `layer(2 x - 3 y) = 2 layer(x) - 3 layer(y)`, for layers without a bias."""
    torch.testing.assert_close(
        layer(2 * x - 3 * y, graph), 2 * layer(x, graph) - 3 * layer(y, graph), rtol=tolerance, atol=tolerance
    )


def assert_adjoint(layer: Layer, x: Tensor, graph: Graph, *, seed: int = 0, tolerance: float = 1e-5) -> None:
    """Check that the backward pass of a linear layer is its adjoint: `<A x, v> = <x, A' v>`."""
    point = x.detach().requires_grad_(True)
    y = layer(point, graph)
    v = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=y.dtype).to(y.device)
    (back,) = torch.autograd.grad(y, point, v)
    left, right = (y.detach() * v).sum(), (point.detach() * back).sum()
    scale = float(y.detach().norm() * v.norm())
    torch.testing.assert_close(left / scale, right / scale, rtol=0, atol=tolerance)


def assert_nearest_first(graph: Graph) -> None:
    """Check the order of a non-local graph: itself in column 0, then by distance, ties by smaller index."""
    own = torch.arange(graph.num_vertices, dtype=torch.int32, device=graph.device)
    if not torch.equal(graph.neighbors[:, 0], own):
        raise AssertionError("column 0 is not the vertex itself")
    if graph.distances is None:
        raise AssertionError("the graph has no distances")
    d, j = graph.distances[:, 1:], graph.neighbors[:, 1:]
    rising = d[:, 1:] > d[:, :-1]
    tied = (d[:, 1:] == d[:, :-1]) & (j[:, 1:] > j[:, :-1])
    if not bool((rising | tied).all()):
        raise AssertionError("the neighbours are not ordered by distance, then index")
