"""Two common methods as baselines: both are one affine map of the chrominances."""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.color_match import matched


def reinhard(ab: Tensor, reference: Tensor) -> Tensor:
    """Match the mean and the standard deviation of each channel (Reinhard et al. 2001), here of `ab` in Lab.

    `y = (x - mean_x) std_s / std_x + mean_s`; a constant channel is only shifted. ab (n, 2), reference (k, 2) -> (n, 2).

    >>> reinhard(torch.tensor([[0.0, 1.0], [2.0, 1.0]]), torch.tensor([[5.0, 0.0], [9.0, 0.0]]))
    tensor([[5., 0.],
            [9., 0.]])
    """
    mean, goal = ab.mean(0), reference.mean(0)
    spread = ab.std(0, correction=0)
    scale = torch.where(spread > 0, reference.std(0, correction=0) / spread.clamp(min=1e-12), 1.0)
    return (ab - mean) * scale + goal


def linear_monge(ab: Tensor, reference: Tensor) -> Tensor:
    """Match the mean and the covariance by the linear Monge-Kantorovitch map (Pitie and Kokaram 2007).

    `y = A (x - mean_x) + mean_s` with `A = S_x^-1/2 (S_x^1/2 S_s S_x^1/2)^1/2 S_x^-1/2`, the unique symmetric positive
    map that takes one Gaussian to the other at the least cost. ab (n, 2), reference (k, 2) -> (n, 2).

    >>> x = torch.randn(500, 2, dtype=torch.float64)
    >>> y = linear_monge(x, x @ torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64))
    >>> bool((y - x @ torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)).abs().max() < 1e-6)
    True
    """
    return matched(ab, [reference], [1.0], least=1e-8)
