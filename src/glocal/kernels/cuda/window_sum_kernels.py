"""The exact patch search inside a radius on a GPU, in Triton. What it finds is said in `reference_search.patch_neighbors`.

For a fixed shift the distances of all patches are window sums of one squared difference. The first kernel sums down the
columns, for all shifts and a band of rows; the second sums along the rows and keeps the nearest of each pixel.
Additions are in the order of the definition and are not fused with multiplications.
"""
# mypy: disable-error-code="no-untyped-def, assignment"
# ruff: noqa: RUF005 (Triton adds tuples, but does not unpack them)

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _total(cells, SIZE: tl.constexpr):
    """Sum `SIZE` cells in blocks of 4, 2 and 1; each block adds its halves first."""
    s = cells[0]
    if SIZE >= 2:
        s = s + cells[1]
    if SIZE >= 4:
        s = s + (cells[2] + cells[3])
    if SIZE >= 6:
        s = s + (cells[4] + cells[5])
    if SIZE % 2 == 1 and SIZE > 1:
        s = s + cells[SIZE - 1]
    return s


@triton.jit
def column_sums(
    planes, out, first, rows, h, plane, width, radius_y, radius_x, C: tl.constexpr, PH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the squared differences of PH cells below one another, for one row, one dy and all dx: out (dy, dx, rows, width)."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = first + tl.program_id(1)
    dy = tl.program_id(2) - radius_y
    here = ()
    for v in tl.static_range(PH):
        for c in tl.static_range(C):
            at = c * plane + (y + v) * width + x
            here = here + (tl.load(planes + at, mask=x < width, other=0.0),)
    shifts = 2 * radius_x + 1
    if (y + dy >= 0) & (y + dy < h):
        for step in range(0, shifts):
            xx = x + (step - radius_x)
            mask = (xx >= 0) & (xx < width) & (x < width)
            cells = ()
            for v in tl.static_range(PH):
                at = (y + dy + v) * width + xx
                a = here[v * C] - tl.load(planes + at, mask=mask, other=0.0)
                square = a * a
                for c in tl.static_range(1, C):
                    a = here[v * C + c] - tl.load(planes + c * plane + at, mask=mask, other=0.0)
                    square = square + a * a
                cells = cells + (square,)
            place = ((tl.program_id(2) * shifts + step) * rows + tl.program_id(1)) * width + x
            tl.store(out + place, _total(cells, PH), mask=mask)


@triton.jit
def nearest_of_row(
    columns, neighbors, squared, first, rows, h, w, width, factor, radius_y, radius_x,
    K: tl.constexpr, PW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum PW columns and keep the K nearest others of each pixel, nearest first.

    Candidates come in the order of their index, so that of equal ones the first stays. Distances are compared by their
    bits, which for numbers that are not negative is the same; `nobody` is above all of them.
    """
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = first + tl.program_id(1)
    nobody: tl.constexpr = 0x7FFFFFFF
    distances = (tl.full([BLOCK], nobody, tl.int32),) * K
    indices = (tl.full([BLOCK], 0, tl.int32),) * K
    shifts = 2 * radius_x + 1
    for dy in range(tl.maximum(-radius_y, -y), tl.minimum(radius_y, h - 1 - y) + 1):
        for step in range(0, shifts):
            yy, xx = y + dy, x + (step - radius_x)
            r2 = (yy - y) * (yy - y) + (xx - x) * (xx - x)
            good = (x < w) & (xx >= 0) & (xx < w) & (r2 > 0)
            place = (((dy + radius_y) * shifts + step) * rows + tl.program_id(1)) * width + x
            cells = ()
            for u in tl.static_range(PW):
                cells = cells + (tl.load(columns + place + u, mask=good, other=0.0),)
            d2 = _total(cells, PW) + factor * r2.to(tl.float32)
            new = tl.where(good, d2.to(tl.int32, bitcast=True), nobody)
            index = yy * w + xx
            after, named = (), ()
            for s in tl.static_range(K):
                closer = new < distances[s]
                a, b = tl.where(closer, new, distances[s]), tl.where(closer, index, indices[s])
                if s > 0:
                    moved = new < distances[s - 1]
                    a, b = tl.where(moved, distances[s - 1], a), tl.where(moved, indices[s - 1], b)
                after, named = after + (a,), named + (b,)
            distances, indices = after, named
    at = (y * w + x).to(tl.int64) * (K + 1)
    tl.store(neighbors + at, y * w + x, mask=x < w)
    tl.store(squared + at, tl.zeros([BLOCK], tl.float32), mask=x < w)
    for s in tl.static_range(K):
        tl.store(neighbors + at + 1 + s, indices[s], mask=x < w)
        tl.store(squared + at + 1 + s, distances[s].to(tl.float32, bitcast=True), mask=x < w)
