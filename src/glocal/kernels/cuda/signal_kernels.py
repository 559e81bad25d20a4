"""The loops on signals on a GPU, in Triton: sums over in-edges, and the total variation with its slope.

Sums have a fixed order, so that every run gives the same bits.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def in_edge_sums(q, weights, start, edges, out, n, C: tl.constexpr, WEIGHTED: tl.constexpr,
                 BLOCK: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """`out[j, c] = sum_e w_e q[e, c]` over the edges e that point to j, `WIDE` of them at a time."""
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = j < n
    begin, end = tl.load(start + j, mask=inside, other=0), tl.load(start + j + 1, mask=inside, other=0)
    longest = tl.max(end - begin, 0)
    for c in tl.static_range(C):
        total = tl.full([BLOCK], 0, q.dtype.element_ty)
        for first in range(0, longest, WIDE):
            at = begin[:, None] + first + tl.arange(0, WIDE)[None, :]
            mask = at < end[:, None]
            e = tl.load(edges + at, mask=mask, other=0).to(tl.int64)
            part = tl.load(q + e * C + c, mask=mask, other=0)
            if WEIGHTED:
                part = part * tl.load(weights + e, mask=mask, other=0)
            total += tl.sum(part, 1)
        tl.store(out + j * C + c, total, mask=inside)


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
