"""Graph convolution over neighbours that are ordered by similarity, with learned weights.

The neighbours come from `glocal.window_graph`. Their order is the pseudo-coordinate: tap `l` meets the `l`-th most similar
vertex. The weights are a softmax over the vertex and its neighbours, so dissimilar neighbours get little weight.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.kernels import window_ops
from glocal.nn.residual import Device, added, conv3x3, start_residual


class RankedGraphConv(nn.Module):
    """Convolve the weighted differences between ranked neighbours and their vertex.

    `y_i = sum_l w_il (u_j - u_i) H_l`, `u = x V`, `j = neighbors[i, l]`,
    `w_i = softmax(0, ..., t (s_il - 1) + r_l, ...)` over the vertex itself (similarity 1, logit 0) and its neighbours.

    The layer learns `value` V (channels, in_channels), `filters` H (degree, channels, out_channels), the temperature `t`
    and one logit `r_l` for each rank. Because it uses differences, its output is 0 where all neighbours are equal to
    their vertex.

    Parameters
    ----------
    in_channels, out_channels, degree : int
        `c`, `m` and the number of neighbours `k`.
    channels : int
        The number of channels of `u`.
    temperature : float
        The initial value of `t`.
    device, dtype : optional
        The device and dtype of the parameters, as in `torch.nn`.

    Examples
    --------
    >>> import glocal
    >>> x = torch.rand(1, 8, 8, 4)
    >>> window = glocal.window_graph(x / x.norm(dim=-1, keepdim=True), radius=3, k=5, exclude=1)
    >>> RankedGraphConv(4, 6, degree=5)(x.reshape(64, 4), *window).shape
    torch.Size([64, 6])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        degree: int,
        *,
        channels: int = 32,
        temperature: float = 8.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "degree": degree, "channels": channels}
        for name, size in sizes.items():
            if size < 1:
                message = f"RankedGraphConv: `{name}` (={size}) must be positive. Check the order of the arguments."
                raise ArgumentError(message)
        self.in_channels, self.out_channels, self.degree = in_channels, out_channels, degree
        self.start = float(temperature)
        self.value = nn.Parameter(torch.empty(channels, in_channels, device=device, dtype=dtype))
        self.filters = nn.Parameter(torch.empty(degree, channels, out_channels, device=device, dtype=dtype))
        self.temperature = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
        self.logits = nn.Parameter(torch.empty(degree, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new filters, and set the temperature and the logits to their initial values."""
        degree, channels, _ = self.filters.shape
        with torch.no_grad():
            self.value.normal_().mul_(self.in_channels**-0.5)
            self.filters.normal_().mul_((degree * channels) ** -0.5)
            self.temperature.fill_(self.start)
            self.logits.zero_()

    def forward(self, x: Tensor, graph: Graph, similarities: Tensor) -> Tensor:
        """Map x (n, c), a graph and its similarities (n, k) to (n, m).

        Cost: O(n (c + k m) channels) time, O(n k channels) memory.
        """
        if not isinstance(graph, Graph):
            message = f"RankedGraphConv: `graph` is a {type(graph).__name__}, not a Graph. Build one with window_graph."
            raise ArgumentError(message)
        if graph.degree != self.degree:
            message = (
                f"RankedGraphConv: the layer has degree {self.degree}, the graph {graph.degree}. "
                "Build the graph with that many neighbours or make another layer."
            )
            raise ArgumentError(message)
        _check_shape("x", x, "(n, c)", (graph.num_vertices, self.in_channels))
        _check_shape("similarities", similarities, "(n, k)", (graph.num_vertices, self.degree))
        u = x @ self.value.to(x.dtype).t()
        weights = rank_weights(similarities, self.temperature, self.logits).to(x.dtype)
        return window_ops.ranked_conv(u, graph.neighbors, weights, self.filters.to(x.dtype))

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.in_channels}, {self.out_channels}, degree={self.degree}, channels={len(self.value)}"


def _check_shape(name: str, value: Tensor, axes: str, shape: tuple[int, int]) -> None:
    if not isinstance(value, Tensor) or value.shape != shape:
        found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        message = (
            f"RankedGraphConv: `{name}` ({found}) must be a tensor {axes} = {shape}. "
            "Use the graph and the similarities that window_graph gives for this signal."
        )
        raise ArgumentError(message)


def rank_weights(similarities: Tensor, temperature: Tensor, logits: Tensor) -> Tensor:
    """Turn similarities (n, k) of unit vectors into weights (n, k) by a softmax that includes the vertex itself.

    >>> rank_weights(torch.ones(1, 3), torch.ones(1), torch.zeros(3))
    tensor([[0.2500, 0.2500, 0.2500]])
    """
    dtype = torch.promote_types(similarities.dtype, torch.float32)
    scores = temperature.to(dtype) * (similarities.to(dtype) - 1) + logits.to(dtype)
    if scores.device.type != "cpu":
        return torch.softmax(nn.functional.pad(scores, (1, 0)), 1)[:, 1:]
    largest = (
        scores.detach().amax(1, keepdim=True).clamp(min=0)
    )  # the same; torch's softmax of short rows is slow on a CPU
    parts = (scores - largest).exp()
    return parts / (parts.sum(1, keepdim=True) + (-largest).exp())


class GraphResidualBlock(nn.Module):
    """A residual block whose first layer reads the 3 x 3 neighbourhood and similar places of the picture.

    `x + conv(relu(conv(x) + ranked(x)))`: (b, c, h, w) and the window graph of its b h w vertices -> (b, c, h, w).

    >>> import glocal
    >>> x = torch.rand(1, 4, 8, 8)
    >>> window = glocal.window_graph(torch.rand(1, 8, 8, 3), radius=3, k=5, exclude=1)
    >>> GraphResidualBlock(4, degree=5)(x, *window).shape
    torch.Size([1, 4, 8, 8])
    """

    def __init__(
        self,
        channels: int,
        degree: int,
        *,
        width: int = 32,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = self.out_channels = channels
        self.first = conv3x3(channels, channels, device=device, dtype=dtype)
        self.similar = RankedGraphConv(channels, channels, degree, channels=width, device=device, dtype=dtype)
        self.second = conv3x3(channels, channels, device=device, dtype=dtype)
        start_residual(self.first, self.second)

    def reset_parameters(self) -> None:
        """Draw new filters; the block is then near the identity."""
        self.similar.reset_parameters()
        start_residual(self.first, self.second)

    def forward(self, x: Tensor, graph: Graph, similarities: Tensor) -> Tensor:
        """Add the output of the two layers to x. Cost: O(n c^2)."""
        b, c, h, w = x.shape
        rows = x.permute(0, 2, 3, 1).reshape(-1, c)
        similar = self.similar(rows, graph, similarities).view(b, h, w, c).permute(0, 3, 1, 2)
        return added(x, self.second(self.first(x).add_(similar).relu_()))
