"""Give one set of colours the mean and covariance of another, by the map that moves them least (Monge-Kantorovich)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_LEAST = 1e-2  # variance, in squared Lab units, below which a channel counts as constant


def matched(image: Tensor, others: Sequence[Tensor], weights: Sequence[float], *, least: float = _LEAST) -> Tensor:
    """Map `image` (..., c) linearly so that its mean and covariance are the weighted ones of `others`.

    Of all such maps it is the one that moves colours least:
    `T = A^-1/2 (A^1/2 B A^1/2)^1/2 A^-1/2` for the covariances `A` of the image and `B` of the others.

    Parameters
    ----------
    image : Tensor, (..., c)
        Colours.
    others : sequence of Tensor, (..., c)
        The images whose statistics it gets.
    weights : sequence of float
        One for each of `others`, with the sum 1.
    least : float
        Eigenvalues of a covariance are at least this: an image of one colour has no inverse covariance.

    Returns
    -------
    Tensor, (..., c)
        Cost: O(pixels c^2).

    Examples
    --------
    >>> matched(torch.tensor([[0.0], [2.0]]), [torch.tensor([[5.0], [9.0]])], [1.0])
    tensor([[5.],
            [9.]])
    """
    mean, here = moments([image], [1.0])
    goal, there = moments(others, weights)
    root, inverse = _power(here, 0.5, least), _power(here, -0.5, least)
    change = inverse @ _power(root @ there @ root, 0.5, least) @ inverse
    return (image - mean.to(image)) @ change.to(image) + goal.to(image)


def moments(images: Sequence[Tensor], weights: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return mean (c,) and covariance (c, c) of the pixels of weighted images, float64 on the CPU."""
    c = images[0].shape[-1]
    mean, second = torch.zeros(c, dtype=torch.float64), torch.zeros(c, c, dtype=torch.float64)
    for image, weight in zip(images, weights, strict=True):
        flat = image.reshape(-1, c).double()
        mean += weight * flat.mean(0).cpu()
        second += weight * (flat.T @ flat / len(flat)).cpu()
    return mean, second - torch.outer(mean, mean)


def _power(matrix: Tensor, power: float, least: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=least).pow(power)) @ vectors.T
