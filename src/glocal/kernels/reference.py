"""The definition of every kernel, in plain torch and a page long. Slow, short, right; the fast backends equal it.

Neighbour search compares squared distances bit by bit, so the order of the float32 additions is part of the
definition: `window_sum` says it. Every backend follows it and fused multiply-adds are not used, so every backend finds
the same neighbours, ties included.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
    planes: Tensor, k: int, patch: tuple[int, int], coords: float, radius: int | None
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
    c, ph, pw = planes.shape[0], *patch
    h, w = planes.shape[1] - ph + 1, planes.shape[2] - pw + 1
    n = h * w
    cells = planes.unfold(1, ph, 1).unfold(2, pw, 1).reshape(c, n, ph, pw)
    y, x = torch.arange(n, device=planes.device) // w, torch.arange(n, device=planes.device) % w
    factor = torch.tensor(coords * coords, dtype=torch.float32, device=planes.device)
    neighbors = torch.empty(n, k, dtype=torch.int32, device=planes.device)
    distances = torch.empty(n, k, dtype=torch.float32, device=planes.device)
    for i in range(n):
        squares = (cells[0] - cells[0, i]).square()
        for channel in range(1, c):
            squares = squares + (cells[channel] - cells[channel, i]).square()
        d2 = window_sum(window_sum(squares, ph, 1), pw, 2)[:, 0, 0]
        dy, dx = y - y[i], x - x[i]
        d2 = d2 + factor * (dy * dy + dx * dx).to(torch.float32)
        if radius is not None:
            d2 = d2.masked_fill((dy.abs() > radius) | (dx.abs() > radius), torch.inf)
        d2[i] = -1  # the vertex itself always comes first
        distances[i], order = (part[:k] for part in torch.sort(d2, stable=True))
        neighbors[i] = order
    return neighbors, distances.clamp_(min=0)


def knn(features: Tensor, k: int) -> tuple[Tensor, Tensor]:
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
    return neighbors, distances.clamp_(min=0)


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None) -> Tensor:
    """Equation 5: `p_l(i, x) = g(w_i, j_l) x[j_l]`, from x (b, n, c) to patches (b, n, d, c). Differentiable."""
    patches = x.index_select(1, neighbors.reshape(-1)).unflatten(1, neighbors.shape)
    return patches if weights is None else patches * weights.unsqueeze(-1)


def graph_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, n, c), filters (d, c, m) -> (b, n, m). Differentiable."""
    return torch.einsum("bndc,dcm->bnm", extract(x, neighbors, weights), filters)


def shared_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, n, c) -> (b, n, c). Differentiable."""
    return torch.einsum("bndc,d->bnc", extract(x, neighbors, weights), taps)


def reverse(neighbors: Tensor) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to: `edges[start[j] : start[j + 1]]` are those with target `j`.

    Edge `i * d + l` is column `l` of vertex `i`; the edges of one target come in increasing order.
    Returns start (n + 1,) int64 and edges (n d,) int64. Cost: O(n d log(n d)).
    """
    targets = neighbors.reshape(-1).long()
    count = torch.bincount(targets, minlength=neighbors.shape[0])
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return start, torch.argsort(targets, stable=True)
