"""Similarities and weighted differences on a GPU: one Triton kernel for each direction, nothing gathered in between.

Gradients are summed in float32. The part that goes to the neighbours is added with atomics, so its last bits depend on
the order in which the GPU works.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 32  # vertices of a program


@triton.jit
def _differences(x, neighbors, weights, out, n, C, K: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = i < n
    mask = inside[:, None] & (c < C)[None, :]
    own = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    for rank in range(K):
        j = tl.load(neighbors + i * K + rank, mask=inside, other=0).to(tl.int64)
        w = tl.load(weights + i * K + rank, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(x + j[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        value = w[:, None] * (other - own)
        tl.store(out + (i * K + rank)[:, None] * C + c[None, :], value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _differences_back(
    x, neighbors, weights, slope, to_x, to_weights, n, C, K: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr
):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = i < n
    mask = inside[:, None] & (c < C)[None, :]
    own = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK, WIDE], tl.float32)
    for rank in range(K):
        j = tl.load(neighbors + i * K + rank, mask=inside, other=0).to(tl.int64)
        w = tl.load(weights + i * K + rank, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(x + j[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        g = tl.load(slope + (i * K + rank)[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        tl.store(to_weights + i * K + rank, tl.sum(g * (other - own), 1), mask=inside)
        g = g * w[:, None]
        total -= g
        tl.atomic_add(to_x + j[:, None] * C + c[None, :], g, mask=mask, sem="relaxed")
    tl.atomic_add(to_x + i[:, None] * C + c[None, :], total, mask=mask, sem="relaxed")


@triton.jit
def _products(x, neighbors, out, n, C, K: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = i < n
    mask = inside[:, None] & (c < C)[None, :]
    own = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    for rank in range(K):
        j = tl.load(neighbors + i * K + rank, mask=inside, other=0).to(tl.int64)
        other = tl.load(x + j[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        tl.store(out + i * K + rank, tl.sum(own * other, 1), mask=inside)


@triton.jit
def _products_back(x, neighbors, slope, to_x, n, C, K: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, WIDE)
    inside = i < n
    mask = inside[:, None] & (c < C)[None, :]
    own = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK, WIDE], tl.float32)
    for rank in range(K):
        j = tl.load(neighbors + i * K + rank, mask=inside, other=0).to(tl.int64)
        g = tl.load(slope + i * K + rank, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(x + j[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        total += g[:, None] * other
        tl.atomic_add(to_x + j[:, None] * C + c[None, :], g[:, None] * own, mask=mask, sem="relaxed")
    tl.atomic_add(to_x + i[:, None] * C + c[None, :], total, mask=mask, sem="relaxed")


class _Differences(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor) -> Tensor:
        x, weights = x.contiguous(), weights.contiguous()
        ctx.save_for_backward(x, neighbors, weights)
        (n, k), c = neighbors.shape, x.shape[1]
        out = torch.empty(n, k, c, dtype=x.dtype, device=x.device)
        _differences[_grid(n)](x, neighbors, weights, out, n, c, k, _BLOCK, triton.next_power_of_2(c))
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, Tensor]:
        x, neighbors, weights = ctx.saved_tensors
        (n, k), c = neighbors.shape, x.shape[1]
        to_x = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        to_weights = torch.empty(n, k, dtype=torch.float32, device=x.device)
        _differences_back[_grid(n)](
            x, neighbors, weights, slope.contiguous(), to_x, to_weights, n, c, k, _BLOCK, triton.next_power_of_2(c)
        )
        return to_x.to(x.dtype), None, to_weights.to(weights.dtype)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, neighbors)
        n, k = neighbors.shape
        out = torch.empty(n, k, dtype=torch.float32, device=x.device)
        _products[_grid(n)](x, neighbors, out, n, x.shape[1], k, _BLOCK, triton.next_power_of_2(x.shape[1]))
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        x, neighbors = ctx.saved_tensors
        (n, k), c = neighbors.shape, x.shape[1]
        to_x = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        _products_back[_grid(n)](x, neighbors, slope.contiguous(), to_x, n, c, k, _BLOCK, triton.next_power_of_2(c))
        return to_x.to(x.dtype), None


def _grid(n: int) -> tuple[int]:
    return (triton.cdiv(n, _BLOCK),)


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
