"""The definition of the neighbour searches, in plain torch. Slow, short, right; the fast backends equal it.

Squared distances of patches are compared bit by bit, so the order of the float32 additions is part of the definition:
`window_sum` says it. Every backend follows it, and fused multiply-adds are not used.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal.kernels.matching import Matching, Sizes

Progress = Callable[[float], None] | None


def window_sum(x: Tensor, size: int, dim: int) -> Tensor:
    """Sum `size` consecutive entries along `dim`, adding blocks of 2^b entries, the largest block first.

    >>> window_sum(torch.arange(5.0), 3, 0)
    tensor([3., 6., 9.])
    """
    n = x.shape[dim] - size + 1
    blocks = [x]  # blocks[b][t] = the sum of x[t : t + 2^b]
    while 2 ** len(blocks) <= size:
        half, step = blocks[-1], 2 ** (len(blocks) - 1)
        length = half.shape[dim] - step
        blocks.append(half.narrow(dim, 0, length) + half.narrow(dim, step, length))
    total, start = None, 0
    for b in reversed(range(len(blocks))):
        if size >> b & 1:
            part = blocks[b].narrow(dim, start, n)
            total = part if total is None else total + part
            start += 2**b
    assert total is not None
    return total


def patch_neighbors(
    planes: Tensor, k: int, patch: tuple[int, int], coords: float, radius: int | None, progress: Progress = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches of one image in itself: `match_patches` of (c, h + ph - 1, w + pw - 1) planes."""
    return match_patches(*one_image(planes), k, one_image_matching(patch, coords, radius), progress)


def one_image(planes: Tensor) -> tuple[Tensor, Tensor]:
    """Return one image as query and source."""
    return (planes.unsqueeze(0),) * 2


def one_image_matching(patch: tuple[int, int], coords: float, radius: int | None) -> Matching:
    """Return how the patches of one image are compared: the vertex itself comes first."""
    return Matching((1, *patch), coords, None if radius is None else (0, radius, radius), own=True)


def knn(features: Tensor, k: int, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows of one matrix (n, f) in itself: `match_rows`, where each row itself comes first."""
    return match_rows(features, features, k, True, progress)


def match_patches(
    query: Tensor, source: Tensor, k: int, matching: Matching, progress: Progress = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches of `source` for every patch of `query`, by (squared distance, source index).

    `d2(i, j) = sum_(v, u) sum_(s, c) (x_c[i + (s, v, u)] - z_c[j + (s, v, u)])^2 + coords^2 |i - j|^2`: the inner sum
    runs over the frames s of a patch and the channels c of each in turn, the outer ones are `window_sum` down the rows
    and then along the columns. Where `matching.own` is set, the vertex itself comes first.

    Parameters
    ----------
    query, source : Tensor, (t + pt - 1, c, h + ph - 1, w + pw - 1) float32
        Frames, already padded by half a patch on each side.

    Returns
    -------
    neighbors (n, k) int32 and squared distances (n, k) float32. Cost: O(n m c patch) time, O(m c patch) memory.
    """
    places = matching.query_places(query)
    n = len(places)
    neighbors = torch.empty(n, k, dtype=torch.int32, device=query.device)
    distances = torch.empty(n, k, dtype=torch.float32, device=query.device)
    here, there = cells(query, matching, matching.stride), cells(source, matching, matching.source_stride)
    steps = matching.source_places(source)
    for i in range(n):
        d2 = patch_distances(here[:, i], there, steps - places[i], matching)
        if matching.own:
            d2[i] = -1
        distances[i], order = (part[:k] for part in torch.sort(d2, stable=True))
        neighbors[i] = order
        if progress is not None and i % 1024 == 0:
            progress(i / n)
    return neighbors, distances.clamp_(min=0)


def cells(frames: Tensor, matching: Matching, stride: Sizes) -> Tensor:
    """Cut out the patches: (pt c, n, ph, pw), the channels of the first frame first."""
    for axis, size, step in zip((0, 2, 3), matching.patch, stride, strict=True):
        frames = frames.unfold(axis, size, step)
    return frames.permute(4, 1, 0, 2, 3, 5, 6).flatten(2, 4).flatten(0, 1)


def patch_distances(here: Tensor, there: Tensor, steps: Tensor, matching: Matching) -> Tensor:
    """Compute `d2` between one patch (pt c, ph, pw) and those of (pt c, m, ph, pw) at the offsets `steps` (m, 3)."""
    squares = (there[0] - here[0]).square()
    for channel in range(1, len(there)):
        squares = squares + (there[channel] - here[channel]).square()
    factor = torch.tensor(matching.coords * matching.coords, dtype=torch.float32, device=there.device)
    d2 = window_sum(window_sum(squares, matching.patch[1], 1), matching.patch[2], 2)[:, 0, 0]
    d2 = d2 + factor * steps.square().sum(1).to(torch.float32)
    if matching.radius is not None:
        outside = steps.abs() > torch.tensor(matching.radius, device=steps.device)
        d2 = d2.masked_fill(outside.any(1), torch.inf)
    return d2


def match_rows(query: Tensor, source: Tensor, k: int, own: bool, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows of `source` (m, f) for every row of `query` (n, f), by (distance, source index).

    Squared distances are sums over the columns in turn, in float64. With `own`, row i itself comes first.
    Returns neighbors (n, k) int32 and squared distances (n, k) float64. Cost: O(n m f) time, O(m f) memory.
    """
    n, f = query.shape
    here, there = query.to(torch.float64), source.to(torch.float64)
    neighbors = torch.empty(n, k, dtype=torch.int32, device=query.device)
    distances = torch.empty(n, k, dtype=torch.float64, device=query.device)
    for i in range(n):
        d2 = torch.zeros(len(there), dtype=torch.float64, device=query.device)
        for column in range(f):
            d2 = d2 + (there[:, column] - here[i, column]).square()
        if own:
            d2[i] = -1
        distances[i], order = (part[:k] for part in torch.sort(d2, stable=True))
        neighbors[i] = order
        if progress is not None and i % 1024 == 0:
            progress(i / n)
    return neighbors, distances.clamp_(min=0)


def window_neighbors(features: Tensor, k: int, radius: int, exclude: int) -> Tensor:
    """Find the `k` most similar vertices of every vertex inside its window: largest inner product first.

    Along an axis of length n the window of the vertex at `y` is `top, ..., top + side - 1` with
    `side = min(2 radius + 1, n)` and `top = min(max(y - radius, 0), n - side)`: near a border it is shifted inwards.
    Candidates with `|dy| <= exclude` and `|dx| <= exclude` are left out; -1 leaves out none. Ties go to the smaller
    index. Two candidates whose inner products differ by less than the rounding of a float32 sum may change places.

    Parameters
    ----------
    features : Tensor, (b, h, w, f) float32

    Returns
    -------
    neighbors (b h w, k) int32, where vertex (y, x) of picture i has the number `(i h + y) w + x`.
    Cost: O(b h w radius^2 f) time.
    """
    b, h, w, _ = features.shape
    sides = [min(2 * radius + 1, n) for n in (h, w)]
    neighbors = torch.empty(b, h, w, k, dtype=torch.int32, device=features.device)
    for i, y, x in torch.cartesian_prod(torch.arange(b), torch.arange(h), torch.arange(w)).tolist():
        top, left = min(max(y - radius, 0), h - sides[0]), min(max(x - radius, 0), w - sides[1])
        window = features[i, top : top + sides[0], left : left + sides[1]]
        rows = torch.arange(top, top + sides[0], device=features.device).unsqueeze(1)
        columns = torch.arange(left, left + sides[1], device=features.device)
        near = ((rows - y).abs() <= exclude) & ((columns - x).abs() <= exclude)
        similarity = (window * features[i, y, x]).sum(-1).masked_fill(near, -torch.inf)
        order = similarity.reshape(-1).argsort(descending=True, stable=True)[:k]
        neighbors[i, y, x] = ((i * h + rows) * w + columns).reshape(-1)[order]
    return neighbors.view(-1, k)
