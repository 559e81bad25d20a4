"""The local graph of section 2.2.2: every vertex of a lattice is joined to its square neighbourhood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import SupportsIndex

import torch

from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.lattice import BOUNDARIES as BOUNDARIES
from glocal.lattice import Lattice


def grid_graph(
    shape: Sequence[int],
    *,
    size: int | Sequence[int] = 3,
    dilation: int = 1,
    boundary: str = "reflect",
    device: torch.device | str = "cpu",
) -> Graph:
    """Connect every vertex of a 1-, 2- or 3-D lattice to its `size x size (x size)` neighbours, in raster order.

    A `GraphConv` on this graph is the ordinary convolution with padding `boundary` (equation 6 with `g = 1`), and is
    computed as one: the graph stores its rule, `graph.lattice`, instead of its edges.

    Parameters
    ----------
    shape : (n,), (h, w) or (t, h, w)
        Vertices are numbered in raster order: the last axis runs fastest.
    size : odd int, or one for each axis
        The degree is the product: 25 for `size=5` on an image.
    dilation : int >= 1
        Steps between neighbours, as in a dilated convolution.
    boundary : "reflect", "replicate", "circular" or "zero"
        What is outside. "zero" keeps the edge with weight 0. This is how the paper completes vertices with fewer
        edges. With the other boundaries `weights` is None.

    Returns
    -------
    Graph
        n vertices of degree d. Cost: O(1). `neighbors` and `weights` are computed when they are first read, in O(n d)
        time and memory. Layers do not read them.

    Raises
    ------
    ArgumentError
        If a length is below 1, a size is even, or the boundary is unknown.

    Examples
    --------
    >>> g = grid_graph((4,), size=3, boundary="reflect")
    >>> g
    Graph(4 vertices, degree 3, lattice 4, reflect, cpu, 0 B)
    >>> g.neighbors.tolist()
    [[1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 2]]
    """
    lengths = _whole("shape", shape)
    sizes = _whole("size", size)
    sizes = sizes * len(lengths) if isinstance(size, SupportsIndex) else sizes
    return Graph.from_lattice(Lattice(lengths, sizes, _whole("dilation", [dilation])[0], boundary), device)


def _whole(name: str, value: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return one or several whole numbers as a tuple."""
    try:
        return tuple(index(n) for n in ([value] if isinstance(value, SupportsIndex) else value))
    except TypeError as error:
        message = f"grid_graph: `{name}` (={value!r}) must be whole numbers. Use ints."
        raise ArgumentError(message) from error
