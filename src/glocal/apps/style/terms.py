"""The terms of the objective. Each is called with the image (n, 3) and returns a number to minimise.

The image is float64. Both the networks and the total variation have kinks, where the gradient jumps. The side of a kink
is decided in float64. Smooth parts are computed in the dtype of the term's own tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.apps.style.networks import Network, mean_gram, mean_one
from glocal.graph import Graph
from glocal.nn.functional import gram_pullback, shared_conv, shared_conv_transposed, total_variation, variation_slope


@dataclass(frozen=True, eq=False)
class ColorFrame:
    """An affine change of colours `z = (x - mean) whiten`, undone by `x = z color + mean`; x is Lab / 100."""

    mean: Tensor
    whiten: Tensor
    color: Tensor
    upright: bool = True  # both matrices are the identity

    def seen(self, x: Tensor) -> Tensor:
        """Convert Lab / 100 to the colours of the networks."""
        return x - self.mean if self.upright else (x - self.mean) @ self.whiten

    def back(self, z: Tensor) -> Tensor:
        """Convert the colours of the networks to Lab / 100."""
        return z + self.mean if self.upright else z @ self.color + self.mean


def color_frame(paintings: list[Tensor], weights: list[float], mode: str) -> ColorFrame:
    """Return the frame of the paintings (each (..., 3), Lab / 100), in float64: "plain", "centred" or "white" (unit covariance)."""
    flat = [p.reshape(-1, 3).double() for p in paintings]
    mean = sum((w * p.mean(0) for w, p in zip(weights, flat, strict=True)), torch.zeros(3).to(flat[0]))
    one = torch.eye(3).to(mean)
    if mode == "plain":
        return ColorFrame(torch.zeros_like(mean), one, one)
    if mode == "centred":
        return ColorFrame(mean, one, one)
    second = sum((w * (p.T @ p) / len(p) for w, p in zip(weights, flat, strict=True)), torch.zeros(3, 3).to(flat[0]))
    values, vectors = torch.linalg.eigh(second - torch.outer(mean, mean))
    spread = values.clamp(min=1e-4).sqrt()  # a gray painting has no colour variance to divide by
    whiten, color = (vectors / spread) @ vectors.T, (vectors * spread) @ vectors.T
    return ColorFrame(mean, whiten, color, upright=False)


@dataclass(frozen=True, eq=False)
class GramDistance:
    """The term `|F'F / n - target|^2`, where `F` are the maps of `network` on `graph` (equation 10).

    With `shares` (r, n) it is the mean over r regions, each with its own `target` (r, m, m). A region counts by its
    size, so the pull on a pixel does not depend on the size of its region.
    """

    network: Network
    graph: Graph
    target: Tensor
    shares: Tensor | None = None

    def __call__(self, z: Tensor) -> Tensor:
        """Return the value at z (n, 3), in the colours of the networks."""
        away = mean_gram(z, self.graph, self.network, self.shares) - self.target
        return (self._sizes() * away.square()).sum()

    def value_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and its gradient."""
        n, shares = self.graph.num_vertices, None if self.shares is None else mean_one(self.shares)
        gram, back = gram_pullback(z, self.graph, self.network.filters, self.network.bias, shares)
        away, sizes = gram / n - self.target, self._sizes()
        return (sizes * away.square()).sum(), back(sizes * away * (2 / n))

    def _sizes(self) -> Tensor | float:
        """Return the fraction of the picture that each region has, (r, 1, 1)."""
        return 1.0 if self.shares is None else (self.shares.sum(1) / self.shares.sum()).view(-1, 1, 1)


@dataclass(frozen=True, eq=False)
class TotalVariation:
    """The term `sum |x_i - x_j|` over adjacent pixels and the three channels of Lab / 100."""

    shape: tuple[int, int]
    frame: ColorFrame

    def __call__(self, z: Tensor) -> Tensor:
        """Return the value at z (n, 3), in the colours of the networks."""
        image = z if self.frame.upright else z @ self.frame.color
        return total_variation(image.view(*self.shape, 3))

    def value_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and its gradient."""
        image = z if self.frame.upright else z @ self.frame.color
        value, slope = variation_slope(image.view(*self.shape, 3))
        gradient = slope.view(-1, 3)
        return value, gradient if self.frame.upright else gradient @ self.frame.color.T


@dataclass(frozen=True, eq=False)
class Anchor:
    """The anchor `mean |(A^reach (x - target)) * channels|^2`: averages over similar pixels of the photo follow `target`.

    `A` averages over the most similar pixels of the photo. Strokes inside an area average out, so they are free. Edges
    of the photo separate the averages, so they are preserved. `target` (n, 3) is Lab / 100. `channels` (3,) are the
    weights of luminance and colour, and `share` (n,) the weights of the pixels.
    """

    graph: Graph
    target: Tensor
    channels: Tensor
    frame: ColorFrame
    reach: int = 1
    share: Tensor | None = None

    def __call__(self, z: Tensor) -> Tensor:
        """Return the value at z (n, 3), in the colours of the networks."""
        away = self._averaged(z)
        return (away.square() if self.share is None else away.square() * self.share.unsqueeze(1)).sum() / len(z)

    @torch.no_grad()
    def value_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and its gradient `2 / n A'^reach (share A^reach (x - target) channels) channels`."""
        away = self._averaged(z)
        slope = away if self.share is None else away * self.share.unsqueeze(1)
        value = (slope * away).sum() / len(z)
        graph, taps = self.graph, self._taps(away)
        for _ in range(self.reach):
            slope = shared_conv_transposed(slope, graph, taps)
        gradient = slope * (self.channels * (2 / len(z)))
        return value, gradient if self.frame.upright else gradient @ self.frame.color.T.to(gradient)

    def _averaged(self, z: Tensor) -> Tensor:
        away = (self.frame.back(z) - self.target).to(self.channels) * self.channels
        taps = self._taps(away)
        for _ in range(self.reach):
            away = shared_conv(away, self.graph, taps)
        return away

    def _taps(self, like: Tensor) -> Tensor:
        return torch.full((self.graph.degree,), 1 / self.graph.degree, dtype=like.dtype, device=like.device)
