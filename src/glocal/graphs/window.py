"""Graphs that a network builds from its own features: the most similar vectors inside a window of a lattice."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.kernels import known, window_ops


class WindowGraph(NamedTuple):
    """The result of `window_graph`. A named tuple, so that `graph, similarities = window_graph(...)` works."""

    graph: Graph
    """n vertices, degree k, no weights."""
    similarities: Tensor
    """(n, k): the inner products of each vertex and its neighbours, differentiable in the features."""


def window_graph(features: Tensor, *, radius: int, k: int, exclude: int | None = None) -> WindowGraph:
    """Connect every vertex of a lattice to the `k` most similar feature vectors inside a square window.

    `s(i, j) = <features_i, features_j>`, an inner product: normalise the vectors for cosine similarity.
    Columns are ordered by decreasing similarity; ties go to the smaller index.
    The indices have no gradient. Gradients flow through the similarities:
    `graph.with_weights(torch.softmax(similarities / temperature, 1))`.

    Parameters
    ----------
    features : (h, w, f), or (b, h, w, f) for a batch
        Vertex (y, x) of picture i has the number `(i h + y) w + x`. So the graph of a batch has b h w vertices, and no
        edges between pictures. NaN is not checked, because this function runs inside networks.
    radius : int >= 0
        The window is `|dy|, |dx| <= radius`. Near a border it is shifted inwards, so that it keeps its
        `(2 radius + 1)^2` candidates. Along an axis with fewer than `2 radius + 1` vertices it contains all of them.
    k : int
        The number of neighbours of each vertex.
    exclude : int >= 0 or None
        Leave out the square `|dy|, |dx| <= exclude` around the vertex: 0 leaves out only the vertex. None keeps all;
        then the vertex is a candidate like any other and has no special column.

    Returns
    -------
    WindowGraph
        The graph and its similarities. Similarities are ranked in float32. Candidates whose similarities differ by less
        than the rounding of the sum may be ranked differently by different backends.
        Cost: O(b h w radius^2 f) time, O(b h w k f) memory.

    Raises
    ------
    ArgumentError
        If `features` has another shape, or the window has fewer than `k` candidates.

    Examples
    --------
    >>> x = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]]])
    >>> graph, similarities = window_graph(x, radius=3, k=2, exclude=0)
    >>> graph.neighbors.tolist()
    [[2, 3], [3, 0], [0, 3], [1, 0]]
    >>> similarities[0].tolist()
    [1.0, 0.6000000238418579]
    """
    _check(features, radius, k, exclude)
    batch = features.unsqueeze(0) if features.ndim == 3 else features
    with torch.no_grad():
        wide = batch.detach().to(torch.float32).contiguous()
        found = window_ops.window_neighbors(wide, k, radius, -1 if exclude is None else exclude)
    flat = batch.reshape(-1, batch.shape[3])
    if not torch.compiler.is_compiling():
        known.trust_range(found, len(flat))  # reading the values would make the host wait for the GPU
    return WindowGraph(Graph(found), window_ops.similarities(flat, found))


def _check(features: Tensor, radius: int, k: int, exclude: int | None) -> None:
    if not isinstance(features, Tensor) or not features.is_floating_point():
        got = features.dtype if isinstance(features, Tensor) else type(features).__name__
        message = (
            f"window_graph: `features` ({got}) must be a tensor of floats. Convert with torch.as_tensor(x).float()."
        )
        raise ArgumentError(message)
    if features.ndim not in (3, 4) or features.numel() == 0:
        message = (
            f"window_graph: `features` (shape {tuple(features.shape)}) must be (h, w, f) or (b, h, w, f), "
            "with at least one vertex and one feature. Put the features last."
        )
        raise ArgumentError(message)
    for name, value, least in (("radius", radius, 0), ("k", k, 1), ("exclude", exclude, 0)):
        if value is not None and (not isinstance(value, int) or value < least):
            message = f"window_graph: `{name}` (={value}) must be a whole number, at least {least}. Use an int."
            raise ArgumentError(message)
    h, w = features.shape[-3:-1]
    sides = [min(2 * radius + 1, n) for n in (h, w)]
    left_out = 0 if exclude is None else min(2 * exclude + 1, sides[0]) * min(2 * exclude + 1, sides[1])
    fewest = sides[0] * sides[1] - left_out
    if k > fewest:
        message = (
            f"window_graph: `radius` (={radius}) and `exclude` (={exclude}) leave {fewest} candidates in {h}x{w} vertices, "
            f"fewer than `k` (={k}). Use a larger radius or a smaller k."
        )
        raise ArgumentError(message)
    if features.numel() // features.shape[-1] >= 2**31:
        message = "window_graph: `features` has more than 2^31 - 1 vertices. Split the batch."
        raise ArgumentError(message)
