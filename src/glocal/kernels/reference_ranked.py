"""What layers on a window graph compute: similarities of neighbours, and a convolution over differences to the vertex.

Plain, differentiable torch: the definition that the fast kernels are tested against.
"""

from __future__ import annotations

from torch import Tensor


def similarities(x: Tensor, neighbors: Tensor) -> Tensor:
    """Compute `s_il = <x_i, x_j>`, `j = neighbors[i, l]`: x (n, c), neighbors (n, k) -> (n, k). Cost O(n k c)."""
    return (_gather(x, neighbors) * x.unsqueeze(1)).sum(2)


def weighted_differences(x: Tensor, neighbors: Tensor, weights: Tensor) -> Tensor:
    """Compute `w_il (x_j - x_i)`: x (n, c), neighbors and weights (n, k) -> (n, k, c). Cost O(n k c)."""
    return weights.unsqueeze(2) * (_gather(x, neighbors) - x.unsqueeze(1))


def ranked_conv(x: Tensor, neighbors: Tensor, weights: Tensor, filters: Tensor) -> Tensor:
    """Compute `y_i = sum_l w_il (x_j - x_i) H_l`: filters (k, c, m) -> (n, m). Cost O(n k c m) time, O(n k c) memory."""
    return weighted_differences(x, neighbors, weights).flatten(1) @ filters.flatten(0, 1)


def _gather(x: Tensor, neighbors: Tensor) -> Tensor:
    return x.index_select(0, neighbors.reshape(-1)).view(*neighbors.shape, -1)
