"""The definition of the neighbour searches, in plain torch. Slow, short, right; the fast backends equal it."""

from __future__ import annotations

import torch
from torch import Tensor


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
