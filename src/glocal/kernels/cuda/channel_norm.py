"""Layer normalisation over few channels on a GPU: one Triton kernel for each direction.

Torch's own kernel gives a block of threads to every row, which is wasteful for rows of 56 numbers. Here a program takes
many rows at once. Sums are float32 whatever the dtype. The same input gives the same bits in every run.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 64  # rows of a program at a time
_PROGRAMS = 1024  # at most; each then takes several blocks of rows


@triton.jit
def _forward(x, scale, shift, out, stats, n, C, EPS, ROWS: tl.constexpr, WIDE: tl.constexpr):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    c = tl.arange(0, WIDE)
    used = (c < C)[None, :]
    mask = (i < n)[:, None] & used
    v = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(v, 1) / C
    v = tl.where(mask, v - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(v * v, 1) / C + EPS)
    a = tl.load(scale + c, mask=c < C, other=0.0).to(tl.float32)
    b = tl.load(shift + c, mask=c < C, other=0.0).to(tl.float32)
    y = v * inverse[:, None] * a[None, :] + b[None, :]
    tl.store(out + i[:, None] * C + c[None, :], y.to(out.dtype.element_ty), mask=mask)
    tl.store(stats + i * 2, mean, mask=i < n)
    tl.store(stats + i * 2 + 1, inverse, mask=i < n)


@triton.jit
def _backward(x, scale, stats, slope, to_x, to_scale, to_shift, n, C, BLOCKS, ROWS: tl.constexpr, WIDE: tl.constexpr):
    c = tl.arange(0, WIDE)
    used = (c < C)[None, :]
    a = tl.load(scale + c, mask=c < C, other=0.0).to(tl.float32)
    sum_scale = tl.zeros([WIDE], tl.float32)
    sum_shift = tl.zeros([WIDE], tl.float32)
    for block in range(BLOCKS):
        i = ((tl.program_id(0) * BLOCKS + block) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        mask = (i < n)[:, None] & used
        mean = tl.load(stats + i * 2, mask=i < n, other=0.0)
        inverse = tl.load(stats + i * 2 + 1, mask=i < n, other=0.0)
        v = tl.load(x + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        v = tl.where(mask, (v - mean[:, None]) * inverse[:, None], 0.0)
        g = tl.load(slope + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        sum_scale += tl.sum(g * v, 0)
        sum_shift += tl.sum(g, 0)
        g = g * a[None, :]
        g = inverse[:, None] * (g - tl.sum(g, 1)[:, None] / C - v * (tl.sum(g * v, 1) / C)[:, None])
        tl.store(to_x + i[:, None] * C + c[None, :], g.to(to_x.dtype.element_ty), mask=mask)
    place = tl.program_id(0) * C + c
    tl.store(to_scale + place, sum_scale, mask=c < C)
    tl.store(to_shift + place, sum_shift, mask=c < C)


class _ChannelNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        c = x.shape[-1]
        n = x.numel() // c
        out, stats = torch.empty_like(x), torch.empty(n, 2, dtype=torch.float32, device=x.device)
        grid = (triton.cdiv(n, _ROWS),)
        _forward[grid](x, scale, shift, out, stats, n, c, eps, _ROWS, triton.next_power_of_2(c))
        ctx.save_for_backward(x, scale, shift, stats)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, scale, shift, stats = ctx.saved_tensors
        n, c = stats.shape[0], x.shape[-1]
        blocks = triton.cdiv(triton.cdiv(n, _ROWS), _PROGRAMS)
        programs = triton.cdiv(triton.cdiv(n, _ROWS), blocks)
        to_x = torch.empty_like(x)
        sums = torch.empty(2, programs, c, dtype=torch.float32, device=x.device)
        _backward[(programs,)](
            x, scale, stats, slope.contiguous(), to_x, sums[0], sums[1], n, c, blocks, _ROWS, triton.next_power_of_2(c)
        )
        to_scale, to_shift = sums.sum(1)
        return to_x, to_scale.to(scale.dtype), to_shift.to(shift.dtype), None


def channel_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise the last axis of x (..., c) to mean 0 and variance 1, then apply `scale` and `shift` (c,).

    Equals `torch.nn.functional.layer_norm`, in the dtype of `x`. Differentiable. Cost: O(n c).
    """
    y: Tensor = _ChannelNorm.apply(x, scale, shift, eps)  # type: ignore[no-untyped-call]
    return y
