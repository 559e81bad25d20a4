"""The loops on signals on a GPU, in Triton: sums and products along edges, signs of maps, the total variation.

Sums have a fixed order, so that every run gives the same bits.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def in_edge_sums(
    q, weights, taps, base, start, edges, out, n, sources, d,
    C: tl.constexpr, WEIGHTED: tl.constexpr, TAPS: tl.constexpr, BASE: tl.constexpr, BY_EDGE: tl.constexpr,
    SUM: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """`out[j] = base[j] + sum_e w_e t_l q[e]` over the edges e = (i, l) that point to j, `WIDE` of them at a time.

    Rows of q are edges if BY_EDGE, else vertices i. The second axis of the grid is the signal, the third the channels.
    """
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = j < sources
    signal = tl.program_id(1).to(tl.int64)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    begin, end = tl.load(start + j, mask=inside, other=0), tl.load(start + j + 1, mask=inside, other=0)
    longest = tl.max(end - begin, 0)
    q += signal * n * C * (d if BY_EDGE else 1)
    row = (signal * sources + j)[:, None] * C + c[None, :]
    total = tl.zeros([BLOCK, BLOCK_C], SUM)
    if BASE:
        total += tl.load(base + row, mask=inside[:, None] & (c < C)[None, :], other=0.0).to(SUM)
    for first in range(0, longest, WIDE):
        at = begin[:, None] + first + tl.arange(0, WIDE)[None, :]
        mask = at < end[:, None]
        e = tl.load(edges + at, mask=mask, other=0).to(tl.int64)
        place = e if BY_EDGE else e // d
        part = q + (place * C)[:, :, None] + c[None, None, :]
        part = tl.load(part, mask=mask[:, :, None] & (c < C)[None, None, :], other=0.0).to(SUM)
        if WEIGHTED:
            part = part * tl.load(weights + e, mask=mask, other=0.0).to(SUM)[:, :, None]
        if TAPS:
            part = part * tl.load(taps + e % d, mask=mask, other=0.0).to(SUM)[:, :, None]
        total += tl.sum(part, 1)
    tl.store(out + row, total.to(out.dtype.element_ty), mask=inside[:, None] & (c < C)[None, :])


@triton.jit
def tap_sums(
    x, neighbors, weights, taps, out, n, sources, d, C: tl.constexpr, WEIGHTED: tl.constexpr, SUM: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """`out[i] = sum_l w_il t_l x[j_l]`. The second axis of the grid are signals, the third channels."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    signal = tl.program_id(1).to(tl.int64)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK, BLOCK_C], SUM)
    for tap in range(0, d):
        e = i.to(tl.int64) * d + tap
        j = tl.load(neighbors + e, mask=inside, other=0)
        factor = tl.load(taps + tap).to(SUM)
        part = tl.load(x + ((signal * sources + j) * C)[:, None] + c[None, :],
                       mask=inside[:, None] & (c < C)[None, :], other=0.0).to(SUM)  # fmt: skip
        if WEIGHTED:
            total += part * (tl.load(weights + e, mask=inside, other=0.0).to(SUM) * factor)[:, None]
        else:
            total += part * factor
    at = (signal * n + i)[:, None] * C + c[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside[:, None] & (c < C)[None, :])


@triton.jit
def edge_products(
    x, neighbors, q, out, signals, count, sources, d, C: tl.constexpr, BY_EDGE: tl.constexpr, SUM: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """`out[e] = <x[j_e], q[e]>` for `count` edges, summed over signals and channels; rows of q are edges if BY_EDGE, else vertices."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < count
    j = tl.load(neighbors + e, mask=inside, other=0).to(tl.int64)
    place = e if BY_EDGE else e // d
    rows = count if BY_EDGE else count // d
    total = tl.zeros([BLOCK], SUM)
    for _ in range(0, signals):
        for first in range(0, C, BLOCK_C):
            c = first + tl.arange(0, BLOCK_C)
            mask = inside[:, None] & (c < C)[None, :]
            a = tl.load(x + (j * C)[:, None] + c[None, :], mask=mask, other=0.0)
            b = tl.load(q + (place * C)[:, None] + c[None, :], mask=mask, other=0.0)
            total += tl.sum(a.to(SUM) * b.to(SUM), 1)
        j += sources
        place += rows
    tl.store(out + e, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def rectify(
    maps, largest, usual, fine, neighbors, weights, filters, bias, n, d, C: tl.constexpr, M: tl.constexpr,
    WEIGHTED: tl.constexpr, NEAR: tl.constexpr, TRACE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Set negative maps (n, M) to 0, in place. `fine` (n, C) decides the sign of what lies near 0.

    Map m is near 0 below `NEAR (largest usual[m] + |bias[m]|)`, where `largest` is the largest number of `fine`.
    What is positive, but not in the precision of the maps, becomes TRACE times that limit.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.arange(0, BLOCK_M)
    inside = (i < n)[:, None] & (r < M)[None, :]
    at = i.to(tl.int64)[:, None] * M + r[None, :]
    limit = tl.load(largest).to(tl.float32) * tl.load(usual + r, mask=r < M, other=0.0)
    limit = (NEAR * (limit + tl.abs(tl.load(bias + r, mask=r < M, other=0.0))))[None, :]
    value = tl.load(maps + at, mask=inside, other=1.0) + limit * TRACE
    close = tl.abs(value) < limit
    result = tl.where(value <= -limit, 0.0, value)  # NaN stays NaN
    rows = tl.max(close.to(tl.int32), 1)
    if tl.max(rows, 0) > 0:
        some = rows > 0
        exact = tl.zeros([BLOCK, BLOCK_M], fine.dtype.element_ty)
        exact += tl.load(bias + r, mask=r < M, other=0.0).to(exact.dtype)[None, :]
        for tap in range(0, d):
            e = i.to(tl.int64) * d + tap
            j = tl.load(neighbors + e, mask=some, other=0).to(tl.int64)
            for c in tl.static_range(C):
                part = tl.load(fine + j * C + c, mask=some, other=0.0)
                if WEIGHTED:
                    part = part * tl.load(weights + e, mask=some, other=0.0).to(exact.dtype)
                f = tl.load(filters + (tap * C + c) * M + r, mask=r < M, other=0.0).to(exact.dtype)
                exact += part[:, None] * f[None, :]
        positive = tl.maximum(value, tl.maximum(limit * TRACE, 1e-37))
        result = tl.where(close, tl.where(exact > 0, positive, 0.0), result)
    tl.store(maps + at, result, mask=inside)


@triton.jit
def variation(image, slope, totals, h, row, c, BLOCK: tl.constexpr):
    """Write the slopes of `BLOCK` numbers of an (h, row) image with c channels, and the sum of their differences."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y, x = at // row, at % row
    inside = y < h
    here = tl.load(image + at, mask=inside, other=0)
    left, right = inside & (x >= c), inside & (x < row - c)
    above, below = inside & (y > 0), inside & (y < h - 1)
    back = here - tl.load(image + at - c, mask=left, other=0)
    up = here - tl.load(image + at - row, mask=above, other=0)
    on = here - tl.load(image + at + c, mask=right, other=0)
    down = here - tl.load(image + at + row, mask=below, other=0)
    back, up = tl.where(left, back, 0), tl.where(above, up, 0)
    on, down = tl.where(right, on, 0), tl.where(below, down, 0)
    signs = (back > 0).to(tl.int32) - (back < 0).to(tl.int32) + (up > 0).to(tl.int32) - (up < 0).to(tl.int32)
    signs += (on > 0).to(tl.int32) - (on < 0).to(tl.int32) + (down > 0).to(tl.int32) - (down < 0).to(tl.int32)
    tl.store(slope + at, signs.to(slope.dtype.element_ty), mask=inside)
    tl.store(totals + tl.program_id(0), tl.sum(tl.abs(back) + tl.abs(up), 0))
