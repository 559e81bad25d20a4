"""The graph convolution and related operations as functions without their own parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal.errors import ArgumentError, DeviceError
from glocal.graph import Graph
from glocal.kernels import gram_ops, known, lattice_ops, ops

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def graph_conv(x: Tensor, graph: Graph, filters: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute the graph convolution `y[i, m] = b_m + sum_(l, c) g_il x[j_l, c] h[l, c, m]` (equations 5 to 7).

    The non-linearity of equation 7 is separate.

    Parameters
    ----------
    x : Tensor, (s, c) or (batch, s, c)
        The signal on the s sources of the graph; s = n unless the graph joins two signals.
    graph : Graph
        `j_l = graph.neighbors[i, l]` and `g_il = graph.weights[i, l]` (1 if the graph has no weights).
    filters : Tensor, (d, c, m)
        One tap for each column, input channel and output map.
    bias : Tensor, (m,), optional
        One number for each output map.

    Returns
    -------
    Tensor, (n, m) or (batch, n, m)
        Differentiable in `x`, `filters`, `bias` and `graph.weights`. Cost: O(n d c m) time. The fast backends need
        O(n (c + m)) memory in addition to the result.

    Raises
    ------
    ArgumentError, DeviceError
        If shapes, dtypes or devices do not fit together.

    Examples
    --------
    >>> import torch
    >>> from glocal import grid_graph
    >>> graph_conv(torch.tensor([[1.0], [2.0], [4.0]]), grid_graph((3,), boundary="zero"), torch.ones(3, 1, 1)).T
    tensor([[3., 7., 6.]])
    """
    _check("graph_conv", x, graph, filters)
    if filters.ndim != 3 or filters.shape[0] != graph.degree or filters.shape[1] != x.shape[-1]:
        message = (
            f"graph_conv: `filters` (shape {tuple(filters.shape)}) must be (d={graph.degree}, c={x.shape[-1]}, m). "
            "Match the graph's degree and the signal's channels."
        )
        raise ArgumentError(message)
    if bias is not None:
        _check_bias(x, filters, bias)
    if _is_empty_batch(x):
        return _empty_batch((graph.num_vertices, filters.shape[2]), x, graph.weights, filters, bias)
    if (lattice := graph.convolution) is not None:
        return lattice_ops.lattice_conv(x, filters, lattice, bias)
    y: Tensor = ops.graph_conv(x, graph.neighbors, _like(graph.weights, x), filters, bias=bias)
    return y


def shared_conv(x: Tensor, graph: Graph, taps: Tensor) -> Tensor:
    """Compute `y[i, c] = sum_l g_il x[j_l, c] h[l]`: equation 6 with one filter for all channels.

    This is the middle layer of the paper's image denoiser.

    Parameters
    ----------
    x : Tensor, (s, c) or (batch, s, c)
        The signal on the sources of the graph.
    graph : Graph
        As in `graph_conv`.
    taps : Tensor, (d,)
        The filter.

    Returns
    -------
    Tensor, (n, c) or (batch, n, c)
        Differentiable in `x`, `taps` and `graph.weights`. Cost: O(n d c).

    Examples
    --------
    >>> import torch
    >>> from glocal import grid_graph
    >>> shared_conv(torch.tensor([[1.0], [2.0], [4.0]]), grid_graph((3,), boundary="zero"), torch.ones(3)).T
    tensor([[3., 7., 6.]])
    """
    _check("shared_conv", x, graph, taps)
    if taps.ndim != 1 or taps.shape[0] != graph.degree:
        message = (
            f"shared_conv: `taps` (shape {tuple(taps.shape)}) must be (d={graph.degree},). Match the graph's degree."
        )
        raise ArgumentError(message)
    if _is_empty_batch(x):
        return _empty_batch((graph.num_vertices, x.shape[2]), x, graph.weights, taps)
    if (lattice := graph.convolution) is not None:
        return lattice_ops.lattice_shared(x, taps, lattice)
    y: Tensor = ops.shared_conv(x, graph.neighbors, _like(graph.weights, x), taps)
    return y


@torch.no_grad()
def shared_conv_transposed(y: Tensor, graph: Graph, taps: Tensor) -> Tensor:
    """Apply the transpose of `shared_conv`: `x[j, c] = sum over (i, l) with j_l = j of g_il y[i, c] h[l]`.

    It is the gradient of `shared_conv` with respect to its signal, for losses with a known gradient.

    Parameters
    ----------
    y : Tensor, (n, c)
        A signal on the vertices of the graph.
    graph, taps
        As in `shared_conv`.

    Returns
    -------
    Tensor, (s, c)
        A signal on the sources of the graph. Cost: O(n d c).

    Examples
    --------
    >>> from glocal import grid_graph
    >>> shared_conv_transposed(torch.tensor([[1.0], [2.0], [4.0]]), grid_graph((3,), boundary="reflect"), torch.ones(3)).T
    tensor([[ 3., 12.,  6.]])
    """
    sources = y.new_empty(1, graph.num_sources, y.shape[-1])  # only its shape counts
    neighbors, weights = graph.neighbors, _like(graph.weights, y)
    x: Tensor = ops.shared_conv_backward(y.unsqueeze(0), sources, neighbors, weights, taps, (True, False, False))[0]
    return x.squeeze(0)


def extract(x: Tensor, graph: Graph) -> Tensor:
    """Extract patches `p[i, l, c] = g_il x[j_l, c]` (equation 5), for layers of your own.

    Parameters
    ----------
    x : Tensor, (s, c) or (batch, s, c)
        The signal on the sources of the graph.
    graph : Graph
        As in `graph_conv`.

    Returns
    -------
    Tensor, (n, d, c) or (batch, n, d, c)
        Differentiable in `x` and `graph.weights`. Cost: O(n d c) time and memory; `graph_conv` avoids that memory.

    Examples
    --------
    >>> import torch
    >>> from glocal import grid_graph
    >>> extract(torch.tensor([[1.0], [2.0], [4.0]]), grid_graph((3,), boundary="zero"))[:, :, 0]
    tensor([[0., 1., 2.],
            [1., 2., 4.],
            [2., 4., 0.]])
    """
    _check("extract", x, graph, x)
    if _is_empty_batch(x):
        return _empty_batch((graph.num_vertices, graph.degree, x.shape[2]), x, graph.weights)
    p: Tensor = ops.extract(x, graph.neighbors, _like(graph.weights, x))
    return p


def gram(x: Tensor, graph: Graph, filters: Tensor, bias: Tensor, vertex_weights: Tensor | None = None) -> Tensor:
    """Compute the Gram matrix `F'F` of the maps `F = max(0, conv(x) + bias)` in one pass: x (s, c) -> (m, m).

    With `vertex_weights` (n,) the result is `F' diag(vertex_weights) F`, which selects or weighs vertices. With weights
    (r, n) there is one such matrix for each of r regions, (r, m, m), and the maps are computed once for all of them.

    The result is differentiable in `x`, and through `graph_conv` also in the other arguments.
    Cost: O(n m (d c + m)) time, O(n m) memory. A lattice is treated like any other graph: on the CPU one pass is faster there
    than a dense convolution and a product (`glocal bench conv`).
    """
    _check_gram(x, graph, filters, bias)
    shares = _regions(vertex_weights, graph, filters)
    if any(p is not None and p.requires_grad for p in (graph.weights, filters, bias, vertex_weights)):
        maps = torch.relu(graph_conv(x, graph, filters) + bias)
        found = maps.T @ maps if shares is None else maps.T @ (maps * shares.unsqueeze(2))
    else:
        found = gram_ops.gram(x, graph.neighbors, _like(graph.weights, x), filters, bias, shares)[0].to(x.dtype)
    return found[0] if vertex_weights is not None and vertex_weights.ndim == 1 else found


def gram_pullback(
    x: Tensor, graph: Graph, filters: Tensor, bias: Tensor, vertex_weights: Tensor | None = None
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the Gram matrix in float64 and a function that computes the gradient with respect to `x`.

    The function takes the gradient of a loss with respect to the Gram matrix, (m, m), and returns the gradient with
    respect to `x`. Use it for losses with a known gradient. With `vertex_weights` (r, n) both are (r, m, m), one matrix
    for each region, as in `gram`.

    `x` may be float64 while the filters are float32. This keeps the speed of float32. It also prevents that rounding
    moves a map to the wrong side of 0, where the gradient jumps. The gradient has the dtype of the filters.

    Examples
    --------
    >>> import torch
    >>> from glocal import grid_graph
    >>> g, back = gram_pullback(torch.ones(3, 1), grid_graph((3,), size=1), torch.ones(1, 1, 1), torch.zeros(1))
    >>> float(g), back(torch.ones(1, 1)).T
    (3.0, tensor([[2., 2., 2.]]))
    """
    _check_gram(x, graph, filters, bias, wider=True)
    neighbors, weights, shares = (
        graph.neighbors,
        _like(graph.weights, filters),
        _regions(vertex_weights, graph, filters),
    )
    flat = vertex_weights is not None and vertex_weights.ndim == 1
    with torch.no_grad():
        total, maps = gram_ops.gram(x, neighbors, weights, filters, bias, shares)

    @torch.no_grad()
    def back(g: Tensor) -> Tensor:
        gx: Tensor = gram_ops.gram_backward(g[None] if flat else g, maps, x, neighbors, weights, filters, shares)
        return gx

    return total[0] if flat else total, back


def _regions(vertex_weights: Tensor | None, graph: Graph, like: Tensor) -> Tensor | None:
    """Return the weights (n,) or (r, n) of `gram` as (r, n), in the dtype of the layer."""
    if vertex_weights is None:
        return None
    _check_tensor("gram: `vertex_weights`", vertex_weights)
    if vertex_weights.ndim not in (1, 2) or vertex_weights.shape[-1] != graph.num_vertices or not len(vertex_weights):
        message = (
            f"gram: `vertex_weights` {tuple(vertex_weights.shape)} must be (n={graph.num_vertices},) or (r, n). "
            "Give one per vertex, or one per vertex for each region."
        )
        raise ArgumentError(message)
    return vertex_weights.to(like).reshape(-1, graph.num_vertices)


def _is_empty_batch(x: Tensor) -> bool:
    """Whether there are no signals, as in the last batch of a data set that was filtered."""
    return x.ndim == 3 and x.shape[0] == 0


def _empty_batch(shape: tuple[int, ...], x: Tensor, *others: Tensor | None) -> Tensor:
    """Return a result (0, *shape); all that it is computed from gets a gradient of 0."""
    zero = sum((value.sum() for value in (x, *others) if value is not None), x.new_zeros(()))
    kind = torch.get_autocast_dtype(x.device.type) if _autocast(x) and x.dtype == torch.float32 else x.dtype
    return (x.new_zeros(0, *shape) + zero).to(kind)


def _check_bias(x: Tensor, filters: Tensor, bias: Tensor) -> None:
    _check_tensor("graph_conv: `bias`", bias)
    if bias.shape != filters.shape[2:] or bias.dtype != filters.dtype or bias.device != x.device:
        message = (
            f"graph_conv: `bias` ({tuple(bias.shape)}, {bias.dtype} on {bias.device}) must be (m={filters.shape[2]},), "
            f"{filters.dtype} on {x.device}. Give one number for each map, like the filters."
        )
        raise ArgumentError(message)


def _check_gram(x: Tensor, graph: Graph, filters: Tensor, bias: Tensor, *, wider: bool = False) -> None:
    _check("gram", x, graph, filters, wider=wider)
    _check_tensor("gram: `bias`", bias)
    if x.ndim != 2 or filters.shape[:2] != (graph.degree, x.shape[-1]) or bias.shape != filters.shape[2:]:
        message = (
            f"gram: x {tuple(x.shape)}, `filters` {tuple(filters.shape)} and `bias` {tuple(bias.shape)} must be "
            f"(n, c), (d={graph.degree}, c, m) and (m,). Check the layer."
        )
        raise ArgumentError(message)


def total_variation(image: Tensor) -> Tensor:
    """Sum `|x_i - x_j|` over adjacent pixels and all channels of an image (h, w, c). Differentiable. Cost: O(h w c).

    >>> import torch
    >>> total_variation(torch.tensor([[[0.0], [2.0]], [[0.0], [2.0]]]))
    tensor(4.)
    """
    value: Tensor = gram_ops.variation(image)[0]
    return value


@torch.no_grad()
def variation_slope(image: Tensor) -> tuple[Tensor, Tensor]:
    """Return `total_variation` and its gradient, for losses with a known gradient."""
    value, slope = gram_ops.variation(image)
    return value, slope


def reverse(graph: Graph) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to: `(start (s + 1,), edges (n d,))`, computed once per graph.

    `edges[start[j] : start[j + 1]]` are the flat positions of `j` in `graph.neighbors`, in increasing order.
    Backward passes gather over this list. That is faster than a scatter and gives the same bits in every run.
    """
    return known.reverse(graph.neighbors, graph.num_sources)


def _check(caller: str, x: Tensor, graph: Graph, parameters: Tensor, *, wider: bool = False) -> None:
    """Check the arguments that all operations share."""
    if not isinstance(graph, Graph):
        message = (
            f"{caller}: `graph` is a {type(graph).__name__}, not a Graph. Build one with grid_graph or patch_graph."
        )
        raise ArgumentError(message)
    if not isinstance(x, Tensor) or x.dtype not in _DTYPES:
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        message = (
            f"{caller}: the signal must be a float32, float64, bfloat16 or float16 tensor, got {found}. "
            "Convert with .to(torch.float32)."
        )
        raise ArgumentError(message)
    _check_tensor(f"{caller}: the filters", parameters)
    if 0 in (*x.shape[-2:], *parameters.shape[-2:]):
        message = (
            f"{caller}: the signal {tuple(x.shape)} or the filters {tuple(parameters.shape)} are empty. "
            "Give at least one vertex and one channel."
        )
        raise ArgumentError(message)
    if x.ndim not in (2, 3) or x.shape[-2] != graph.num_sources:
        message = (
            f"{caller}: the signal (shape {tuple(x.shape)}) must be (n, c) or (batch, n, c) with n={graph.num_sources}. "
            "Use the graph that was built for it."
        )
        raise ArgumentError(message)
    if x.device != graph.device or x.device != parameters.device:
        message = (
            f"{caller}: the signal is on {x.device}, the graph on {graph.device}, the filters on {parameters.device}. "
            "Move all to one device."
        )
        raise DeviceError(message)
    if x.dtype != parameters.dtype and not (wider and x.dtype == torch.float64) and not _autocast(x):
        message = f"{caller}: the signal is {x.dtype}, the filters are {parameters.dtype}. Convert one with .to(dtype)."
        raise ArgumentError(message)


def _check_tensor(what: str, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        message = f"{what} must be a tensor, got {type(value).__name__}. Convert with torch.as_tensor."
        raise ArgumentError(message)


def _autocast(x: Tensor) -> bool:
    """Whether autocast is on, so that the operators choose the dtype."""
    return torch.is_autocast_enabled(x.device.type)


def _like(weights: Tensor | None, x: Tensor) -> Tensor | None:
    return None if weights is None else weights.to(x.dtype)
