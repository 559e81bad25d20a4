"""The most similar vertices inside a window, by batched matrix products: for every device.

The lattice is cut into square tiles. The windows of a tile's vertices lie in one larger square, so one matrix product
for each tile gives all their similarities, and about as many again that are masked.
"""

from __future__ import annotations

import torch
from torch import Tensor

TILE = 8  # side of a tile: larger ones make better products and mask more of them
_AT_ONCE = {"cuda": 1 << 27}  # similarities at a time
_AT_ONCE_ELSEWHERE = 1 << 22


def window_neighbors(features: Tensor, k: int, radius: int, exclude: int) -> Tensor:
    """Find the `k` most similar vertices inside a window; the contract is `reference_search.window_neighbors`.

    Cost: O(b h w (radius + TILE)^2 f) time; memory O(b h w (f + k)) and a fixed amount of similarities.
    """
    b, h, w, f = features.shape
    device = features.device
    rows, columns = (tile_axis(n, radius, device) for n in (h, w))
    flat = features.reshape(b * h * w, f)
    neighbors = torch.empty(b * h * w, k, dtype=torch.int32, device=device)
    tiles = torch.cartesian_prod(torch.arange(b), torch.arange(len(rows[0])), torch.arange(len(columns[0]))).to(device)
    area = rows[0].shape[1] * columns[0].shape[1] * rows[1].shape[1] * columns[1].shape[1]
    for part in tiles.split(max(1, _AT_ONCE.get(device.type, _AT_ONCE_ELSEWHERE) // area)):
        i, r, c = part.unbind(1)
        here = _vertices(i, rows[0][r], columns[0][c], h, w)
        there = _vertices(i, rows[1][r], columns[1][c], h, w)
        similarity = flat[here] @ flat[there].transpose(1, 2)
        reach = [_reach(here // w % h, there // w % h, h, radius), _reach(here % w, there % w, w, radius)]
        steps = [_steps(here // w % h, there // w % h), _steps(here % w, there % w)]
        outside = ~(reach[0] & reach[1]) | ((steps[0] <= exclude) & (steps[1] <= exclude))
        neighbors[here] = _largest(similarity.masked_fill(outside, -torch.inf), there, k)
    return neighbors


def tile_axis(n: int, radius: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cut an axis into tiles: the vertices of each, (tiles, size), and those in their windows, (tiles, span)."""
    size = min(TILE, n)
    starts = torch.arange(0, n, size, device=device).clamp(max=n - size)
    span = min(size + 2 * radius, n)
    first = (starts - radius).clamp(min=0, max=n - span)
    return (
        starts.unsqueeze(1) + torch.arange(size, device=device),
        first.unsqueeze(1) + torch.arange(span, device=device),
    )


def _vertices(i: Tensor, rows: Tensor, columns: Tensor, h: int, w: int) -> Tensor:
    """Return the vertex numbers of rectangles, (tiles, area)."""
    return (((i.view(-1, 1) * h + rows).unsqueeze(2)) * w + columns.unsqueeze(1)).flatten(1)


def _steps(here: Tensor, there: Tensor) -> Tensor:
    return (there.unsqueeze(1) - here.unsqueeze(2)).abs()


def _reach(here: Tensor, there: Tensor, n: int, radius: int) -> Tensor:
    """Say which of `there` are in the shifted windows of `here` along one axis."""
    side = min(2 * radius + 1, n)
    first = (here - radius).clamp(min=0, max=n - side).unsqueeze(2)
    return (there.unsqueeze(1) >= first) & (there.unsqueeze(1) < first + side)


def _largest(similarity: Tensor, there: Tensor, k: int) -> Tensor:
    """Choose the `k` largest of each row, ties by smaller index: of keys with the similarity above and the index below."""
    bits = (similarity + 0.0).view(torch.int32)  # + 0.0: no negative zeros
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers that sort as the floats do
    keys = (ordered.long() << 32) | (0x7FFFFFFF - there.unsqueeze(1))
    return (0x7FFFFFFF - (keys.topk(k, dim=2).values & 0x7FFFFFFF)).to(torch.int32)
