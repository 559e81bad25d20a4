"""Similarities and weighted differences on a GPU. Nothing is gathered in between.

Sums are in float32 (in float64 for float64). What goes to the neighbours is summed over the reversed graph, in the order
of the edges, so that every run gives the same bits. The reversed graph is computed once and shared by all layers that use
the graph. The host never waits for the GPU, so that a training step can be recorded as a CUDA graph.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from glocal.kernels import known
from glocal.kernels.cuda.convolve import edge_products, in_edge_sums, shared_conv, sum_dtype
from glocal.kernels.cuda.launching import Launch

_BLOCK = 32  # vertices of a program


@triton.jit
def _differences(
    x, neighbors, weights, out, n, C, K: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr
):
    """`out[i, l] = w_il (x_j - x_i)`."""
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = i < n
    mask = inside[:, None] & (c < C)[None, :]
    own = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(SUM)
    for rank in range(K):
        j = tl.load(neighbors + i * K + rank, mask=inside, other=0).to(tl.int64)
        w = tl.load(weights + i * K + rank, mask=inside, other=0.0).to(SUM)
        other = tl.load(x + j[:, None] * C + c[None, :], mask=mask, other=0.0).to(SUM)
        value = w[:, None] * (other - own)
        tl.store(out + (i * K + rank)[:, None] * C + c[None, :], value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _difference_slopes(
    x, neighbors, weights, slope, to_own, to_weights, n, C,
    K: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Write `<g_il, x_j - x_i>`, the gradients of the weights, and `-sum_l w_il g_il`, the part of the vertex itself."""
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = i < n
    mask = inside[:, None] & (c < C)[None, :]
    own = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(SUM)
    total = tl.zeros([BLOCK, WIDE], SUM)
    for rank in range(K):
        j = tl.load(neighbors + i * K + rank, mask=inside, other=0).to(tl.int64)
        w = tl.load(weights + i * K + rank, mask=inside, other=0.0).to(SUM)
        other = tl.load(x + j[:, None] * C + c[None, :], mask=mask, other=0.0).to(SUM)
        g = tl.load(slope + (i * K + rank)[:, None] * C + c[None, :], mask=mask, other=0.0).to(SUM)
        product = tl.sum(g * (other - own), 1)
        tl.store(to_weights + i * K + rank, product.to(to_weights.dtype.element_ty), mask=inside)
        total -= g * w[:, None]
    tl.store(to_own + i[:, None] * C + c[None, :], total, mask=mask)


class _Differences(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor) -> Tensor:
        x, weights = x.contiguous(), weights.contiguous()
        ctx.save_for_backward(x, neighbors, weights)
        (n, k), c = neighbors.shape, x.shape[1]
        out = x.new_empty(n, k, c)
        _plan(_differences, n, c, k, x.dtype)(x, neighbors, weights, out)
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, Tensor]:
        x, neighbors, weights = ctx.saved_tensors
        (n, k), c = neighbors.shape, x.shape[1]
        slope, to_weights = slope.contiguous(), torch.empty_like(weights)
        to_own = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        _plan(_difference_slopes, n, c, k, x.dtype)(x, neighbors, weights, slope, to_own, to_weights)
        reverse = known.reverse(neighbors, n)
        to_x = in_edge_sums(slope.unsqueeze(0), weights, None, reverse, n, k, base=to_own.unsqueeze(0))
        return to_x.squeeze(0), None, to_weights


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor) -> Tensor:
        ctx.save_for_backward(x, neighbors)
        return edge_products(x.unsqueeze(0), neighbors, x.unsqueeze(0))

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        x, neighbors = ctx.saved_tensors
        n, k = neighbors.shape
        slope, signal, wide = slope.contiguous(), x.unsqueeze(0), torch.promote_types(x.dtype, torch.float32)
        to_own = shared_conv(signal, neighbors, slope, slope.new_ones(k), dtype=wide)
        return in_edge_sums(signal, slope, None, known.reverse(neighbors, n), n, k, base=to_own).squeeze(0), None


@lru_cache(maxsize=512)
def _plan(kernel: Any, n: int, c: int, k: int, dtype: torch.dtype) -> Launch:
    constants = {"K": k, "SUM": sum_dtype(dtype), "BLOCK": _BLOCK, "WIDE": triton.next_power_of_2(c)}
    return Launch(kernel, (triton.cdiv(n, _BLOCK),), (n, c), constants)


def similarities(x: Tensor, neighbors: Tensor) -> Tensor:
    """See `reference_ranked.similarities`."""
    found: Tensor = _Products.apply(x, neighbors)
    return found


def weighted_differences(x: Tensor, neighbors: Tensor, weights: Tensor) -> Tensor:
    """See `reference_ranked.weighted_differences`."""
    found: Tensor = _Differences.apply(x, neighbors, weights)
    return found


def ranked_conv(x: Tensor, neighbors: Tensor, weights: Tensor, filters: Tensor) -> Tensor:
    """See `reference_ranked.ranked_conv`."""
    return weighted_differences(x, neighbors, weights).flatten(1) @ filters.flatten(0, 1)
