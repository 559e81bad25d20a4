"""The differentiable kernels on the CPU, compiled by Numba. What they compute is said in `reference`.

Patches are gathered block by block into the cache and never stored; the backward pass gathers them again. Gradients of
the signal are sums over in-edges: over the reversed graph, or block by block into copies that are then added in a fixed
order. No cut of the work depends on the number of threads, so every run gives the same bits on any number of threads.

All functions take float32 or float64 tensors of one type. Gradients are computed for those inputs that need one; they
are not themselves differentiable, and asking for it is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from glocal.kernels.cpu import launch

Reverse = tuple[Tensor, Tensor]


def graph_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, reverse: Reverse) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, n, c), filters (d, c, m) -> (b, n, m). Differentiable.

    `y[i, :] = sum_l w_il x[j_l, :] filters[l]`. Cost: O(b n d c m) time; memory beyond the result O(d c m) forward,
    and backward, for the gradient of x, at most O(b n c).

    >>> x, neighbors = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> graph_conv(x, neighbors, None, torch.tensor([[[2.0]], [[1.0]]]), reverse(neighbors))
    tensor([[[12.],
             [21.]]])
    """
    return _GraphConv.apply(x, neighbors, weights, filters, *reverse)


def shared_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, reverse: Reverse) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, n, c) -> (b, n, c). Differentiable.

    `y[i, :] = sum_l taps[l] w_il x[j_l, :]`. Cost: O(b n d c) time, O(n d) memory beyond the result.

    >>> x, neighbors = torch.tensor([[[1.0, 2.0], [10.0, 20.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> shared_conv(x, neighbors, None, torch.tensor([2.0, 1.0]), reverse(neighbors))
    tensor([[[12., 24.],
             [21., 42.]]])
    """
    return _SharedConv.apply(x, neighbors, weights, taps, *reverse)


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None, reverse: Reverse) -> Tensor:
    """Equation 5: `p_l(i, x) = w_il x[j_l]`, from x (b, n, c) to patches (b, n, d, c). Differentiable.

    Cost: O(b n d c) time and memory: the patches are what is asked for. `graph_conv` does without them.

    >>> x, neighbors = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> extract(x, neighbors, None, reverse(neighbors)).tolist()
    [[[[1.0], [10.0]], [[10.0], [1.0]]]]
    """
    return _Extract.apply(x, neighbors, weights, *reverse)


def gram(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor, reverse: Reverse | None = None
) -> Tensor:
    """Gram matrix `F'F` of the maps `F = max(0, conv(x) + bias)`: x (n, c) -> (m, m). Differentiable.

    Cost: O(n m (d c + m)) time; memory O(n m), the maps. Where only x needs a gradient, this is one pass over blocks of
    vertices each way; otherwise, and only then `reverse` is needed, it is composed of `graph_conv` and torch's product.

    >>> x, neighbors = torch.tensor([[1.0], [10.0]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> gram(x, neighbors, None, torch.tensor([[[2.0]], [[1.0]]]), torch.tensor([-20.0]), reverse(neighbors))
    tensor([[1.]])
    """
    if any(p is not None and p.requires_grad for p in (weights, filters, bias)):
        assert reverse is not None
        maps = torch.relu(graph_conv(x.unsqueeze(0), neighbors, weights, filters, reverse).squeeze(0) + bias)
        return maps.T @ maps
    return _Gram.apply(x, neighbors, weights, filters, bias)


def gram_pullback(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """`gram`, and a function that makes of a gradient of it, (m, m), that of x: the same without autograd's own work.

    The Gram matrix comes in float64: what is subtracted from it next is often nearly as large. For x in float64 and the
    rest in float32 it is computed in float32, but for what decides whether a map is positive: a rounding error there
    changes the gradient by a jump. The gradient comes in float32.
    """
    total, maps = launch.gram_forward(x, neighbors, weights, filters, bias)
    return total, lambda g: launch.gram_backward(x, neighbors, weights, filters, maps, g)


def variation(image: Tensor) -> Tensor:
    """Total variation `sum |x_i - x_j|` over adjacent pixels and all channels of an image (h, w, c). Differentiable.

    The slope is found on the way: one pass over the image, where autograd takes some twenty. Cost: O(h w c).

    >>> float(variation(torch.tensor([[[0.0], [2.0]]])))
    2.0
    """
    return cast(Tensor, _Variation.apply(image))


def variation_slope(image: Tensor) -> tuple[Tensor, Tensor]:
    """`variation` and its gradient, the sums of the signs of `x_i - x_j`, in one pass."""
    return launch.variation(image)


def products(vectors: Tensor, some: list[int]) -> Tensor:
    """Inner products of all vectors (r, n) with some of them: (r, len(some)), float64. Cost: one pass over the vectors."""
    return launch.products(vectors, some)


def combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """`sum_r factors[r] vectors[r]`: (n,). Cost: one pass over the vectors whose factor is not 0."""
    return launch.combine(factors, vectors)


def reverse(neighbors: Tensor) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to: `edges[start[j] : start[j + 1]]` are those with target `j`.

    Edge `i * d + l` is column `l` of vertex `i`; the edges of one target come in increasing order.
    Returns start (n + 1,) int64 and edges (n d,), int32 where n d allows. Cost: O(n d), a counting sort.

    >>> start, edges = reverse(torch.tensor([[0, 1], [1, 1]], dtype=torch.int32))
    >>> start.tolist(), edges.tolist()
    ([0, 1, 4], [0, 1, 2, 3])
    """
    return launch.reverse(neighbors)


class _GraphConv(Function):
    """`graph_conv` and its three gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor,
                start: Tensor, edges: Tensor) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, neighbors, weights, filters, start, edges)
        return launch.forward(x, neighbors, weights, filters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, filters, start, edges = ctx.saved_tensors
        needs_x, _, needs_weights, needs_filters, *_ = ctx.needs_input_grad
        needs = needs_x, needs_weights, needs_filters
        gx, gw, gf = launch.backward(x, neighbors, weights, filters, (start, edges), g, needs)
        return gx, None, gw, gf, None, None


class _SharedConv(Function):
    """`shared_conv` and its three gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor,
                start: Tensor, edges: Tensor) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, neighbors, weights, taps, start, edges)
        return launch.shared_forward(x, neighbors, weights, taps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, taps, start, edges = ctx.saved_tensors
        needs_x, _, needs_weights, needs_taps, *_ = ctx.needs_input_grad
        gx = launch.gather_back(x, weights, taps, (start, edges), g) if needs_x else None
        gw = gt = None
        if needs_weights or needs_taps:
            products = launch.edge_products(x, neighbors, g, patches=False)
            gt = launch.tap_sums(products, weights) if needs_taps else None
            gw = products * taps if needs_weights else None
        return gx, None, gw, gt, None, None


class _Extract(Function):
    """`extract` and its two gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, start: Tensor, edges: Tensor) -> Tensor:
        ctx.save_for_backward(x, neighbors, weights, start, edges)
        return launch.extract(x, neighbors, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, start, edges = ctx.saved_tensors
        needs_x, _, needs_weights, *_ = ctx.needs_input_grad
        gx = launch.gather_back(x, weights, None, (start, edges), g) if needs_x else None
        gw = launch.edge_products(x, neighbors, g, patches=True) if needs_weights else None
        return gx, None, gw, None, None


class _Gram(Function):
    """`gram` and its gradient for x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor
    ) -> Tensor:
        total, maps = launch.gram_forward(x, neighbors, weights, filters, bias)
        ctx.save_for_backward(x, neighbors, weights, filters, torch.from_numpy(maps))
        return total.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, filters, maps = ctx.saved_tensors
        return launch.gram_backward(x, neighbors, weights, filters, maps.numpy(), g), None, None, None, None


class _Variation(Function):
    """`variation` and its gradient."""

    @staticmethod
    def forward(ctx: Any, image: Tensor) -> Tensor:
        value, slope = launch.variation(image)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return g * slope
