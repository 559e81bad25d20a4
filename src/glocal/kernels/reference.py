"""The definition of every kernel, in plain torch and a page long. Slow, short, right; the fast backends equal it.

Neighbour search compares squared distances bit by bit, so the order of the float32 additions is part of the
definition: `window_sum` says it. Every backend follows it and fused multiply-adds are not used, so every backend finds
the same neighbours, ties included. `reverse` is the reversed graph that fast backward passes gather over; autograd
does without it here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Reverse = tuple[Tensor, Tensor]


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
    planes: Tensor,
    k: int,
    patch: tuple[int, int],
    coords: float,
    radius: int | None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches of every pixel: itself, then by (squared distance, vertex index).

    `d2(i, j) = sum_(v, u in patch) sum_c (x_c[i + (v, u)] - x_c[j + (v, u)])^2 + coords^2 |i - j|^2`

    Parameters
    ----------
    planes : Tensor, (c, h + ph - 1, w + pw - 1) float32
        The channels, already padded by half a patch on each side.
    radius : int or None
        Only candidates with `|dy| <= radius` and `|dx| <= radius`; None means the whole image.

    Returns
    -------
    neighbors (n, k) int32 and squared distances (n, k) float32. Cost: O(n^2 c patch) time, O(n patch c) memory.
    """
    n = (planes.shape[1] - patch[0] + 1) * (planes.shape[2] - patch[1] + 1)
    neighbors = torch.empty(n, k, dtype=torch.int32, device=planes.device)
    distances = torch.empty(n, k, dtype=torch.float32, device=planes.device)
    for i in range(n):
        d2 = patch_distances(planes, i, patch, coords, radius)
        d2[i] = -1  # the vertex itself always comes first
        distances[i], order = (part[:k] for part in torch.sort(d2, stable=True))
        neighbors[i] = order
        if progress is not None and i % 1024 == 0:
            progress(i / n)
    return neighbors, distances.clamp_(min=0)


def patch_distances(planes: Tensor, i: int, patch: tuple[int, int], coords: float, radius: int | None) -> Tensor:
    """Compute `d2(i, j)` for one vertex `i` and all `j`, (n,) float32; infinite outside the search window."""
    c, ph, pw = planes.shape[0], *patch
    w = planes.shape[2] - pw + 1
    cells = planes.unfold(1, ph, 1).unfold(2, pw, 1).flatten(1, 2)  # (c, n, ph, pw)
    j = torch.arange(cells.shape[1], device=planes.device)
    dy, dx = j // w - i // w, j % w - i % w
    squares = (cells[0] - cells[0, i]).square()
    for channel in range(1, c):
        squares = squares + (cells[channel] - cells[channel, i]).square()
    factor = torch.tensor(coords * coords, dtype=torch.float32, device=planes.device)
    d2 = window_sum(window_sum(squares, ph, 1), pw, 2)[:, 0, 0]
    d2 = d2 + factor * (dy * dy + dx * dx).to(torch.float32)
    if radius is not None:
        d2 = d2.masked_fill((dy.abs() > radius) | (dx.abs() > radius), torch.inf)
    return d2


def knn(features: Tensor, k: int, progress: Callable[[float], None] | None = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows of every row: itself, then by (squared distance in float64, vertex index).

    Returns neighbors (n, k) int32 and squared distances (n, k) float64. Cost: O(n^2 f) time, O(n f) memory.
    """
    n, f = features.shape
    wide = features.to(torch.float64)
    neighbors = torch.empty(n, k, dtype=torch.int32, device=features.device)
    distances = torch.empty(n, k, dtype=torch.float64, device=features.device)
    for i in range(n):
        d2 = torch.zeros(n, dtype=torch.float64, device=features.device)
        for column in range(f):
            d2 = d2 + (wide[:, column] - wide[i, column]).square()
        d2[i] = -1
        distances[i], order = (part[:k] for part in torch.sort(d2, stable=True))
        neighbors[i] = order
        if progress is not None and i % 1024 == 0:
            progress(i / n)
    return neighbors, distances.clamp_(min=0)


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None, reverse: Reverse | None = None) -> Tensor:
    """Equation 5: `p_l(i, x) = g(w_i, j_l) x[j_l]`, from x (b, n, c) to patches (b, n, d, c). Differentiable."""
    patches = x.index_select(1, neighbors.reshape(-1)).unflatten(1, neighbors.shape)
    return patches if weights is None else patches * weights.unsqueeze(-1)


def graph_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, reverse: Reverse | None = None
) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, n, c), filters (d, c, m) -> (b, n, m). Differentiable."""
    return torch.einsum("bndc,dcm->bnm", extract(x, neighbors, weights), filters)


def shared_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, reverse: Reverse | None = None
) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, n, c) -> (b, n, c). Differentiable."""
    return torch.einsum("bndc,d->bnc", extract(x, neighbors, weights), taps)


def gram(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor, reverse: Reverse | None = None
) -> Tensor:
    """Gram matrix `F'F` of the maps `F = max(0, conv(x) + bias)`: x (n, c) -> (m, m). Differentiable."""
    maps = torch.relu(graph_conv(x.unsqueeze(0), neighbors, weights, filters).squeeze(0) + bias)
    return maps.T @ maps


def gram_pullback(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """`gram`, and a function that makes of a gradient of it, (m, m), that of x, in the precision of the filters."""
    point = x.detach().requires_grad_(True)
    wide = None if weights is None else weights.to(x)
    with torch.enable_grad():
        found = gram(point, neighbors, wide, filters.to(x), bias.to(x))
    return found.detach(), lambda g: torch.autograd.grad(found, point, g.to(x))[0].to(filters)


def variation(image: Tensor) -> Tensor:
    """Total variation `sum |x_i - x_j|` over adjacent pixels and all channels of an image (h, w, c). Differentiable."""
    return (image[1:] - image[:-1]).abs().sum() + (image[:, 1:] - image[:, :-1]).abs().sum()


def variation_slope(image: Tensor) -> tuple[Tensor, Tensor]:
    """`variation` and its gradient, the sums of the signs of `x_i - x_j`."""
    point = image.detach().requires_grad_(True)
    with torch.enable_grad():
        value = variation(point)
    return value.detach(), torch.autograd.grad(value, point)[0]


def products(vectors: Tensor, some: list[int]) -> Tensor:
    """Inner products of all vectors (r, n) with some of them: (r, len(some)), float64 on the CPU."""
    return torch.stack([vectors @ vectors[row] for row in some], 1).to("cpu", torch.float64)


def combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """`sum_r factors[r] vectors[r]`: (n,). The factors are float64 on the CPU."""
    return factors.to(vectors) @ vectors


def reverse(neighbors: Tensor) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to: `edges[start[j] : start[j + 1]]` are those with target `j`.

    Edge `i * d + l` is column `l` of vertex `i`; the edges of one target come in increasing order.
    Returns start (n + 1,) int64 and edges (n d,) int64. Cost: O(n d log(n d)).
    """
    targets = neighbors.reshape(-1).long()
    count = torch.bincount(targets, minlength=neighbors.shape[0])
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return start, torch.argsort(targets, stable=True)
