"""The graph convolution on a GPU, in Triton: the gather and the product are one loop, so patches are never stored.

The convolution is a matrix product `P F` of the patches P (b n, d c) and the filters F (d c, m). A tile of P is gathered
straight into the product. Rows are vertices of all signals of a batch; column `l c + a` of P is channel a of tap l.
D, C and M are constants of a launch: a kernel is compiled once for each shape of a layer.
Sums are in float32 (in float64 for float64) and have a fixed order, so that every run gives the same bits.
The matrix unit reads float32 only if the summed axis is the last one in memory. So operands of wide signals are transposed
(TURNED); for narrow signals that costs more than it saves.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _patches(
    x, neighbors, weights, row, inside, first, n, sources,
    D: tl.constexpr, C: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gather columns `first, ..., first + BLOCK_K - 1` of the patches of some rows."""
    i = row % n
    base = (row // n).to(tl.int64) * sources
    k = first + tl.arange(0, BLOCK_K)
    if C % BLOCK_K == 0:  # one tap
        edge = i.to(tl.int64) * D + first // C
        j = tl.load(neighbors + edge, mask=inside, other=0)
        channel = tl.multiple_of(first % C, BLOCK_K) + tl.arange(0, BLOCK_K)
        tile = tl.load(x + ((base + j) * C)[:, None] + channel[None, :], mask=inside[:, None], other=0.0)
        if WEIGHTED:
            tile = tile * tl.load(weights + edge, mask=inside, other=0.0)[:, None]
    else:
        mask = inside[:, None] & (k < D * C)[None, :]
        edge = (i.to(tl.int64) * D)[:, None] + (k // C)[None, :]
        j = tl.load(neighbors + edge, mask=mask, other=0)
        tile = tl.load(x + (base[:, None] + j) * C + (k % C)[None, :], mask=mask, other=0.0)
        if WEIGHTED:
            tile = tile * tl.load(weights + edge, mask=mask, other=0.0)
    return tile


@triton.jit
def forward(
    x, neighbors, weights, filters, bias, out, rows, n, sources,
    D: tl.constexpr, C: tl.constexpr, M: tl.constexpr, WEIGHTED: tl.constexpr, BIAS: tl.constexpr, TURNED: tl.constexpr,
    SUM: tl.constexpr, PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """`out = P F`, with BIAS plus the bias, for BLOCK_N rows and BLOCK_M maps. If TURNED, the filters are stored as (m, d c)."""
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = row < rows
    o = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros([BLOCK_N, BLOCK_M], SUM)
    for first in range(0, D * C, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        p = _patches(x, neighbors, weights, row, inside, first, n, sources, D, C, WEIGHTED, BLOCK_K)
        at = k[:, None] + o[None, :] * (D * C) if TURNED else k[:, None] * M + o[None, :]
        f = tl.load(filters + at, mask=(k < D * C)[:, None] & (o < M)[None, :], other=0.0)
        total = tl.dot(p, f, total, input_precision=PRECISION, out_dtype=SUM)
    if BIAS:
        total += tl.load(bias + o, mask=o < M, other=0.0).to(SUM)[None, :]
    at = row.to(tl.int64)[:, None] * M + o[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside[:, None] & (o < M)[None, :])


@triton.jit
def filter_slopes(
    x, neighbors, weights, g, out, rows, n, sources, span,
    D: tl.constexpr, C: tl.constexpr, M: tl.constexpr, WEIGHTED: tl.constexpr, TURNED: tl.constexpr,
    SUM: tl.constexpr, PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """`out[part] = P' g` over `span` rows: the gradient of the filters is the sum of all parts.

    If TURNED, g is stored as (m, rows).
    """
    first = tl.program_id(0) * BLOCK_K
    o = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    begin = tl.program_id(2) * span
    total = tl.zeros([BLOCK_K, BLOCK_M], SUM)
    for start in range(begin, tl.minimum(begin + span, rows), BLOCK_N):
        row = start + tl.arange(0, BLOCK_N)
        inside = row < rows
        p = _patches(x, neighbors, weights, row, inside, first, n, sources, D, C, WEIGHTED, BLOCK_K)
        far = row.to(tl.int64)[:, None]
        at = far + o[None, :].to(tl.int64) * rows if TURNED else far * M + o[None, :]
        side = tl.load(g + at, mask=inside[:, None] & (o < M)[None, :], other=0.0)
        total = tl.dot(tl.trans(p), side, total, input_precision=PRECISION, out_dtype=SUM)
    k = first + tl.arange(0, BLOCK_K)
    at = (tl.program_id(2) * D * C + k)[:, None].to(tl.int64) * M + o[None, :]
    tl.store(out + at, total, mask=(k < D * C)[:, None] & (o < M)[None, :])


@triton.jit
def part_sums(parts, out, count, size, SUM: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """`out = sum of parts`, (count, size) to (size), `WIDE` of them at a time."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], SUM)
    for first in range(0, count, WIDE):
        part = first + tl.arange(0, WIDE)
        mask = (part < count)[:, None] & (at < size)[None, :]
        total += tl.sum(tl.load(parts + part.to(tl.int64)[:, None] * size + at[None, :], mask=mask, other=0.0), 0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < size)


@triton.jit
def patch_slopes(
    g, filters, out, rows, K: tl.constexpr, M: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """`out = g F'`, (rows, K): the gradient of the patches."""
    row = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_N, BLOCK_K], SUM)
    for first in range(0, M, BLOCK_M):
        o = first + tl.arange(0, BLOCK_M)
        at = row.to(tl.int64)[:, None] * M + o[None, :]
        side = tl.load(g + at, mask=(row < rows)[:, None] & (o < M)[None, :], other=0.0)
        f = tl.load(filters + k[None, :] * M + o[:, None], mask=(k < K)[None, :] & (o < M)[:, None], other=0.0)
        total = tl.dot(side, f, total, input_precision=PRECISION, out_dtype=SUM)
    at = row.to(tl.int64)[:, None] * K + k[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (k < K)[None, :])
