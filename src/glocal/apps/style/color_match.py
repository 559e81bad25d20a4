"""Colour statistics: giving one image the mean and covariance of others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_LEAST = 1e-2  # variance, in squared Lab units, below which a channel counts as constant


def matched(image: Tensor, others: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Map `image` (..., c) linearly so that its mean and covariance are the weighted ones of `others`.

    Of all such maps it is the one that moves colours least (Monge-Kantorovich):
    `T = A^-1/2 (A^1/2 B A^1/2)^1/2 A^-1/2` for the covariances `A` of the image and `B` of the others.
    Cost: O(pixels c^2).
    """
    mean, covariance = moments([image], [1.0])
    goal_mean, goal = moments(others, weights)
    root = _power(covariance, 0.5)
    inverse = _power(covariance, -0.5)
    change = inverse @ _power(root @ goal @ root, 0.5) @ inverse
    return (image - mean.to(image)) @ change.to(image) + goal_mean.to(image)


def moments(images: Sequence[Tensor], weights: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Mean (c,) and covariance (c, c) of the pixels of weighted images, float64 on the CPU."""
    c = images[0].shape[-1]
    mean, second = torch.zeros(c, dtype=torch.float64), torch.zeros(c, c, dtype=torch.float64)
    for image, weight in zip(images, weights, strict=True):
        flat = image.reshape(-1, c).double()
        mean += weight * flat.mean(0).cpu()
        second += weight * (flat.T @ flat / len(flat)).cpu()
    return mean, second - torch.outer(mean, mean)


def _power(matrix: Tensor, power: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=_LEAST).pow(power)) @ vectors.T
