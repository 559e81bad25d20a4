"""One row of the graph of patches: the neighbours of a single vertex, at once and without the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.graphs.patch import pad_frames
from glocal.graphs.signals import as_signal

_ROUNDING = 1e-4  # of a correlation in float32, as a share of its terms, with a wide margin


def nearest_patches(
    signal: Any,
    vertex: int,
    *,
    k: int = 25,
    patch: int = 3,
    coords: float = 0.0,
    search_radius: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches of one vertex: its row of `patch_graph(signal, ...)`.

    Parameters
    ----------
    signal : (n,) or (n, c) 1-D signal, or (h, w, c) image
        See `patch_graph`.
    vertex : int
        The vertex, in the order of rows: `y * w + x`.
    k, patch, coords, search_radius
        See `patch_graph`; here `patch` and `search_radius` are one number for all axes.

    Returns
    -------
    neighbors : (k,) int64
        The vertex itself first, then the nearest; ties go to the smaller index.
    distances : (k,) float32
        Cost: O(n c) for each of the pixels of a patch, some hundredths of a second at 512 x 512.

    Raises
    ------
    ArgumentError
        There is no such vertex, or an option cannot be used.

    Examples
    --------
    >>> neighbors, distances = nearest_patches(torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 5.0]), 0, k=3, patch=1)
    >>> neighbors.tolist(), distances.tolist()
    ([0, 2, 4], [0.0, 0.0, 0.0])
    """
    x = as_signal(signal, caller="nearest_patches", name="signal", ndim=(1, 2, 3)).detach().to("cpu", torch.float32)
    x = x.reshape(1, len(x), -1) if x.ndim < 3 else x
    h, w, _ = x.shape
    _check(h * w, vertex, k, patch, coords, search_radius)
    row, column = divmod(int(vertex), w)
    reach = max(h, w) if search_radius is None else int(search_radius)
    top, bottom = max(0, row - reach), min(h, row + reach + 1)
    left, right = max(0, column - reach), min(w, column + reach + 1)
    size = (patch if h > 1 else 1, patch)
    # Differences from the vertex' own values: similar patches are then small, and so is the rounding.
    planes = pad_frames((x - x[row, column]).unsqueeze(0), (1, *size))[0]
    window = planes[:, top : bottom + size[0] - 1, left : right + size[1] - 1]
    own = planes[:, row : row + size[0], column : column + size[1]]
    places = torch.zeros(bottom - top, right - left)
    if coords:
        steps = torch.arange(top, bottom).sub(row).square()[:, None] + torch.arange(left, right).sub(column).square()
        places = steps.to(torch.float32) * float(np.float32(coords * coords))
    chosen = _candidates(window, own, places, k)
    squared = _squared(window, own, chosen) + places.reshape(-1)[chosen]
    rows, columns = chosen // (right - left) + top, chosen % (right - left) + left
    neighbors = rows * w + columns
    squared[neighbors == vertex] = -1  # the vertex itself comes first
    order = squared.argsort(stable=True)[:k]
    return neighbors[order], squared[order].clamp(min=0).sqrt()


def _candidates(window: Tensor, own: Tensor, places: Tensor, k: int) -> Tensor:
    """Return, in ascending order, the positions that can be among the `k` nearest.

    `|p_i - p_j|^2 = |p_i|^2 + |p_j|^2 - 2 <p_i, p_j>` are two correlations, which are fast but round. Whatever is further
    away than the k-th by more than the rounding is left out.
    """
    if k > places.numel():
        message = (
            f"nearest_patches: `k` (={k}) must not be larger than the number of candidates (={places.numel()}). "
            "Use a larger search_radius or a smaller k."
        )
        raise ArgumentError(message)
    correlate = torch.nn.functional.conv2d
    norms = correlate(window.square().sum(0)[None, None], torch.ones(1, 1, *own.shape[1:]))[0, 0]
    both = norms + own.square().sum()
    about = (both - 2 * correlate(window[None], own[None])[0, 0] + places).reshape(-1)
    slack = _ROUNDING * (both + places).reshape(-1)
    limit = (about + slack).kthvalue(k).values
    return (about - slack <= limit).nonzero().squeeze(1)


def _squared(window: Tensor, own: Tensor, chosen: Tensor) -> Tensor:
    """Sum the squared differences of the chosen patches, (m,)."""
    width = window.shape[2] - own.shape[2] + 1
    rows, columns = chosen // width, chosen % width
    found = torch.zeros(len(chosen))
    for dy in range(own.shape[1]):
        for dx in range(own.shape[2]):
            found += (window[:, rows + dy, columns + dx] - own[:, dy, dx, None]).square().sum(0)
    return found


def _check(n: int, vertex: int, k: int, patch: int, coords: float, radius: int | None) -> None:
    if not 0 <= vertex < n:
        message = f"nearest_patches: `vertex` (={vertex}) must be from 0 to {n - 1}. Count y * w + x."
        raise ArgumentError(message)
    if not 1 <= k <= n:
        message = f"nearest_patches: `k` (={k}) must be from 1 to the number of vertices (={n}). Use a smaller k."
        raise ArgumentError(message)
    if patch < 1 or patch % 2 == 0:
        message = f"nearest_patches: `patch` (={patch}) must be odd and positive. Use 3 or 7."
        raise ArgumentError(message)
    if not (coords >= 0 and np.isfinite(coords)):
        message = (
            f"nearest_patches: `coords` (={coords}) must be finite and not negative. Use 0 to leave positions out."
        )
        raise ArgumentError(message)
    if radius is not None and radius < 0:
        message = f"nearest_patches: `search_radius` (={radius}) must not be negative. Use 10, or None for everywhere."
        raise ArgumentError(message)
