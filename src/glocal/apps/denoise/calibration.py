"""Calibration of brightness: a network must not shift values outside its training range.

The networks were trained on values in [0, 1] at their own noise level. At lower noise, homogeneity scales the values up, and
colour differences have both signs. For such values a network maps a flat area of value `v` to `v + bias(v)`. This module
measures the bias once on flat areas and subtracts it from every result.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.apps.denoise.networks import ImageDenoiser
from glocal.graph import Graph

_SIDE = 40
_POINTS = 17


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A network, a constant added before and subtracted after it, and its bias at equally spaced results.

    `denoised = found - bias(found)`, `found = net(y + offset) - offset`; `bias` is linear between its points and constant
    outside of them.
    """

    net: ImageDenoiser
    offset: float
    low: float
    high: float
    bias: Tensor

    def __call__(self, noisy: Tensor, graphs: dict[str, Graph]) -> Tensor:
        """Denoise (batch, n, 1). Cost: that of the network and O(n)."""
        found = self.net(noisy + self.offset, graphs) - self.offset
        place = ((found - self.low) * ((len(self.bias) - 1) / (self.high - self.low))).clamp(0, len(self.bias) - 1)
        left = place.floor().clamp(max=len(self.bias) - 2)
        index = left.to(torch.int64)
        below, above = self.bias[index], self.bias[index + 1]
        return found - (below + (above - below) * (place - left))


@torch.no_grad()
def calibrated(net: ImageDenoiser, *, low: float, high: float, offset: float = 0.0) -> Calibrated:
    """Measure the bias of a network for flat areas with noise, from `low` to `high`. Cost: 17 pictures of 40 x 40."""
    device = net.analysis.filters.device
    high = max(high, low + 1e-3)
    noise = torch.randn(_SIDE, _SIDE, generator=torch.Generator().manual_seed(0)).to(device)
    noise = (noise - noise.mean()) * (net.sigma / noise.std())
    graphs = net.graphs(noise)  # a constant does not change the similarities
    values = torch.linspace(low, high, _POINTS, device=device)
    flat = (values.view(-1, 1, 1) + offset + noise.view(1, -1, 1)).contiguous()
    found = net(flat, graphs).mean(1)[:, 0] - offset
    return Calibrated(net, offset, low, high, found - values)
