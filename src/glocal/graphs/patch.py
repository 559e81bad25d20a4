"""The non-local graph of section 2.2.3: every pixel or sample and the ones with the most similar surroundings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.graphs.signals import as_signal
from glocal.kernels import select
from glocal.kernels.cpu.threads import undisturbed


@undisturbed()
def patch_graph(
    signal: Any,
    *,
    k: int = 25,
    patch: int = 3,
    coords: float = 0.0,
    search_radius: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Graph:
    """Connect every vertex of an image or a 1-D signal to its `k` nearest patches, exactly.

    `dist(i, j)^2 = |p_i - p_j|^2 + coords^2 |pos_i - pos_j|^2`, where `p_i` holds all channels of the `patch x patch`
    (1-D: `patch`) neighbourhood of `i`, reflected at the border, and `pos_i` is its place in pixels or samples.

    Parameters
    ----------
    signal : (h, w, c) or (h, w, 1) image, (n,) or (n, c) 1-D signal
        A tensor or array. Distances are computed in float32. The scale of the values decides how they weigh
        against `coords`: style transfer uses Lab with L from 0 to 100 and `coords=1`.
    k : int
        Neighbours of each vertex, itself included: column 0 is the vertex itself, then nearest first; ties go to the
        smaller vertex index. All backends and thread counts give the same graph, bit for bit.
    patch : odd int
        The side of the patch.
    coords : float >= 0
        Weight of the position; 0 leaves it out.
    search_radius : int or None
        Search only `|dy|, |dx| <= search_radius`; None searches everywhere.
    progress : callable or None
        Called with the fraction done, from 0 to 1.

    Returns
    -------
    Graph with `distances` (n, k), and no weights: choose them from `glocal.weights`.
    Memory O(n k). Time O(n c) for each of the shifts that must be looked at: with `coords` usually a few hundred,
    with `search_radius` (2 radius + 1)^2, otherwise up to 4 n.

    >>> g = patch_graph(torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 5.0]), k=2, patch=1)
    >>> g.neighbors.tolist()
    [[0, 2], [1, 3], [2, 0], [3, 1], [4, 0], [5, 1]]
    """
    x = as_signal(signal, caller="patch_graph", name="signal", ndim=(1, 2, 3)).detach().to(torch.float32)
    image = x.view(1, -1, 1) if x.ndim == 1 else x.unsqueeze(0) if x.ndim == 2 else x
    size = (patch, patch) if x.ndim == 3 else (1, patch)
    _check(image, k, patch, coords, search_radius)
    search = select.pick("patch_neighbors", image.device)
    neighbors, squared = search(pad_planes(image, size), k, size, float(coords), search_radius, progress)
    if progress is not None:
        progress(1.0)
    return Graph(neighbors, None, squared.sqrt_())


def pad_planes(image: Tensor, patch: tuple[int, int]) -> Tensor:
    """Put the channels of (h, w, c) first and reflect half a patch at each border, as often as needed."""
    planes = image.permute(2, 0, 1)
    for axis, size in zip((1, 2), patch, strict=True):
        n = planes.shape[axis]
        source = torch.from_numpy(np.pad(np.arange(n), size // 2, mode="reflect"))
        planes = planes.index_select(axis, source.to(planes.device))
    return planes.contiguous()


def _check(image: Tensor, k: int, patch: int, coords: float, radius: int | None) -> None:
    h, w, _ = image.shape
    n = h * w
    for name, value in (("k", k), ("patch", patch), ("search_radius", radius or 0)):
        if not isinstance(value, int | np.integer):
            message = f"patch_graph: `{name}` (={value}) must be a whole number. Use an int."
            raise ArgumentError(message)
    if patch < 1 or patch % 2 == 0:
        message = (
            f"patch_graph: `patch` (={patch}) must be odd and positive, so that the vertex is its centre. Use 3 or 7."
        )
        raise ArgumentError(message)
    if not (coords >= 0 and math.isfinite(coords)):
        message = f"patch_graph: `coords` (={coords}) must be finite and not negative. Use 0 to leave positions out."
        raise ArgumentError(message)
    if n >= 2**31:
        message = f"patch_graph: the signal has {n} vertices, more than 2^31 - 1. Split it."
        raise ArgumentError(message)
    if k < 1 or k > n:
        message = (
            f"patch_graph: `k` (={k}) must be between 1 and the number of vertices (={n}). "
            "Use a larger image or a smaller k."
        )
        raise ArgumentError(message)
    if radius is None:
        return
    fewest = min(h, radius + 1) * min(w, radius + 1)  # what a corner sees
    if radius < 0 or k > fewest:
        message = (
            f"patch_graph: `search_radius` (={radius}) gives a corner only {max(fewest, 0)} candidates, fewer than `k` (={k}). "
            "Use a larger search_radius or a smaller k."
        )
        raise ArgumentError(message)
