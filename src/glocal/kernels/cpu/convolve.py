"""The loops of the graph convolution: blocks of vertices, patches that never leave the cache.

All arrays are flat and of one dtype. `x` is (b, s, c) with s sources, `neighbors` (n, d), `weights` (n, d) or empty for all 1,
`g` is the gradient of the output, (b, n, m), `k = d c` is the length of a patch.
Each function does the blocks (or targets) `first` to `last - 1`; any cut gives the same numbers.

Filters are packed as `packing` says. The functions `..._parts` do parts of the work until none is left, see `turns`.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.edges import edge_dots, edge_gradients, gather_rows, row_vectors, scatter_rows
from glocal.kernels.cpu.packing import SPARE, block_size, chunking, fill, turned
from glocal.kernels.cpu.tiles import ROWS, product
from glocal.kernels.cpu.turns import enter, finish, linger, take

STRIP = 40  # rows of a block whose gradient stays in the first-level cache


@njit(nogil=True, cache=True)
def gather(x, neighbors, weights, d, c, i0, i1, base, out):
    """Write the patches of the vertices i0 to i1 - 1, each d c long, into `out`; x starts at `base`."""
    at = np.uint64(0)  # unsigned: a signed index is tested for being negative at every use
    one, two, step = np.uint64(1), np.uint64(2), np.uint64(c)
    vectors = row_vectors(c, x.itemsize)
    if vectors > 0:
        first, ones, apart = i0 * d, np.ones(1, x.dtype), int(weights.size > 0)
        scales = weights.ctypes.data + first * x.itemsize if apart else ones.ctypes.data
        gather_rows(
            x, vectors, x.ctypes.data + base * x.itemsize, neighbors.ctypes.data + first * neighbors.itemsize,
            scales, apart, c, out.ctypes.data, (i1 - i0) * d,
        )  # fmt: skip
        ones[0] = 1  # used after the call: Numba frees an array after its last use, and an address is none
    elif c == 3 and weights.size:
        for e in range(np.uint64(i0 * d), np.uint64(i1 * d)):
            row, w = np.uint64(base + np.int64(neighbors[e]) * 3), weights[e]
            out[at] = w * x[row]
            out[at + one] = w * x[row + one]
            out[at + two] = w * x[row + two]
            at += step
    elif c == 3:
        for e in range(np.uint64(i0 * d), np.uint64(i1 * d)):
            row = np.uint64(base + np.int64(neighbors[e]) * 3)
            out[at] = x[row]
            out[at + one] = x[row + one]
            out[at + two] = x[row + two]
            at += step
    else:
        for e in range(np.uint64(i0 * d), np.uint64(i1 * d)):
            row = np.uint64(base + np.int64(neighbors[e]) * c)
            w = weights[e] if weights.size else x.dtype.type(1)
            for channel in range(step):
                out[at + channel] = w * x[row + channel]
            at += step


@njit(nogil=True, cache=True)
def forward(x, neighbors, weights, packed, bias, n, s, d, c, m, first, last, y):
    """Write `y[i, :] = bias + sum_k p_k(i, x) filters[k, :]`; `packed` are the filters (k, m), an empty bias is 0.

    Returns False, and stops, where a neighbour is none of the s sources.
    """
    k, itemsize = d * c, x.itemsize
    chunks, vectors, width = chunking(m, itemsize)
    block, height = block_size(k), ROWS[vectors - 1]
    blocks = (n + block - 1) // block
    patches = np.zeros((block + SPARE) * k, x.dtype)
    result = np.zeros((block + SPARE) * width, x.dtype)
    for number in range(first, last):
        batch = number // blocks
        i0 = (number - batch * blocks) * block
        count = min(n, i0 + block) - i0
        if outside(neighbors, i0 * d, (i0 + count) * d, 0, s):
            return False
        gather(x, neighbors, weights, d, c, i0, i0 + count, batch * s * c, patches)
        # A product is wider than m: it may spill into the next rows, which are written after it, but not into the next
        # block or chunk. So enough of the last rows of a block take the way through `result`.
        direct = max(0, count - width // m - 1) // height * height if chunks == 1 or m == chunks * width else 0
        left = patches.ctypes.data + direct * k * itemsize
        for q in range(chunks):
            b = packed.ctypes.data + q * k * width * itemsize
            out = (batch * n + i0) * m + q * width
            product(x, direct, vectors, patches.ctypes.data, k, 1, b, width, y.ctypes.data + out * itemsize, m, k, 0)
            product(x, count - direct, vectors, left, k, 1, b, width, result.ctypes.data, width, k, 0)
            columns = min(width, m - q * width)
            for i in range(count - direct):
                row, source = np.uint64(out + (direct + i) * m), np.uint64(i * width)
                for column in range(np.uint64(columns)):
                    y[row + column] = result[source + column]
        if bias.size:
            for i in range((batch * n + i0) * m, (batch * n + i0 + count) * m, m):
                for column in range(np.uint64(m)):
                    y[np.uint64(i) + column] += bias[column]
    return True


@njit(nogil=True, cache=True)
def forward_parts(turns, helps, x, neighbors, weights, packed, bias, n, s, d, c, m, cuts, y):
    """Take parts, which are the blocks from one of `cuts` to the next, and do `forward` for them."""
    enter(turns, helps)
    part: int = take(turns)
    while part < cuts.size - 1:
        done = forward(x, neighbors, weights, packed, bias, n, s, d, c, m, cuts[part], cuts[part + 1], y)
        finish(turns, done)
        part = take(turns)
    linger(turns, helps)


@njit(nogil=True, cache=True)
def backward_parts(turns, helps, x, neighbors, weights, packed, g, n, s, d, c, m, parts, blocks, cuts, lows, offsets,
                   signal, edge, filters):  # fmt: skip
    """Take parts, which are the blocks of a signal from one of `cuts` to the next, and do `backward` for them.

    Each part has its own copy of the filters' gradient, and of that of the signal: `offsets` says where it begins.
    """
    pieces, size, copy = cuts.size - 1, filters.size // parts, offsets[offsets.size - 1]
    enter(turns, helps)
    part: int = take(turns)
    while part < parts:
        batch = part // pieces
        piece = part - batch * pieces
        first, last = batch * blocks + cuts[piece], batch * blocks + cuts[piece + 1]
        begin, end = batch * copy + offsets[piece], batch * copy + offsets[piece + 1]
        if signal.size:
            fill(signal, begin, end)
        low, sources = (lows[piece], (end - begin) // c) if signal.size else (0, s)
        done = backward(x, neighbors, weights, packed, g, n, s, d, c, m, first, last, low, sources, begin, signal,
                        edge, part * size, filters)  # fmt: skip
        finish(turns, done)
        part = take(turns)
    linger(turns, helps)


@njit(nogil=True, cache=True)
def backward(
    x, neighbors, weights, packed, g, n, s, d, c, m, first, last, low, sources, begin, signal, edge, place, filters
):
    """Compute those gradients whose arrays are not empty, so that a block of g is read from the memory once.

    `q[i, l, :] = sum_m g[i, m] filters[l, :, m]` is g pulled back through the filters, which are `packed` as (m, k).
    `signal[j_l - low, :] += w_il q[i, l, :]` from `begin` on; `edge[batch, i, l] = <x[j_l], q[i, l]>`;
    `filters[k, :] += sum_i p_k(i, x) g[i, :]` from `place` on, laid out as (chunks, k + SPARE, width), or `turned`.
    Returns False, and stops, where a neighbour is none of the `sources` from `low` on.
    """
    k, itemsize = d * c, x.itemsize
    _, _, width = chunking(m, itemsize)
    chunks_k, _, width_k = chunking(k, itemsize)
    block = block_size(k)
    blocks = (n + block - 1) // block
    left = np.zeros((block + SPARE) * m + width, x.dtype)
    q = np.zeros((block + SPARE) * chunks_k * width_k, x.dtype)
    patches = np.zeros((block + SPARE) * k + max(SPARE, width_k), x.dtype)
    for number in range(first, last):
        batch = number // blocks
        i0 = (number - batch * blocks) * block
        count = min(n, i0 + block) - i0
        if outside(neighbors, i0 * d, (i0 + count) * d, low, sources):
            return False
        row = (batch * n + i0) * m
        rows = g.ctypes.data + row * itemsize
        if row + (count + SPARE) * m + width > g.size:  # whole tiles would read beyond the end
            for at in range(np.uint64(count * m)):
                left[at] = g[np.uint64(row) + at]
            rows = left.ctypes.data
        if signal.size or edge.size:
            _pull(x, rows, packed, k, m, count, q)
        if signal.size and filters.size and row_vectors(c, itemsize) > 0:
            _edge_gradients(x, neighbors, weights, q, d, c, chunks_k * width_k, i0, count, batch * s, batch * n * d,
                            low - begin // c, patches, signal, edge)  # fmt: skip
            _filter_products(x, patches, rows, k, m, count, filters.ctypes.data + place * itemsize)
            continue
        if filters.size:
            gather(x, neighbors, weights, d, c, i0, i0 + count, batch * s * c, patches)
            _filter_products(x, patches, rows, k, m, count, filters.ctypes.data + place * itemsize)
        if edge.size:
            _edge_products(x, neighbors, q, d, c, chunks_k * width_k, i0, count, batch * s, batch * n * d, edge)
        if signal.size:
            scatter(neighbors, weights, q, d, c, chunks_k * width_k, i0, count, low - begin // c, signal)
    return True


@njit(nogil=True, cache=True)
def _filter_products(x, patches, rows, k, m, count, out):
    """Add `sum_i p_k(i, x) g[i, :]` at the address `out`; columns beyond m belong to the next row of g, and are not used."""
    itemsize = x.itemsize
    if turned(k, m, itemsize):
        chunks, vectors, width = chunking(k, itemsize)
        for q in range(chunks):
            total = out + q * (m + SPARE) * width * itemsize
            for i in range(0, count, STRIP):
                a, b = rows + i * m * itemsize, patches.ctypes.data + (i * k + q * width) * itemsize
                product(x, m, vectors, a, 1, m, b, k, total, width, min(STRIP, count - i), 1)
        return
    chunks, vectors, width = chunking(m, itemsize)
    for q in range(chunks):
        total = out + q * (k + SPARE) * width * itemsize
        for i in range(0, count, STRIP):
            a, b = patches.ctypes.data + i * k * itemsize, rows + (i * m + q * width) * itemsize
            product(x, k, vectors, a, 1, k, b, m, total, width, min(STRIP, count - i), 1)


@njit(nogil=True, cache=True)
def _pull(x, rows, packed, k, m, count, q):
    """Write `q[i, :] = sum_m g[i, m] filters[:, m]`."""
    itemsize = x.itemsize
    chunks, vectors, width = chunking(k, itemsize)
    for chunk in range(chunks):
        b, result = packed.ctypes.data + chunk * m * width * itemsize, q.ctypes.data + chunk * width * itemsize
        product(x, count, vectors, rows, m, 1, b, width, result, chunks * width, m, 0)


@njit(nogil=True, cache=True)
def _edge_gradients(x, neighbors, weights, q, d, c, stride, i0, count, base, place, low, patches, signal, edge):
    """Do `gather`, `_edge_products` (if `edge` is not empty) and `scatter` in one pass over the edges."""
    size, ones, apart, first = x.itemsize, np.ones(1, x.dtype), int(weights.size > 0), i0 * d
    edge_gradients(
        x, row_vectors(c, size), x.ctypes.data + base * c * size, q.ctypes.data, stride,
        neighbors.ctypes.data + first * neighbors.itemsize,
        weights.ctypes.data + first * size if apart else ones.ctypes.data, apart, c, patches.ctypes.data,
        signal.ctypes.data - low * c * size, edge.ctypes.data + (place + first) * size, int(edge.size > 0), count, d,
    )  # fmt: skip
    ones[0] = 1  # as in `gather`


@njit(nogil=True, cache=True)
def _edge_products(x, neighbors, q, d, c, stride, i0, count, base, place, out):
    vectors, size = row_vectors(c, x.itemsize), x.itemsize
    if vectors > 0:
        for i in range(count):
            e = (i0 + i) * d
            edge_dots(
                x, vectors, x.ctypes.data + base * c * size, neighbors.ctypes.data + e * neighbors.itemsize,
                q.ctypes.data + i * stride * size, c, out.ctypes.data + (place + e) * size, d,
            )  # fmt: skip
        return
    for i in range(count):
        for tap in range(d):
            e = np.uint64((i0 + i) * d + tap)
            row, at = np.uint64((base + np.int64(neighbors[e])) * c), np.uint64(i * stride + tap * c)
            total = x.dtype.type(0)
            for channel in range(np.uint64(c)):
                total += x[row + channel] * q[at + channel]
            out[np.uint64(place) + e] = total


@njit(nogil=True, cache=True)
def scatter(neighbors, weights, q, d, c, stride, i0, count, low, out):
    """Add `w_il q[i, l, :]` to out[j_l - low, :] for `count` vertices from i0; the rows of q are `stride` apart."""
    one, two = np.uint64(1), np.uint64(2)
    vectors, size = row_vectors(c, q.itemsize), q.itemsize
    if vectors > 0:
        ones, apart = np.ones(1, q.dtype), int(weights.size > 0)
        for i in range(count):
            e = (i0 + i) * d
            scales = weights.ctypes.data + e * size if apart else ones.ctypes.data
            scatter_rows(
                q, vectors, q.ctypes.data + i * stride * size, neighbors.ctypes.data + e * neighbors.itemsize,
                scales, apart, c, out.ctypes.data - low * c * size, d,
            )  # fmt: skip
        ones[0] = 1  # as in `gather`
        return
    for i in range(count):
        for tap in range(d):
            e = np.uint64((i0 + i) * d + tap)
            w = weights[e] if weights.size else q.dtype.type(1)
            row, at = np.uint64((np.int64(neighbors[e]) - low) * c), np.uint64(i * stride + tap * c)
            if c == 3:
                out[row] += w * q[at]
                out[row + one] += w * q[at + one]
                out[row + two] += w * q[at + two]
            else:
                for channel in range(np.uint64(c)):
                    out[row + channel] += w * q[at + channel]


@njit(nogil=True, cache=True)
def span(neighbors, e0, e1):
    """Find the smallest and the largest target of the edges e0 to e1 - 1."""
    low, high = neighbors[e0], neighbors[e0]
    for e in range(np.uint64(e0), np.uint64(e1)):
        low, high = min(low, neighbors[e]), max(high, neighbors[e])
    return np.int64(low), np.int64(high)


@njit(nogil=True, cache=True)
def outside(neighbors, e0, e1, low, sources):
    """Whether an edge of e0 to e1 - 1 points to another vertex than `low` to `low + sources - 1`."""
    least, most = span(neighbors, e0, e1)
    return least < low or most >= low + sources


@njit(nogil=True, cache=True)
def add_spans(parts, offsets, lows, j0, j1, c, planes, out):
    """Write to out[j, :], j0 <= j < j1, the sum of the parts that reach j, in their order.

    A part has the channels of a vertex side by side, or, where `planes` is 1, all vertices of a channel.
    """
    fill(out, j0 * c, j1 * c)
    for part in range(lows.size):
        low, length = lows[part], (offsets[part + 1] - offsets[part]) // c
        first, last = max(j0, low), min(j1, low + length)
        if planes == 0:
            shift = offsets[part] - low * c
            for at in range(first * c, last * c):
                out[np.uint64(at)] += parts[np.uint64(at + shift)]
            continue
        for channel in range(c):
            shift = offsets[part] + channel * length - low
            for j in range(first, last):
                out[np.uint64(j * c + channel)] += parts[np.uint64(j + shift)]


@njit(nogil=True, cache=True)
def count_sort(targets, start, edges):
    """Sort the edges 0, 1, ... by their targets, keeping their order: fill `start` (s + 1 zeros) and `edges`."""
    for e in range(targets.size):
        start[targets[e]] += 1
    total = 0
    for j in range(start.size):
        total += start[j]
        start[j] = total
    for e in range(targets.size - 1, -1, -1):  # from the end of each target's place back to its start
        j = targets[e]
        start[j] -= 1
        edges[start[j]] = e
