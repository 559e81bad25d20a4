"""Nearest neighbours in any feature space."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from glocal.errors import ArgumentError, DeviceError
from glocal.graph import Graph
from glocal.graphs.signals import as_signal, square_root
from glocal.kernels import select

METHODS = ("exact", "approximate")


def knn_graph(
    features: Any,
    *,
    source: Any = None,
    k: int = 25,
    method: str = "exact",
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Graph:
    """Connect every row of `features` (n, f) to its `k` nearest rows by Euclidean distance.

    The nearest comes first; ties go to the smaller index. The order is decided on distances accumulated in float64, so
    every backend gives the same graph.

    Parameters
    ----------
    features : (n, f) tensor or array
        One row per vertex.
    source : (m, f) tensor or array, or None
        The rows among which neighbours are searched. The graph then joins the n rows of `features` to the m rows of
        `source`. None searches `features` itself, and column 0 is the row itself. With `source` no column is special.
    k : int
        The number of neighbours of each row.
    method : "exact" or "approximate"
        Exact: O(n m f) time at worst, O(n (k + f) + m f) memory. Approximate, only without `source`: the rows are put
        into about sqrt(n) cells around centres (seeded k-means), and only the 16 nearest cells of each row's own cell
        are searched. This takes about O(n^1.5 f) time. The recall is 0.99 or more on patch features of photos
        (`tests/graphs/test_knn.py` measures it).
    seed : int
        The seed of the approximate method.
    progress : callable or None
        Called with the fraction done, from 0 to 1.

    Returns
    -------
    Graph
        With `distances` (n, k) and no weights.

    Examples
    --------
    >>> knn_graph([[0.0], [10.0], [1.0]], k=2).neighbors.tolist()
    [[0, 2], [1, 2], [2, 0]]
    >>> knn_graph([[0.0], [10.0]], source=[[9.0], [1.0], [2.0]], k=2).neighbors.tolist()
    [[1, 2], [0, 2]]
    """
    x = as_signal(features, caller="knn_graph", name="features", ndim=(2,)).detach()
    z = x if source is None else as_signal(source, caller="knn_graph", name="source", ndim=(2,)).detach()
    _check(x, z, k, method, source is None)
    scale, dtype = _scale(x, z), x.dtype
    if scale != 1:  # in float64, so that the smaller ones keep their digits
        x, z = x.double() * scale, z.double() * scale
    if method == "approximate":
        neighbors, squared = _by_cells(x, k, seed, progress)
    elif source is None:
        neighbors, squared = select.pick("knn", x.device)(x, k, progress)
    else:
        wide = torch.promote_types(x.dtype, z.dtype)
        neighbors, squared = select.pick("match_rows", x.device)(x.to(wide), z.to(wide), k, False, progress)
    return Graph(neighbors, None, (square_root(squared) / scale).to(dtype), num_sources=len(z))


def _scale(x: Tensor, source: Tensor) -> float:
    """Return the power of 2 that brings numbers near 1 whose squares are too large or too small for float32; else 1.

    >>> some, none, many = (torch.tensor([[value]]) for value in (3.0, 0.0, 2.0**70))
    >>> _scale(some, none), _scale(none, many) == 2.0**-71
    (1.0, True)
    """
    largest = max(float(part.abs().max()) for part in (x, source))
    exponent = math.frexp(largest)[1]
    return 1.0 if largest == 0 or abs(exponent) < 40 else 2.0 ** -max(exponent, -1000)


def _check(x: Tensor, source: Tensor, k: int, method: str, alone: bool) -> None:
    if x.shape[1] != source.shape[1]:
        message = (
            f"knn_graph: `features` (n={len(x)}, f={x.shape[1]}) and `source` (m={len(source)}, f={source.shape[1]}) "
            "must have the same number of columns. Give both the same features."
        )
        raise ArgumentError(message)
    if x.device != source.device:
        message = f"knn_graph: `features` is on {x.device}, `source` on {source.device}. Move both with .to(device)."
        raise DeviceError(message)
    if not isinstance(k, SupportsIndex):
        message = f"knn_graph: `k` (={k}) must be a whole number. Use an int."
        raise ArgumentError(message)
    if int(k) < 1 or int(k) > len(source):
        message = (
            f"knn_graph: `k` (={k}) must be between 1 and the number of vertices (={len(source)}). "
            "Use more rows or a smaller k."
        )
        raise ArgumentError(message)
    if method not in METHODS:
        message = f"knn_graph: `method` (={method!r}) is unknown. Choose one of {', '.join(METHODS)}."
        raise ArgumentError(message)
    if method == "approximate" and not alone:
        message = "knn_graph: `method` (='approximate') works only without `source`. Use method='exact'."
        raise ArgumentError(message)


_PROBES = 16  # cells searched for each cell


def _by_cells(x: Tensor, k: int, seed: int, progress: Callable[[float], None] | None) -> tuple[Tensor, Tensor]:
    n = x.shape[0]
    cells = max(1, int(n**0.5))
    own = _assign(x, cells, seed)
    order = own.argsort(stable=True)
    count = torch.bincount(own, minlength=cells)
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    centres = torch.zeros(cells, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, own, x)
    near = torch.cdist(centres / count.clamp(min=1).unsqueeze(1), centres / count.clamp(min=1).unsqueeze(1)).argsort(1)
    neighbors = torch.empty(n, k, dtype=torch.int32, device=x.device)
    squared = torch.empty(n, k, dtype=torch.float64, device=x.device)
    for cell in range(cells):
        rows = order[start[cell] : start[cell + 1]]
        if len(rows) == 0:
            continue
        probes = _PROBES
        while True:  # a sparse neighbourhood: widen it until there are k candidates
            found = torch.cat([order[start[c] : start[c + 1]] for c in near[cell, :probes].tolist()]).sort().values
            if len(found) >= k or probes >= cells:
                break
            probes *= 2
        d2 = torch.cdist(x[rows].double(), x[found].double(), compute_mode="donot_use_mm_for_euclid_dist").square()
        d2[found.unsqueeze(0) == rows.unsqueeze(1)] = -1
        values, places = d2.sort(dim=1, stable=True)
        neighbors[rows], squared[rows] = found[places[:, :k]].to(torch.int32), values[:, :k].clamp(min=0)
        if progress is not None:
            progress((cell + 1) / cells)
    return neighbors, squared


def _assign(x: Tensor, cells: int, seed: int) -> Tensor:
    """Return the index of the nearest of `cells` centres for each row, after five rounds of k-means on a sample."""
    generator = torch.Generator().manual_seed(seed)
    sample = x[torch.randperm(len(x), generator=generator)[: 64 * cells].to(x.device)]
    centres = sample[:cells].clone()
    for _ in range(5):
        nearest = torch.cdist(sample, centres).argmin(1)
        count = torch.bincount(nearest, minlength=cells)
        sums = torch.zeros_like(centres).index_add_(0, nearest, sample)
        filled = count > 0
        centres[filled] = sums[filled] / count[filled].unsqueeze(1)
    return torch.cat([torch.cdist(part, centres).argmin(1) for part in x.split(65536)])
