"""The loops of the convolution on a lattice: boxes of vertices with their surroundings in the cache, no neighbours.

A signal on a lattice is (b, t, h, w, c) in memory; a missing axis has the length 1. All arrays are flat and of one
number type. A box is a piece of one t, some rows high and some columns wide. Its surroundings are copied into a buffer,
which also takes care of the boundary. From there on the neighbours of every vertex lie at the same `steps` in the
buffer. A segment is a run of `inner` numbers that lie together there: a row of the patch, or one tap where the lattice
is dilated. Each function works on the boxes `first` to `last - 1`; any cut gives the same numbers.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.packing import fill
from glocal.kernels.cpu.tiles import INDEX, MANY, MAX_VECTORS, ROWS, TILE_BYTES, Code, product

# Rows of a tile of 1, 2, ... vectors. Fewer than in `product`: their addresses must fit into registers too.
HEIGHTS = (8, 6, 6, 4, 4, 3, 3, 2) if MANY else ROWS
TALL = 12 if MANY else HEIGHTS[0]  # rows of the other tile of one vector, for where many rows are left
STEP = gcd(HEIGHTS[0], TALL)  # from HEIGHTS[0] on, every multiple of this is a number of whole tiles of one vector
POINTERS = 6  # rows of a tall tile with an address of their own; the others lie this many rows after them
STRIP = 40  # vertices whose gradient stays in the first-level cache
SPARE = 16 * TILE_BYTES  # numbers that whole tiles may read beyond the end of a buffer


class Region(NamedTuple):
    """A part of a lattice, or of its surroundings, that is cut into boxes. Tuples are (t, h, w)."""

    shape: tuple[int, int, int]
    """The lengths of the lattice."""
    size: tuple[int, int, int]
    """The size of the patch."""
    dilation: int
    places: Any
    """The vertex at each place of each axis, or -1 where there is none: three tables one after the other."""
    start: tuple[int, int, int]
    """Where the place 0 of each axis is found in `places`."""
    origin: tuple[int, int, int]
    """The first place of the region."""
    extent: tuple[int, int, int]
    """The lengths of the region."""
    box: tuple[int, int]
    """Rows and columns of a box."""
    steps: Any
    """Where the segments of a patch begin in the buffer."""
    inner: int
    """The length of a segment."""


@njit(nogil=True, cache=True)
def buffer_shape(region):
    """Rows and columns of the surroundings of a box."""
    reach = region.dilation
    return region.box[0] + (region.size[1] - 1) * reach, region.box[1] + (region.size[2] - 1) * reach


@njit(nogil=True, cache=True)
def box_at(region, number):
    """Find a box: (batch, t, y, x, rows, columns), counted from the origin of the region."""
    high, wide = region.box
    down, across = (region.extent[1] + high - 1) // high, (region.extent[2] + wide - 1) // wide
    rest, column = number // across, number % across
    rest, row = rest // down, rest % down
    batch, t = rest // region.extent[0], rest % region.extent[0]
    y, x = row * high, column * wide
    return batch, t, y, x, min(high, region.extent[1] - y), min(wide, region.extent[2] - x)


@njit(nogil=True, cache=True)
def load(x, c, region, batch, t, y, column, rows, columns, out):
    """Copy the surroundings of a box into `out`, (slices, *buffer_shape, c), with zeros where there is no vertex."""
    (depth, h, w), (slices, down, across), reach = region.shape, region.size, region.dilation
    high, wide = buffer_shape(region)
    places, start = region.places, region.start
    t += region.origin[0] - slices // 2 * reach
    y += region.origin[1] - down // 2 * reach
    column += region.origin[2] - across // 2 * reach
    width = columns + (across - 1) * reach
    left = min(width, max(0, -column))  # columns to the left of the lattice
    right = max(left, min(width, w - column))  # the first column to the right of it
    for s in range(slices):
        plane = places[start[0] + t + s * reach]
        for r in range(rows + (down - 1) * reach):
            line, at = places[start[1] + y + r], (s * high + r) * wide * c
            if plane < 0 or line < 0:
                fill(out, at, at + width * c)
                continue
            row = (((batch * depth + plane) * h + line) * w) * c
            for part in range(2):
                for place in range(0 if part == 0 else right, left if part == 0 else width):
                    vertex = places[start[2] + column + place]
                    for channel in range(c):
                        out[at + place * c + channel] = x[row + vertex * c + channel] if vertex >= 0 else 0
            source, target = np.uint64(row + (column + left) * c), np.uint64(at + left * c)
            for k in range(np.uint64((right - left) * c)):
                out[target + k] = x[source + k]


def _write_tile(code: Code, values: Any, across: int, height: int, pointers: int) -> None:
    """Write one tile of `stencil`, `height` rows of `across` vectors; `pointers` rows have an address of their own."""
    a, ar, steps, segments, inner, b, bk, bias, c, cr = values
    builder = code.builder
    starts = [code.at(a, builder.mul(ar, INDEX(r))) for r in range(pointers)]
    skips = [builder.mul(ar, INDEX(r)) for r in range(0, height, pointers)]  # of the rows without one

    def segment(s: Any, sums: list[Any]) -> list[Any]:
        step = code.load(builder.add(steps, builder.mul(s, INDEX(8))), INDEX)
        here = [code.at(start, step) for start in starts]
        first = code.at(b, builder.mul(builder.mul(s, inner), bk))

        def body(k: Any, sums: list[Any]) -> list[Any]:
            row = code.at(first, builder.mul(k, bk))
            right = [code.load(builder.add(row, INDEX(v * TILE_BYTES)), code.vector) for v in range(across)]
            places = [builder.add(k, skip) for skip in skips]
            result = []
            for r in range(height):
                address = code.at(here[r % pointers], places[r // pointers])
                left = code.spread(code.load(address, code.number))
                result += [code.step(left, right[v], sums[r * across + v]) for v in range(across)]
            return result

        return code.loop(inner, sums, body)

    sums = code.loop(segments, [code.zero] * (height * across), segment)
    last = [code.load(builder.add(bias, INDEX(v * TILE_BYTES)), code.vector) for v in range(across)]
    for r in range(height):
        row = code.at(c, builder.mul(cr, INDEX(r)))
        for v in range(across):
            code.store(builder.fadd(sums[r * across + v], last[v]), builder.add(row, INDEX(v * TILE_BYTES)))


@intrinsic
def _stencil_tile(typing: Any, like: Any, vectors: Any, a: Any, ar: Any, steps: Any, segments: Any, inner: Any, b: Any,
                  bk: Any, bias: Any, c: Any, cr: Any) -> Any:  # fmt: skip
    """One tile of `stencil`: HEIGHTS[vectors - 1] rows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype, TILE_BYTES)
        code.choose(args[1], MAX_VECTORS, lambda n: _write_tile(code, args[2:], n, HEIGHTS[n - 1], HEIGHTS[n - 1]))
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 11), generate


@intrinsic
def _tall_tile(typing: Any, like: Any, a: Any, ar: Any, steps: Any, segments: Any, inner: Any, b: Any, bk: Any, bias: Any,
               c: Any, cr: Any) -> Any:  # fmt: skip
    """One tile of `stencil`: TALL rows of one vector."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _write_tile(Code(context, builder, like.dtype, TILE_BYTES), args[1:], 1, TALL, POINTERS)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 10), generate


@njit(nogil=True, cache=True)
def stencil(like, rows, vectors, a, ar, steps, inner, b, bk, bias, c, cr):
    """Write `C[r, :] = sum_s sum_(k < inner) A[r ar + steps[s] + k] B[s inner + k, :] + bias` for r < rows, in whole tiles.

    A, B, C and the bias are addresses; the rows of B and C are `bk` and `cr` apart, and `vectors` vectors of C are written.
    """
    height, r, itemsize = HEIGHTS[vectors - 1], 0, like.itemsize
    while vectors == 1 and (height < rows - r <= TALL or rows - r > 2 * height):
        _tall_tile(like, a + r * ar * itemsize, ar, steps.ctypes.data, steps.size, inner, b, bk, bias,
                   c + r * cr * itemsize, cr)  # fmt: skip
        r += TALL
    for row in range(r, rows, height):
        _stencil_tile(like, vectors, a + row * ar * itemsize, ar, steps.ctypes.data, steps.size, inner, b, bk, bias,
                      c + row * cr * itemsize, cr)  # fmt: skip


@njit(nogil=True, cache=True)
def convolve(x, packed, bias, region, c, m, phases, vectors, chunks, first, last, y):
    """Write `y[i, :] = sum_k p_k(i, x) filters[k, :] + bias`; y is (b, *extent, m).

    `packed` are the filters (chunks, k, width) and `bias` is (chunks, width). They serve `phases` vertices of a row together,
    so that few maps still fill a vector; 0 means that the rows of the product are the rows of the box, for a narrow region.
    """
    itemsize, steps, inner = x.itemsize, region.steps, region.inner
    width, tile = vectors * (TILE_BYTES // itemsize), HEIGHTS[vectors - 1] if vectors > 1 else TALL
    together = max(1, phases)
    high, wide = buffer_shape(region)
    buffer = np.zeros(region.size[0] * high * wide * c + (2 * tile * together + SPARE) * c + tile * wide * c, x.dtype)
    result = np.zeros((max(region.box[0], region.box[1]) + 2 * tile) * width + SPARE, x.dtype)
    for number in range(first, last):
        batch, t, y0, x0, rows, columns = box_at(region, number)
        load(x, c, region, batch, t, y0, x0, rows, columns, buffer)
        corner = (((batch * region.extent[0] + t) * region.extent[1] + y0) * region.extent[2] + x0) * m
        line = region.extent[2] * m
        # A product may be wider than its row in y, and goes in whole tiles. What it spills lies in the next rows, which
        # are written after it, except at the end of the box and between chunks: there it takes the way of `result`.
        spill = chunks > 1 and together * m != chunks * width
        step = tile if vectors > 1 else STEP
        direct = max(0, (columns * m - chunks * width) // (together * m) + 1) // step * step
        if spill or phases == 0 or direct < HEIGHTS[vectors - 1]:
            direct = 0
        for q in range(chunks):
            b, skip = packed.ctypes.data + q * steps.size * inner * width * itemsize, q * width
            one = bias.ctypes.data + skip * itemsize
            for r in range(rows if phases > 0 else columns):
                if phases > 0:
                    a, ar, lines, place, pitch = r * wide * c, phases * c, columns, corner + r * line, phases * m
                else:
                    a, ar, lines, place, pitch = r * c, wide * c, rows, corner + r * m, line
                groups = (lines + together - 1) // together
                left, out = buffer.ctypes.data + a * itemsize, y.ctypes.data + (place + skip) * itemsize
                stencil(x, direct, vectors, left, ar, steps, inner, b, width, one, out, pitch)
                if groups == direct:
                    continue
                left += direct * ar * itemsize
                stencil(x, groups - direct, vectors, left, ar, steps, inner, b, width, one, result.ctypes.data, width)
                for i in range(groups - direct):
                    begin = (direct + i) * together * m + skip  # numbers of this line of the box that are written
                    stop = min(width, together * m - skip, lines * m - begin)
                    target, source = np.uint64(place + (direct + i) * pitch + skip), np.uint64(i * width)
                    for column in range(np.uint64(max(0, stop))):
                        y[target + column] = result[source + column]


@njit(nogil=True, cache=True)
def filter_sums(x, g, region, c, m, vectors, chunks, padded, first, last, sums):
    """Add `sum_i P[i, s, k] g[i, :]` to `sums`, (chunks, segments, padded, width)."""
    itemsize, steps, inner = x.itemsize, region.steps, region.inner
    width = vectors * (TILE_BYTES // itemsize)
    high, wide = buffer_shape(region)
    buffer = np.zeros(region.size[0] * high * wide * c + SPARE * c, x.dtype)
    right = np.zeros(region.box[1] * m + width, x.dtype)
    for number in range(first, last):
        batch, t, y0, x0, rows, columns = box_at(region, number)
        load(x, c, region, batch, t, y0, x0, rows, columns, buffer)
        corner = ((batch * region.extent[0] + t) * region.extent[1] + y0) * region.extent[2] + x0
        for r in range(rows):
            begin = (corner + r * region.extent[2]) * m
            lines = g.ctypes.data + begin * itemsize
            if begin + columns * m + width > g.size:  # whole vectors would read beyond the end
                for at in range(np.uint64(columns * m)):
                    right[at] = g[np.uint64(begin) + at]
                lines = right.ctypes.data
            for i in range(0, columns, STRIP):
                count = min(STRIP, columns - i)
                for q in range(chunks):
                    b = lines + (i * m + q * width) * itemsize
                    for s in range(steps.size):
                        a = buffer.ctypes.data + ((r * wide + i) * c + steps[s]) * itemsize
                        out = sums.ctypes.data + (q * steps.size + s) * padded * width * itemsize
                        product(x, inner, vectors, a, 1, c, b, m, out, width, count, 1)


@njit(nogil=True, cache=True)
def shared(x, taps, region, c, first, last, y):
    """Write `y[i, :] = sum_l taps[l] x[j_l, :]`; every tap is a segment; y is (b, *extent, c)."""
    steps = region.steps
    high, wide = buffer_shape(region)
    buffer = np.zeros(region.size[0] * high * wide * c, x.dtype)
    for number in range(first, last):
        batch, t, y0, x0, rows, columns = box_at(region, number)
        load(x, c, region, batch, t, y0, x0, rows, columns, buffer)
        corner = ((batch * region.extent[0] + t) * region.extent[1] + y0) * region.extent[2] + x0
        for r in range(rows):
            out = np.uint64((corner + r * region.extent[2]) * c)
            fill(y, out, out + np.uint64(columns * c))
            for tap in range(steps.size):
                factor, source = taps[tap], np.uint64(r * wide * c + steps[tap])
                for k in range(np.uint64(columns * c)):
                    y[out + k] += factor * buffer[source + k]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def tap_sums(x, g, region, c, first, last, sums):
    """Add `sum_i <x[j_l], g[i]>` to sums[l]; every tap is a segment."""
    steps = region.steps
    high, wide = buffer_shape(region)
    buffer = np.zeros(region.size[0] * high * wide * c, x.dtype)
    for number in range(first, last):
        batch, t, y0, x0, rows, columns = box_at(region, number)
        load(x, c, region, batch, t, y0, x0, rows, columns, buffer)
        corner = ((batch * region.extent[0] + t) * region.extent[1] + y0) * region.extent[2] + x0
        for r in range(rows):
            other = np.uint64((corner + r * region.extent[2]) * c)
            for tap in range(steps.size):
                total, source = x.dtype.type(0), np.uint64(r * wide * c + steps[tap])
                for k in range(np.uint64(columns * c)):
                    total += buffer[source + k] * g[other + k]
                sums[tap] += total


@njit(nogil=True, cache=True)
def fold(part, shape, places, start, origin, extent, c, out):
    """Add values at places outside of the lattice, (b, *extent, c), to the vertices at these places."""
    depth, h, w = shape
    at = 0
    for batch in range(part.size // (extent[0] * extent[1] * extent[2] * c)):
        for t in range(extent[0]):
            plane = batch * depth + places[start[0] + origin[0] + t]
            for y in range(extent[1]):
                line = plane * h + places[start[1] + origin[1] + y]
                for x in range(extent[2]):
                    vertex = line * w + places[start[2] + origin[2] + x]
                    for channel in range(c):
                        out[vertex * c + channel] += part[at]
                        at += 1
