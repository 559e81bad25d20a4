"""The paper's ways to fill a layer."""

from __future__ import annotations

import torch

from glocal.nn.conv import GraphConv


@torch.no_grad()
def standard_normal(layer: GraphConv, generator: torch.Generator) -> GraphConv:
    """Draw filters and biases independently from N(0, 1): style and colour transfer. Returns the layer.

    Drawn on the CPU, so one seed means one layer on every device.
    """
    for parameter in (layer.filters, layer.bias):
        if parameter is not None:
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


@torch.no_grad()
def mean_and_noise(layer: GraphConv, generator: torch.Generator, *, std: float = 0.01) -> GraphConv:
    """Make the filter from channel 0 to map 0 the constant `1/d`, draw the others from N(0, std^2): denoising.

    Returns the layer. Biases start at 0.
    """
    layer.filters.copy_(torch.randn(layer.filters.shape, generator=generator, dtype=torch.float64) * std)
    layer.filters[:, 0, 0] = 1 / layer.filters.shape[0]
    if layer.bias is not None:
        layer.bias.zero_()
    return layer
