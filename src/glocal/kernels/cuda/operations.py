"""The operations of style transfer on a GPU: products by torch, what torch has no single call for by Triton.

What they compute is said in `reference`. Every run gives the same bits, where torch's own gradient of a gather, which
serves batches and signals of many channels, adds in an order that changes. Other operations are those of `reference`.
Signs near 0 are not decided in the precision of x, as they are on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from glocal.kernels import reference
from glocal.kernels.cuda import signal_kernels as triton_signals
from glocal.kernels.known import known

Reverse = tuple[Tensor, Tensor]

_NARROW = 4  # channels that the sums over in-edges go through one by one
_PIECE = 512  # vertices: so many are multiplied in the vectors' own precision, and the products are added in float64


def device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Where Triton shall launch, which takes the current device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def gram_pullback(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """`gram` in float64, and a function that makes of a gradient of it, (m, m), that of x; in the filters' precision.

    Cost: O(n m (d c + m)) time, O(n (d c + m)) memory.
    """
    (n, c), (d, _, m) = x.shape, filters.shape
    patches = x.to(filters).index_select(0, neighbors.view(-1)).view(n, d, c)
    if weights is not None:
        patches.mul_(weights.unsqueeze(-1))
    flat = filters.reshape(d * c, m)
    maps = torch.addmm(bias, patches.view(n, d * c), flat).relu_()

    def back(g: Tensor) -> Tensor:
        slope = torch.ops.aten.threshold_backward(maps @ (g + g.t()).to(filters), maps, 0)
        return in_edge_sums(slope @ flat.t().contiguous(), weights, neighbors, c)

    return inner_products(maps.t()), back


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None, reverse: Reverse | None = None) -> Tensor:
    """`reference.extract`. The gradient of a single narrow signal is summed in a fixed order; others are torch's."""
    if x.shape[0] != 1 or x.shape[2] > _NARROW:
        return reference.extract(x, neighbors, weights)
    return cast(Tensor, _Extract.apply(x[0], neighbors, weights, *(reverse or ()))).unsqueeze(0)


def graph_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, reverse: Reverse | None = None
) -> Tensor:
    """`reference.graph_conv`."""
    return torch.einsum("bndc,dcm->bnm", extract(x, neighbors, weights, reverse), filters)


def shared_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, reverse: Reverse | None = None
) -> Tensor:
    """`reference.shared_conv`."""
    return torch.einsum("bndc,d->bnc", extract(x, neighbors, weights, reverse), taps)


class _Extract(Function):
    """`extract` of x (n, c) and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, *reverse: Tensor) -> Tensor:
        ctx.save_for_backward(x, neighbors, weights, *reverse)
        return reference.extract(x.unsqueeze(0), neighbors, weights)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, *reverse = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = in_edge_sums(g.flatten(1), weights, neighbors, x.shape[1], tuple(reverse) or None)
        if ctx.needs_input_grad[2]:
            gw = (g * x[neighbors.long()]).sum(2)
        return gx, None, gw, *(None for _ in reverse)


def inner_products(vectors: Tensor) -> Tensor:
    """All inner products of vectors (r, n), or of the columns of a matrix as `matrix.t()`: (r, r), in float64."""
    n = vectors.shape[1]
    whole = n // _PIECE * _PIECE
    rest = vectors[:, whole:]
    total = (rest @ rest.t()).double()
    if whole:  # many small products, so that the whole GPU has something to do
        parts = vectors[:, :whole].unflatten(1, (-1, _PIECE)).transpose(0, 1)
        total = total + torch.bmm(parts, parts.transpose(1, 2)).sum(0, dtype=torch.float64)
    return total


def in_edge_sums(
    q: Tensor, weights: Tensor | None, neighbors: Tensor, c: int, reverse: Reverse | None = None
) -> Tensor:
    """`sum_e w_e q[e]` over the edges e that point to each vertex: q (n, d c) -> (n, c). Cost: O(n d c)."""
    n = len(neighbors)
    start, edges = reverse or known(neighbors, "reverse", lambda: reference.reverse(neighbors))
    q, out = q.contiguous(), q.new_empty(n, c)
    block = 16
    with device_of(q):
        triton_signals.in_edge_sums[(-(-n // block),)](
            q, q if weights is None else weights, start, edges, out, n,
            C=c, WEIGHTED=weights is not None, BLOCK=block, WIDE=32,
        )  # fmt: skip
    return out


def variation_slope(image: Tensor) -> tuple[Tensor, Tensor]:
    """`reference.variation` of (h, w, c) and its gradient. Cost: O(h w c), one pass."""
    h, w, c = image.shape
    image, block = image.contiguous(), 1024
    blocks = -(-image.numel() // block)
    slope, totals = torch.empty_like(image), image.new_empty(blocks)
    with device_of(image):
        triton_signals.variation[(blocks,)](image, slope, totals, h, w * c, c, BLOCK=block)
    return totals.sum(), slope
