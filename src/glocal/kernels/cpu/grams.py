"""The loops of the Gram matrix of random features, `F'F` with `F = max(0, conv(x) + bias)`, and of its backward pass.

Everything about a block of `BLOCK` vertices lies with the vertices along the rows: its patches are (1 + k, BLOCK), its
maps (m, BLOCK). So every product has vertices in its vectors, of which there are as many as we please: no vector is
filled up with zeros, whatever m and k are. Rows are filled up to whole tiles.

The first row of the patches is 1, for the bias, so that sums begin with it. Added last, it would be rounded the same way
at nearly all vertices, an error that the Gram matrix does not average out.

A run is a tap whose neighbours of `RUN` vertices in a row are themselves in a row, as nearly all are on a grid; it is
copied as a whole. `runs[r d + l]` says it of tap l and the vertices from `r RUN` on. For a graph with runs `x` and its
gradient are (c, s), else (s, c), with s sources. Other names as in `convolve`; there is one batch.

`shares` (r, n) are the weights of the vertices in each of r regions, or empty. The maps are computed once for all regions,
and a block is added only to the regions that have a part of it.

Where a map changes its sign the gradient jumps, so a rounding error there is not a small one. `fine` is the signal
(n, c) in a higher precision than `x`: it decides the sign of what comes out nearer to 0 than `near`, which is 0 where
there is none.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.packing import fill
from glocal.kernels.cpu.tiles import ACROSS, ROWS, RUN, TILE_BYTES, add_run, copy_run, dots, product

BLOCK = 120 * (TILE_BYTES // 32)  # vertices: whole runs, and whole tiles of float32 and of float64
HEIGHT = ROWS[ACROSS - 1]
TRACE = 1e-18  # of what is near 0: what a map becomes that is positive, but not in the precision of `x`


@njit(nogil=True, cache=True)
def padded(rows, height):
    """Rows of whole tiles."""
    return (rows + height - 1) // height * height


@njit(nogil=True, cache=True)
def pack(matrix, rows, columns, sr, sc):
    """Lay a (rows, columns) matrix out with zeros at the ends of its rows, so that they are left sides of whole tiles.

    Its rows are `sr` apart and its columns `sc`, so it may be stored transposed.
    """
    width = padded(columns, HEIGHT)
    out = np.zeros(rows * width, matrix.dtype)
    for r in range(rows):
        for column in range(columns):
            out[r * width + column] = matrix[r * sr + column * sc]
    return out


@njit(nogil=True, cache=True)
def sums_size(m, itemsize):
    """Numbers in the sums of one part: a vector for each entry of the upper tiles."""
    tiles = (m + ACROSS - 1) // ACROSS
    return tiles * (tiles + 1) // 2 * ACROSS * ACROSS * (TILE_BYTES // itemsize)


@njit(nogil=True, cache=True)
def map_rows(m):
    """Rows of the maps of a block, for the tiles of both products."""
    return max(padded(m, HEIGHT), padded(m, ACROSS))


@njit(nogil=True, cache=True)
def find_runs(neighbors, n, d, runs):
    """Set runs[r d + l] to 1 where tap l of the vertices from `r RUN` on is a run, and return the share of runs."""
    count = 0
    for r in range(n // RUN):
        for tap in range(d):
            e = r * RUN * d + tap
            whole = 1
            for t in range(1, RUN):
                if neighbors[e + t * d] != neighbors[e] + t:
                    whole = 0
                    break
            runs[r * d + tap] = whole
            count += whole
    return count / max(1, n // RUN * d)


@njit(nogil=True, cache=True)
def _gather(x, neighbors, weights, d, c, i0, count, out):
    """Write the patches of `count` vertices from i0 on, as (1 + d c, BLOCK); x is (n, c). The first row is left alone."""
    one, two, step = np.uint64(1), np.uint64(2), np.uint64(BLOCK)
    for i in range(np.uint64(count)):
        at, e0 = np.uint64(i) + step, (np.uint64(i0) + i) * np.uint64(d)
        for e in range(e0, e0 + np.uint64(d)):
            row, w = np.uint64(neighbors[e]) * np.uint64(c), weights[e] if weights.size else x.dtype.type(1)
            if c == 3:
                out[at] = w * x[row]
                out[at + step] = w * x[row + one]
                out[at + two * step] = w * x[row + two]
            else:
                for channel in range(np.uint64(c)):
                    out[at + channel * step] = w * x[row + channel]
            at = at + step * np.uint64(c)


@njit(nogil=True, cache=True)
def _still(neighbors, e, d):
    """Whether the run that begins with edge e ends where a run ends: neighbours may have been written to."""
    return neighbors[e + np.uint64((RUN - 1) * d)] == neighbors[e] + (RUN - 1)


@njit(nogil=True, cache=True)
def _gather_runs(x, neighbors, runs, s, d, c, i0, count, out):
    """As `_gather`, run by run; x is (c, s)."""
    size = x.itemsize
    for first in range(0, count, RUN):
        for tap in range(d):
            e, at = np.uint64((i0 + first) * d + tap), (1 + tap * c) * BLOCK + first
            if runs[np.uint64((i0 + first) // RUN * d + tap)] and _still(neighbors, e, d):
                source, target = x.ctypes.data + np.int64(neighbors[e]) * size, out.ctypes.data + at * size
                for channel in range(c):
                    copy_run(x, source + channel * s * size, target + channel * BLOCK * size)
                continue
            for t in range(np.uint64(min(RUN, count - first))):
                row = np.uint64(neighbors[e + t * np.uint64(d)])
                for channel in range(np.uint64(c)):
                    out[np.uint64(at) + t + channel * np.uint64(BLOCK)] = x[row + channel * np.uint64(s)]


@njit(nogil=True, cache=True)
def _scatter(neighbors, weights, q, d, c, i0, count, low, out):
    """Add `w_il q[l c + channel, i]` to what `out`, an (n, c) from vertex `low` on, has of vertex j_l."""
    one, two, step = np.uint64(1), np.uint64(2), np.uint64(BLOCK)
    for i in range(np.uint64(count)):
        at, e0 = np.uint64(i), (np.uint64(i0) + i) * np.uint64(d)
        for e in range(e0, e0 + np.uint64(d)):
            row = np.uint64(np.int64(neighbors[e]) - low) * np.uint64(c)
            w = weights[e] if weights.size else q.dtype.type(1)
            if c == 3:
                out[row] += w * q[at]
                out[row + one] += w * q[at + step]
                out[row + two] += w * q[at + two * step]
            else:
                for channel in range(np.uint64(c)):
                    out[row + channel] += w * q[at + channel * step]
            at = at + step * np.uint64(c)


@njit(nogil=True, cache=True)
def _scatter_runs(neighbors, runs, q, d, c, i0, count, low, out):
    """As `_scatter`, run by run; `out` is (c, length) from vertex `low` on."""
    size, length = q.itemsize, out.size // c
    for first in range(0, count, RUN):
        for tap in range(d):
            e, at = np.uint64((i0 + first) * d + tap), tap * c * BLOCK + first
            if runs[np.uint64((i0 + first) // RUN * d + tap)] and _still(neighbors, e, d):
                source, target = q.ctypes.data + at * size, out.ctypes.data + (np.int64(neighbors[e]) - low) * size
                for channel in range(c):
                    add_run(q, source + channel * BLOCK * size, target + channel * length * size)
                continue
            for t in range(np.uint64(min(RUN, count - first))):
                row = np.uint64(np.int64(neighbors[e + t * np.uint64(d)]) - low)
                for channel in range(np.uint64(c)):
                    out[row + channel * np.uint64(length)] += q[np.uint64(at) + t + channel * np.uint64(BLOCK)]


@njit(nogil=True, cache=True)
def _multiply(like, rows, a, b, c, count):
    """Write `C = A' B`: A is (count, rows) as by `pack`, B (count, BLOCK), C (rows, BLOCK)."""
    wide, width = ACROSS * TILE_BYTES, padded(rows, HEIGHT)
    for shift in range(0, BLOCK * like.itemsize, wide):
        product(like, rows, ACROSS, a, 1, width, b + shift, BLOCK, c + shift, BLOCK, count, 0)


@njit(nogil=True, cache=True)
def _exact(fine, neighbors, weights, packed, width, d, c, i, r):
    """Compute one map of one vertex, before the non-linearity, in the precision of `fine`."""
    total = fine.dtype.type(packed[r])
    for tap in range(d):
        e = i * d + tap
        w = fine.dtype.type(weights[e] if weights.size else 1)
        for channel in range(c):
            total += w * fine[np.int64(neighbors[e]) * c + channel] * packed[(1 + tap * c + channel) * width + r]
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _rectify(maps, row, near):
    """Set the negative maps of a row to 0, but leave and count those that come nearer to 0 than `near`.

    What is exactly 0 counts too, and becomes a trace more. The count is of the maps' own type, so that the loop is
    vectors of it.
    """
    one, zero = maps.dtype.type(1), maps.dtype.type(0)
    count, trace = zero, near * maps.dtype.type(TRACE)
    for i in range(np.uint64(BLOCK)):
        value = maps[row + i] + trace
        count += one if abs(value) < near else zero
        maps[row + i] = zero if value <= -near else value  # NaN stays NaN
    return count


@njit(nogil=True, cache=True)
def forward(x, fine, near, neighbors, weights, runs, packed, shares, n, d, c, m, first, last, maps, sums):
    """Write the maps of the blocks `first` to `last - 1`, and the sums of their upper products, region by region.

    `packed` are the bias and the filters, (1 + k, m). Maps r nearer to 0 than `near[r]` get their sign from `fine`.
    """
    k, itemsize, rows = d * c, x.itemsize, map_rows(m)
    patches = np.zeros((1 + k) * BLOCK, x.dtype)
    patches[:BLOCK] = 1
    part = np.zeros(rows * BLOCK if shares.size else 0, x.dtype)
    regions = shares.size // max(1, n)
    size = sums.size // max(1, regions)
    fill(sums, 0, sums.size)
    for number in range(first, last):
        i0 = number * BLOCK
        count = min(n, i0 + BLOCK) - i0
        if runs.size:
            _gather_runs(x, neighbors, runs, x.size // c, d, c, i0, count, patches)
        else:
            _gather(x, neighbors, weights, d, c, i0, count, patches)
        begin = number * rows * BLOCK
        f = maps.ctypes.data + begin * itemsize
        _multiply(x, m, packed.ctypes.data, np.int64(patches.ctypes.data), f, 1 + k)
        fill(maps, begin + m * BLOCK, begin + rows * BLOCK)
        for r in range(m):
            row = np.uint64(begin + r * BLOCK)
            if _rectify(maps, row, near[r]) > 0:
                for i in range(np.uint64(count)):
                    if maps[row + i] != 0 and abs(maps[row + i]) < near[r]:
                        exact = _exact(fine, neighbors, weights, packed, padded(m, HEIGHT), d, c, i0 + np.int64(i), r)
                        trace = max(near[r] * x.dtype.type(TRACE), x.dtype.type(1e-37))
                        maps[row + i] = max(maps[row + i], trace) if exact > 0 else x.dtype.type(0)
            fill(maps, begin + r * BLOCK + count, begin + (r + 1) * BLOCK)
        if not shares.size:
            _add_products(x, f, f, m, sums)
        for region in range(regions):
            if _has(shares, region * n + i0, count):
                _weigh(maps, begin, shares, region * n + i0, m, count, part)
                _add_products(x, f, np.int64(part.ctypes.data), m, sums[region * size : (region + 1) * size])


@njit(nogil=True, cache=True)
def _has(shares, first, count):
    """Whether some vertex of a block belongs to a region, whose shares begin at `first`."""
    for i in range(np.uint64(first), np.uint64(first + count)):  # noqa: SIM110  (Numba compiles no generators)
        if shares[i] != 0:
            return True
    return False


@njit(nogil=True, cache=True)
def _weigh(maps, begin, shares, first, m, count, out):
    """Write the maps (m, BLOCK) of a block times the shares of its vertices."""
    for row in range(m):
        at, to = np.uint64(begin + row * BLOCK), np.uint64(row * BLOCK)
        for i in range(np.uint64(count)):
            out[to + i] = maps[at + i] * shares[np.uint64(first) + i]
        fill(out, row * BLOCK + count, (row + 1) * BLOCK)


@njit(nogil=True, cache=True)
def _add_products(like, maps, others, m, sums):
    """Add the products of the rows of the maps with those of others, tile by tile, without those below the diagonal."""
    tiles = (m + ACROSS - 1) // ACROSS
    step, out = ACROSS * BLOCK * like.itemsize, sums.ctypes.data
    for p in range(tiles):
        for q in range(p, tiles):
            dots(like, maps + p * step, others + q * step, BLOCK, out, BLOCK * like.itemsize // TILE_BYTES)
            out += ACROSS * ACROSS * TILE_BYTES


@njit(nogil=True, cache=True)
def assemble(sums, m, size):
    """Lay the sums of `forward`, in vectors of `size` lanes, out as the whole symmetric matrix."""
    tiles = (m + ACROSS - 1) // ACROSS
    out = np.empty((m, m), sums.dtype)
    at = 0
    for p in range(tiles):
        for q in range(p, tiles):
            for r in range(p * ACROSS, (p + 1) * ACROSS):
                for s in range(q * ACROSS, (q + 1) * ACROSS):
                    total = sums.dtype.type(0)
                    for lane in range(size):
                        total += sums[at + lane]
                    at += size
                    if r < m and s < m:
                        out[r, s] = total
                        out[s, r] = total
    return out


@njit(nogil=True, cache=True)
def backward(maps, neighbors, weights, runs, sides, packed, shares, n, d, c, m, first, last, low, signal):
    """Write to `signal`, whose first vertex is `low`, what the blocks add to the gradient of x.

    `F (H + H')` where F > 0 is the gradient of the convolution, with H the gradient of the Gram matrix; `sides` is
    `H + H'` packed as (m, m), one after the other for the regions, `packed` are the filters as (m, k).
    """
    k, itemsize, rows = d * c, maps.itemsize, map_rows(m)
    g = np.zeros(padded(m, HEIGHT) * BLOCK, maps.dtype)
    q = np.zeros(padded(k, HEIGHT) * BLOCK, maps.dtype)
    part = np.zeros(g.size if shares.size else 0, maps.dtype)
    regions = shares.size // max(1, n)
    size = sides.size // max(1, regions) * itemsize
    fill(signal, 0, signal.size)
    for number in range(first, last):
        i0 = number * BLOCK
        count = min(n, i0 + BLOCK) - i0
        begin = number * rows * BLOCK
        f, left = maps.ctypes.data + begin * itemsize, sides.ctypes.data
        if not shares.size:
            _multiply(maps, m, left, f, np.int64(g.ctypes.data), m)
        else:
            fill(g, 0, g.size)
        for region in range(regions):
            if _has(shares, region * n + i0, count):
                _multiply(maps, m, left + region * size, f, np.int64(part.ctypes.data), m)
                for row in range(m):
                    to = np.uint64(row * BLOCK)
                    for i in range(np.uint64(count)):
                        g[to + i] += part[to + i] * shares[np.uint64(region * n + i0) + i]
        for at in range(np.uint64(m * BLOCK)):
            g[at] = g[at] if maps[np.uint64(begin) + at] > 0 else maps.dtype.type(0)
        _multiply(maps, k, packed.ctypes.data, np.int64(g.ctypes.data), np.int64(q.ctypes.data), m)
        if runs.size:
            _scatter_runs(neighbors, runs, q, d, c, i0, count, low, signal)
        else:
            _scatter(neighbors, weights, q, d, c, i0, count, low, signal)
