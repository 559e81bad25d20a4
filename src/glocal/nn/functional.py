"""The graph convolution as a function: everything `GraphConv` does, without parameters of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal.errors import ArgumentError, DeviceError
from glocal.graph import Graph
from glocal.kernels import select


def graph_conv(x: Tensor, graph: Graph, filters: Tensor) -> Tensor:
    """Equations 5 to 7 without bias and non-linearity: `y[i, m] = sum_(l, c) g_il x[j_l, c] h[l, c, m]`.

    Parameters
    ----------
    x : Tensor, (n, c) or (batch, n, c)
        The signal, float32 or float64.
    graph : Graph
        `j_l = graph.neighbors[i, l]` and `g_il = graph.weights[i, l]` (1 where the graph has no weights).
    filters : Tensor, (d, c, m)
        One tap for each column, input channel and output map.

    Returns
    -------
    Tensor, (n, m) or (batch, n, m), differentiable in `x`, `filters` and `graph.weights`.
    Cost: O(n d c m) time; the fast backends need O(n (c + m)) memory beside the result.

    >>> import torch
    >>> from glocal import grid_graph
    >>> graph_conv(torch.tensor([[1.0], [2.0], [4.0]]), grid_graph((3,), boundary="zero"), torch.ones(3, 1, 1)).T
    tensor([[3., 7., 6.]])
    """
    batched = _checked("graph_conv", x, graph, filters)
    if filters.ndim != 3 or filters.shape[:2] != (graph.degree, x.shape[-1]):
        message = (
            f"graph_conv: `filters` (shape {tuple(filters.shape)}) must be (d={graph.degree}, c={x.shape[-1]}, m). "
            "Match the graph's degree and the signal's channels."
        )
        raise ArgumentError(message)
    weights = _like(graph.weights, x)
    y: Tensor = select.pick("graph_conv", x.device)(batched, graph.neighbors, weights, filters, reverse(graph))
    return y if x.ndim == 3 else y.squeeze(0)


def shared_conv(x: Tensor, graph: Graph, taps: Tensor) -> Tensor:
    """Equation 6 with one filter for all channels: `y[i, c] = sum_l g_il x[j_l, c] h[l]`.

    The middle layer of the paper's image denoiser. x (n, c) or (batch, n, c), taps (d,) -> the shape of x.
    Cost: O(n d c).
    """
    batched = _checked("shared_conv", x, graph, taps)
    if taps.shape != (graph.degree,):
        message = (
            f"shared_conv: `taps` (shape {tuple(taps.shape)}) must be (d={graph.degree},). Match the graph's degree."
        )
        raise ArgumentError(message)
    y: Tensor = select.pick("shared_conv", x.device)(
        batched, graph.neighbors, _like(graph.weights, x), taps, reverse(graph)
    )
    return y if x.ndim == 3 else y.squeeze(0)


def extract(x: Tensor, graph: Graph) -> Tensor:
    """Equation 5, for layers of your own: x (n, c) or (batch, n, c) -> patches (n, d, c) or (batch, n, d, c).

    Cost: O(n d c) time and memory; `graph_conv` avoids that memory.
    """
    batched = _checked("extract", x, graph, x)
    p: Tensor = select.pick("extract", x.device)(batched, graph.neighbors, _like(graph.weights, x), reverse(graph))
    return p if x.ndim == 3 else p.squeeze(0)


def gram(x: Tensor, graph: Graph, filters: Tensor, bias: Tensor) -> Tensor:
    """Gram matrix `F'F` of the maps `F = max(0, conv(x) + bias)`, in one pass: x (n, c) -> (m, m).

    Differentiable in `x`. Cost: O(n m (d c + m)) time, O(n m) memory.
    """
    _check_gram(x, graph, filters, bias)
    weights = _like(graph.weights, x)
    others = any(p is not None and p.requires_grad for p in (weights, filters, bias))
    back = reverse(graph) if others else None  # the gradient of x alone does without
    g: Tensor = select.pick("gram", x.device)(x, graph.neighbors, weights, filters, bias, back)
    return g


def gram_pullback(x: Tensor, graph: Graph, filters: Tensor, bias: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """`gram`, and a function that makes of a gradient of it, (m, m), that of x: for losses that know their gradient.

    The Gram matrix may come in float64, where the backend has summed it so. `x` may be in float64 where the filters are
    in float32: float32 speed, but on the CPU no map on the wrong side of 0 by rounding, where the gradient jumps; it is
    float32.

    >>> import torch
    >>> from glocal import grid_graph
    >>> g, back = gram_pullback(torch.ones(3, 1), grid_graph((3,), size=1), torch.ones(1, 1, 1), torch.zeros(1))
    >>> float(g), back(torch.ones(1, 1)).T
    (3.0, tensor([[2., 2., 2.]]))
    """
    _check_gram(x, graph, filters, bias, wider=True)
    found: tuple[Tensor, Callable[[Tensor], Tensor]] = select.pick("gram_pullback", x.device)(
        x, graph.neighbors, _like(graph.weights, filters), filters, bias
    )
    return found


def _check_gram(x: Tensor, graph: Graph, filters: Tensor, bias: Tensor, *, wider: bool = False) -> None:
    _checked("gram", x, graph, filters, wider=wider)
    if x.ndim != 2 or filters.shape[:2] != (graph.degree, x.shape[-1]) or bias.shape != filters.shape[2:]:
        message = (
            f"gram: x {tuple(x.shape)}, `filters` {tuple(filters.shape)} and `bias` {tuple(bias.shape)} must be "
            f"(n, c), (d={graph.degree}, c, m) and (m,). Check the layer."
        )
        raise ArgumentError(message)


def total_variation(image: Tensor) -> Tensor:
    """`sum |x_i - x_j|` over adjacent pixels and all channels of an image (h, w, c). Differentiable. Cost: O(h w c).

    >>> import torch
    >>> total_variation(torch.tensor([[[0.0], [2.0]], [[0.0], [2.0]]]))
    tensor(4.)
    """
    value: Tensor = select.pick("variation", image.device)(image)
    return value


def variation_slope(image: Tensor) -> tuple[Tensor, Tensor]:
    """`total_variation` and its gradient, for losses that know theirs."""
    found: tuple[Tensor, Tensor] = select.pick("variation_slope", image.device)(image)
    return found


def _checked(caller: str, x: Tensor, graph: Graph, parameters: Tensor, *, wider: bool = False) -> Tensor:
    if not isinstance(graph, Graph):
        message = (
            f"{caller}: `graph` is a {type(graph).__name__}, not a Graph. Build one with grid_graph or patch_graph."
        )
        raise ArgumentError(message)
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64):
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        message = (
            f"{caller}: the signal must be a float32 or float64 tensor, got {kind}. Convert with .to(torch.float32)."
        )
        raise ArgumentError(message)
    if x.numel() == 0 or parameters.numel() == 0:
        message = f"{caller}: the signal {tuple(x.shape)} or the filters {tuple(parameters.shape)} are empty. Give both some numbers."
        raise ArgumentError(message)
    if x.ndim not in (2, 3) or x.shape[-2] != graph.num_vertices:
        message = (
            f"{caller}: the signal (shape {tuple(x.shape)}) must be (n, c) or (batch, n, c) with n={graph.num_vertices}. "
            "Use the graph that was built for it."
        )
        raise ArgumentError(message)
    if x.device != graph.device or x.device != parameters.device:
        message = (
            f"{caller}: the signal lies on {x.device}, the graph on {graph.device}, the filters on {parameters.device}. "
            "Move all to one device."
        )
        raise DeviceError(message)
    if x.dtype != parameters.dtype and not (wider and x.dtype == torch.float64):
        message = f"{caller}: the signal is {x.dtype}, the filters are {parameters.dtype}. Convert one with .to(dtype)."
        raise ArgumentError(message)
    return x if x.ndim == 3 else x.unsqueeze(0)


def reverse(graph: Graph) -> tuple[Tensor, Tensor]:
    """The edges listed by the vertex they point to: `(start (n + 1,), edges (n d,))`, made once for each graph.

    `edges[start[j] : start[j + 1]]` are the flat positions in `graph.neighbors` that hold `j`, in increasing order.
    The backward pass gathers over it, which is faster than a scatter and gives the same bits in every run.
    """
    if "reverse" not in graph.memo:
        graph.memo["reverse"] = select.pick("reverse", graph.device)(graph.neighbors)
    found: tuple[Tensor, Tensor] = graph.memo["reverse"]
    return found


def _like(weights: Tensor | None, x: Tensor) -> Tensor | None:
    return None if weights is None else weights.to(x.dtype)
