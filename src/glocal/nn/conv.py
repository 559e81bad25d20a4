"""`GraphConv` and its one-filter form: modules that hold the parameters of the functions in `glocal.nn.functional`."""

from __future__ import annotations

from typing import SupportsIndex

import torch
from torch import Tensor, nn

from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.nn import functional


class GraphConv(nn.Module):
    """Convolve a signal on a graph (equation 7 without the non-linearity).

    `y = graph_conv(x, graph, filters, bias)` with filters (degree, in_channels, out_channels): one filter of `degree`
    taps for each pair of input channel and output map. On a grid graph this is the ordinary convolution. On a patch
    graph it is non-local. Filters are initialised uniformly in +-1/sqrt(d c), as in `torch.nn.Conv2d`, and biases
    with 0; `glocal.nn.init` has the paper's choices.

    Parameters
    ----------
    in_channels, out_channels, degree : int
        `c`, `m` and `d`.
    bias : bool
        Whether to add one learned number to each map.
    device, dtype : optional
        The device and dtype of the parameters, as in `torch.nn`.

    Examples
    --------
    >>> import glocal
    >>> layer = GraphConv(3, 50, degree=25)
    >>> layer(torch.rand(64, 3), glocal.grid_graph((8, 8), size=5)).shape
    torch.Size([64, 50])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        degree: int,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not all(isinstance(size, SupportsIndex) and int(size) > 0 for size in (in_channels, out_channels, degree)):
            message = (
                f"GraphConv: in_channels (={in_channels}), out_channels (={out_channels}) and degree (={degree}) "
                "must be positive whole numbers. Check the order of the arguments."
            )
            raise ArgumentError(message)
        self.in_channels, self.out_channels, self.degree = in_channels, out_channels, degree
        self.filters = nn.Parameter(torch.empty(degree, in_channels, out_channels, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new filters and set the bias to 0."""
        bound = (self.degree * self.in_channels) ** -0.5
        nn.init.uniform_(self.filters, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Map x (n, c) or (batch, n, c) to (n, m) or (batch, n, m). Cost: O(n d c m)."""
        if isinstance(graph, Graph) and graph.degree != self.degree:
            raise _other_degree("GraphConv", self.degree, graph)
        if isinstance(x, Tensor) and x.ndim > 1 and x.shape[-1] != self.in_channels:
            message = (
                f"GraphConv: the layer takes {self.in_channels} channels, the signal (shape {tuple(x.shape)}) has "
                f"{x.shape[-1]}. Check the last axis."
            )
            raise ArgumentError(message)
        return functional.graph_conv(x, graph, self.filters, self.bias)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.in_channels}, {self.out_channels}, degree={self.degree}, bias={self.bias is not None}"


class SharedGraphConv(nn.Module):
    """Convolve all channels with one filter of `degree` taps (the non-local layer of the paper's image denoiser).

    The initial filter is `1/d`, the mean of the neighbours. `device` and `dtype` are those of the filter, as in
    `torch.nn`.

    >>> import glocal
    >>> SharedGraphConv(9)(torch.ones(16, 18), glocal.grid_graph((4, 4), size=3)).shape
    torch.Size([16, 18])
    """

    def __init__(
        self, degree: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        if not isinstance(degree, SupportsIndex) or int(degree) < 1:
            message = (
                f"SharedGraphConv: degree (={degree}) must be a positive whole number. Use the degree of the graph."
            )
            raise ArgumentError(message)
        self.degree = degree
        self.taps = nn.Parameter(torch.empty(degree, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the filter to the mean of the neighbours."""
        nn.init.constant_(self.taps, 1 / self.degree)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Map x (n, c) or (batch, n, c) to the same shape. Cost: O(n d c)."""
        if isinstance(graph, Graph) and graph.degree != self.degree:
            raise _other_degree("SharedGraphConv", self.degree, graph)
        return functional.shared_conv(x, graph, self.taps)

    def extra_repr(self) -> str:
        """Show the degree."""
        return f"degree={self.degree}"


def _other_degree(layer: str, degree: int, graph: Graph) -> ArgumentError:
    return ArgumentError(
        f"{layer}: the layer has degree {degree}, the graph {graph.degree}. "
        "Build the graph with that many neighbours or make another layer."
    )
