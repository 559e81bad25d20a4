"""Combine several graphs into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from glocal.errors import ArgumentError, DeviceError
from glocal.graph import Graph
from glocal.lattice import Lattice


def block_diagonal(graphs: Iterable[Graph]) -> Graph:
    """Combine graphs of any sizes without edges between them: vertex `i` of graph `b` is `n_0 + ... + n_(b-1) + i`.

    One layer call then processes the whole batch: `layer(torch.cat(signals), block_diagonal(graphs)).split(sizes)`.
    Smaller degrees are completed with self-edges of weight 0. `distances` are kept if all graphs have them and have
    the same degree. Equal grids stay a lattice, at no cost. For graphs between two signals the sources are joined in
    the same way: the sources of graph `b` follow those of the graphs before it. Cost: O(sum of n d).

    >>> from glocal import grid_graph
    >>> block_diagonal([grid_graph((2,)), grid_graph((3,))]).num_vertices
    5
    """
    if not isinstance(graphs, Iterable):
        message = f"block_diagonal: `graphs` is a {type(graphs).__name__}. Give a list of graphs."
        raise ArgumentError(message)
    graphs = list(graphs)
    if not graphs:
        message = "block_diagonal: `graphs` is empty. Give at least one graph."
        raise ArgumentError(message)
    if other := [type(g).__name__ for g in graphs if not isinstance(g, Graph)]:
        message = f"block_diagonal: `graphs` holds a {other[0]}. Give a list of graphs."
        raise ArgumentError(message)
    devices = {str(g.device) for g in graphs}
    if len(devices) > 1:
        message = f"block_diagonal: the graphs are on {' and '.join(sorted(devices))}. Move them with .to(device)."
        raise DeviceError(message)
    if lattice := _common_lattice(graphs):
        return Graph.from_lattice(lattice, graphs[0].device)
    degree = max(g.degree for g in graphs)
    irregular = any(g.degree < degree for g in graphs)
    shifts = torch.tensor([0, *(g.num_sources for g in graphs[:-1])]).cumsum(0).tolist()
    neighbors = torch.cat([_widen(g, degree) + shift for g, shift in zip(graphs, shifts, strict=True)])
    weights = None
    if irregular or any(g.weights is not None for g in graphs):
        weights = torch.cat([_pad(_weights(g), degree) for g in graphs])
    known = [g.distances for g in graphs if g.distances is not None]
    distances = torch.cat(known) if len(known) == len(graphs) and not irregular else None
    return Graph(neighbors, weights, distances, num_sources=sum(g.num_sources for g in graphs))


def _common_lattice(graphs: Sequence[Graph]) -> Lattice | None:
    """Return the lattice of all graphs together, if they are equal grids without their own weights or distances."""
    found = {None if g.convolution is None else replace(g.convolution, copies=1) for g in graphs}
    rule = found.pop()
    if rule is None or found or any(g.distances is not None for g in graphs):
        return None
    return replace(rule, copies=sum(g.num_vertices for g in graphs) // rule.num_vertices)


def _weights(graph: Graph) -> Tensor:
    return torch.ones(graph.neighbors.shape, device=graph.device) if graph.weights is None else graph.weights


def _pad(values: Tensor, degree: int) -> Tensor:
    return torch.nn.functional.pad(values, (0, degree - values.shape[1]))


def _widen(graph: Graph, degree: int) -> Tensor:
    n, d = graph.neighbors.shape
    own = torch.arange(n, dtype=torch.int32, device=graph.device).clamp(max=graph.num_sources - 1)
    own = own.unsqueeze(1).expand(n, degree - d)
    return torch.cat([graph.neighbors, own], 1)
