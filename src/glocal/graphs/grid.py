"""The local graph of section 2.2.2: every vertex of a lattice and its square neighbourhood."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.graph import Graph


def _reflect(i: Tensor, n: int) -> Tensor:
    period = max(1, 2 * (n - 1))
    i = i.remainder(period)
    return torch.minimum(i, period - i) if n > 1 else torch.zeros_like(i)


# Where the neighbour at position i of an axis of length n is found; "zero" keeps a valid index and drops the edge.
BOUNDARIES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "reflect": _reflect,
    "replicate": lambda i, n: i.clamp(0, n - 1),
    "circular": lambda i, n: i.remainder(n),
    "zero": lambda i, n: i.clamp(0, n - 1),
}


def grid_graph(
    shape: Sequence[int],
    *,
    size: int | Sequence[int] = 3,
    dilation: int = 1,
    boundary: str = "reflect",
    device: torch.device | str = "cpu",
) -> Graph:
    """Connect every vertex of a 1-, 2- or 3-D lattice to its `size x size (x size)` neighbours, in raster order.

    A `GraphConv` on this graph is the ordinary convolution with padding `boundary` (equation 6 with `g = 1`).

    Parameters
    ----------
    shape : (n,), (h, w) or (t, h, w)
        Vertices are numbered in raster order: the last axis runs fastest.
    size : odd int, or one for each axis
        The degree is the product: 25 for `size=5` on an image.
    dilation : int >= 1
        Steps between neighbours, as in a dilated convolution.
    boundary : "reflect", "replicate", "circular" or "zero"
        What lies outside. "zero" keeps the edge with weight 0, as the paper completes vertices with fewer edges;
        the other boundaries leave `weights` None.

    Returns
    -------
    Graph with n vertices and degree d. Cost: O(n d) time and memory.

    >>> grid_graph((4,), size=3, boundary="reflect").neighbors.tolist()
    [[1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 2]]
    """
    lengths, sizes = _checked(shape, size, dilation, boundary)
    places = torch.meshgrid(*(torch.arange(n, device=device) for n in lengths), indexing="ij")
    steps = [(torch.arange(s, device=device) - s // 2) * dilation for s in sizes]
    offsets = torch.meshgrid(*steps, indexing="ij")
    vertex = torch.zeros((), dtype=torch.int64, device=device)
    inside = torch.ones((), dtype=torch.bool, device=device)
    for place, offset, n in zip(places, offsets, lengths, strict=True):
        i = place.reshape(-1, 1) + offset.reshape(1, -1)
        inside = inside & (i >= 0) & (i < n)
        vertex = vertex * n + BOUNDARIES[boundary](i, n)
    weights = inside.to(torch.float32) if boundary == "zero" else None
    return Graph(vertex, weights)


def _checked(
    shape: Sequence[int], size: int | Sequence[int], dilation: int, boundary: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lengths = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if not 1 <= len(lengths) <= 3 or min(lengths) < 1:
        message = f"grid_graph: `shape` (={tuple(lengths)}) must be (n,), (h, w) or (t, h, w), each at least 1. Check the signal."
        raise ArgumentError(message)
    sizes = (size,) * len(lengths) if isinstance(size, int) else tuple(int(s) for s in size)
    if len(sizes) != len(lengths):
        message = f"grid_graph: `size` (={sizes}) must have one entry for each axis of `shape` (={lengths}). Give one odd number."
        raise ArgumentError(message)
    if any(s < 1 or s % 2 == 0 for s in sizes):
        message = (
            f"grid_graph: `size` (={size}) must be odd and positive, so that the vertex is its centre. Use 3 or 5."
        )
        raise ArgumentError(message)
    if dilation < 1:
        message = f"grid_graph: `dilation` (={dilation}) must be at least 1. Use 1 for adjacent neighbours."
        raise ArgumentError(message)
    if boundary not in BOUNDARIES:
        message = f"grid_graph: `boundary` (={boundary!r}) is unknown. Choose one of {', '.join(BOUNDARIES)}."
        raise ArgumentError(message)
    return lengths, sizes
