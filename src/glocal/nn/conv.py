"""`GraphConv` and its one-filter form: thin shells that hold the parameters of `glocal.nn.functional`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.nn import functional


class GraphConv(nn.Module):
    """Equation 7 before the non-linearity: a filter of `degree` taps for each pair of input channel and output map.

    `y = graph_conv(x, graph, filters) + bias`, filters (degree, in_channels, out_channels).
    On a grid graph this is the ordinary convolution; on a patch graph it is non-local.

    Parameters
    ----------
    in_channels, out_channels, degree : int
        `c`, `m` and `d`.
    bias : bool
        Add one number to each map.

    Filters start uniform in +-1/sqrt(d c), as `torch.nn.Conv2d` does; `glocal.nn.init` has the paper's choices.

    >>> import glocal
    >>> layer = GraphConv(3, 50, degree=25)
    >>> layer(torch.rand(64, 3), glocal.grid_graph((8, 8), size=5)).shape
    torch.Size([64, 50])
    """

    def __init__(self, in_channels: int, out_channels: int, degree: int, *, bias: bool = True) -> None:
        super().__init__()
        if min(in_channels, out_channels, degree) < 1:
            message = (
                f"GraphConv: in_channels (={in_channels}), out_channels (={out_channels}) and degree (={degree}) "
                "must be positive. Check the order of the arguments."
            )
            raise ArgumentError(message)
        bound = (degree * in_channels) ** -0.5
        self.filters = nn.Parameter(torch.empty(degree, in_channels, out_channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """x (n, c) or (batch, n, c) -> (n, m) or (batch, n, m); cost O(n d c m)."""
        degree, channels, _ = self.filters.shape
        if isinstance(graph, Graph) and graph.degree != degree:
            message = (
                f"GraphConv: the layer has degree {degree}, the graph {graph.degree}. "
                "Build the graph with that many neighbours or make another layer."
            )
            raise ArgumentError(message)
        if x.shape[-1] != channels:
            message = f"GraphConv: the layer takes {channels} channels, the signal (shape {tuple(x.shape)}) has {x.shape[-1]}. Check the last axis."
            raise ArgumentError(message)
        y = functional.graph_conv(x, graph, self.filters)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """Name the sizes."""
        degree, channels, maps = self.filters.shape
        return f"{channels}, {maps}, degree={degree}, bias={self.bias is not None}"


class SharedGraphConv(nn.Module):
    """One filter of `degree` taps, shared by all channels (the non-local layer of the paper's image denoiser).

    It starts as the mean `1/d` of the neighbours.

    >>> import glocal
    >>> SharedGraphConv(9)(torch.ones(16, 18), glocal.grid_graph((4, 4), size=3)).shape
    torch.Size([16, 18])
    """

    def __init__(self, degree: int) -> None:
        super().__init__()
        if degree < 1:
            message = f"SharedGraphConv: degree (={degree}) must be positive. Use the degree of the graph."
            raise ArgumentError(message)
        self.taps = nn.Parameter(torch.full((degree,), 1 / degree))

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """x (n, c) or (batch, n, c) -> the same shape; cost O(n d c)."""
        if isinstance(graph, Graph) and graph.degree != len(self.taps):
            message = (
                f"SharedGraphConv: the layer has degree {len(self.taps)}, the graph {graph.degree}. "
                "Build the graph with that many neighbours or make another layer."
            )
            raise ArgumentError(message)
        return functional.shared_conv(x, graph, self.taps)

    def extra_repr(self) -> str:
        """Name the size."""
        return f"degree={len(self.taps)}"
