"""The paper's initialisations of a layer."""

from __future__ import annotations

import torch

from glocal.nn.conv import GraphConv


@torch.no_grad()
def standard_normal(layer: GraphConv, generator: torch.Generator) -> GraphConv:
    """Draw filters and biases independently from N(0, 1), for style and colour transfer. Returns the layer.

    The numbers are drawn on the CPU, so one seed gives the same layer on every device.
    """
    for parameter in (layer.filters, layer.bias):
        if parameter is not None:
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


@torch.no_grad()
def mean_and_noise(
    layer: GraphConv, generator: torch.Generator, *, std: float = 0.01, each_map: bool = False
) -> GraphConv:
    """Set one filter to the constant `1/d` and draw the others from N(0, std^2), for denoising. Returns the layer.

    This filter goes from channel 0 to map 0. With `each_map` there is one from channel `j` to map `j` for every `j`
    that is both a channel and a map, so that each map starts near the mean over the neighbours. Biases are set to 0.
    """
    layer.filters.copy_(torch.randn(layer.filters.shape, generator=generator, dtype=torch.float64) * std)
    degree, channels, maps = layer.filters.shape
    for j in range(min(channels, maps) if each_map else 1):
        layer.filters[:, j, j] = 1 / degree
    if layer.bias is not None:
        layer.bias.zero_()
    return layer
