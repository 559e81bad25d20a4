"""The loops of the Gram matrix of random features, `F'F` with `F = max(0, conv(x) + bias)`, and of its backward pass.

The maps of a block are made, counted into the Gram matrix and stored while they are in the cache. Stored maps are
(blocks, chunks, block + SPARE, width), so that they are operands of the next product as they lie. Names as in
`convolve`; there is one batch.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np
from numba import njit

from glocal.kernels.convolve import SPARE, block_size, chunking, fill, gather, scatter
from glocal.kernels.tiles import VECTOR_BYTES, product


@njit(nogil=True, cache=True)
def maps_size(k, m, itemsize):
    """Numbers in the stored maps of one block."""
    chunks, _, width = chunking(m, itemsize)
    return chunks * (block_size(k) + SPARE) * width


@njit(nogil=True, cache=True)
def sums_size(m, itemsize):
    """Numbers in the sums of one part: for each pair of chunks as many strips as vectors, each padded by SPARE rows."""
    chunks, vectors, width = chunking(m, itemsize)
    return chunks * chunks * vectors * (VECTOR_BYTES // itemsize + SPARE) * width


@njit(nogil=True, cache=True)
def forward(x, neighbors, weights, packed, bias, n, d, c, m, first, last, maps, sums):
    """Write the maps of the blocks `first` to `last - 1` and add their upper products to `sums`.

    `packed` are the filters (k, m), `bias` is padded with zeros to the width of all chunks.
    """
    k, itemsize = d * c, x.itemsize
    chunks, vectors, width = chunking(m, itemsize)
    block = block_size(k)
    patches = np.zeros((block + SPARE) * k, x.dtype)
    for number in range(first, last):
        i0 = number * block
        count = min(n, i0 + block) - i0
        gather(x, neighbors, weights, d, c, i0, i0 + count, 0, patches)
        for q in range(chunks):
            begin = (number * chunks + q) * (block + SPARE) * width
            f = maps.ctypes.data + begin * itemsize
            b = packed.ctypes.data + q * k * width * itemsize
            product(x, count, vectors, patches.ctypes.data, k, 1, b, width, f, width, k, 0)
            for i in range(count):
                row = np.uint64(begin + i * width)
                for column in range(np.uint64(width)):
                    value = maps[row + column] + bias[np.uint64(q * width) + column]
                    maps[row + column] = max(value, x.dtype.type(0))
        _add_products(x, maps.ctypes.data + number * chunks * (block + SPARE) * width * itemsize, m, block, count, sums)


@njit(nogil=True, cache=True)
def _add_products(like, maps, m, block, count, sums):
    """Add `sum_i F[i, r] F[i, s]` for the vectors s that are not left of the vector of r."""
    itemsize = like.itemsize
    size = VECTOR_BYTES // itemsize
    chunks, vectors, width = chunking(m, itemsize)
    strip = (size + SPARE) * width
    for p in range(chunks):
        for q in range(p, chunks):
            a = maps + p * (block + SPARE) * width * itemsize
            b = maps + q * (block + SPARE) * width * itemsize
            for v in range(vectors):
                skip = v * VECTOR_BYTES if p == q else 0
                across = vectors - v if p == q else vectors
                c = sums.ctypes.data + ((p * chunks + q) * vectors + v) * strip * itemsize + skip
                product(like, size, across, a + v * VECTOR_BYTES, 1, width, b + skip, width, c, width, count, 1)


@njit(nogil=True, cache=True)
def assemble(sums, m):
    """Lay the sums of `forward` out as the whole symmetric matrix."""
    size = VECTOR_BYTES // sums.itemsize
    chunks, vectors, width = chunking(m, sums.itemsize)
    out = np.empty((m, m), sums.dtype)
    for r in range(m):
        p, row = r // width, r % width
        start = ((p * chunks) * vectors + row // size) * (size + SPARE) * width + row % size * width
        for s in range(r // size * size, m):
            q, column = s // width, s % width
            out[r, s] = sums[start + q * vectors * (size + SPARE) * width + column]
            out[s, r] = out[r, s]
    return out


@njit(nogil=True, cache=True)
def backward(maps, neighbors, weights, sides, packed, n, d, c, m, first, last, low, signal):
    """Write to `signal`, whose first row is the target `low`, what the blocks add to the gradient of x.

    `F (H + H')` where F > 0 is the gradient of the convolution, with H the gradient of the Gram matrix; `sides` is
    `H + H'` packed as (m, m), `packed` are the filters as (m, k).
    """
    k, itemsize = d * c, maps.itemsize
    chunks, vectors, width = chunking(m, itemsize)
    chunks_k, vectors_k, width_k = chunking(k, itemsize)
    block = block_size(k)
    rows = (block + SPARE) * width
    g = np.zeros(chunks * rows, maps.dtype)
    q = np.zeros((block + SPARE) * chunks_k * width_k, maps.dtype)
    fill(signal, 0, signal.size)
    for number in range(first, last):
        i0 = number * block
        count = min(n, i0 + block) - i0
        begin = number * chunks * rows
        f = maps.ctypes.data + begin * itemsize
        for p in range(chunks):
            target = g.ctypes.data + p * rows * itemsize
            _multiply(maps, f, sides.ctypes.data + p * m * width * itemsize, m, chunks, rows, width, count, vectors,
                      width, target, width)  # fmt: skip
            for at in range(np.uint64(p * rows), np.uint64(p * rows + count * width)):
                g[at] = g[at] if maps[np.uint64(begin) + at] > 0 else maps.dtype.type(0)
        for p in range(chunks_k):
            target = q.ctypes.data + p * width_k * itemsize
            _multiply(maps, g.ctypes.data, packed.ctypes.data + p * m * width_k * itemsize, m, chunks, rows, width,
                      count, vectors_k, width_k, target, chunks_k * width_k)  # fmt: skip
        scatter(neighbors, weights, q, d, c, chunks_k * width_k, i0, count, low, signal)


@njit(nogil=True, cache=True)
def _multiply(like, a, b, m, chunks, rows, width, count, vectors, bk, c, cr):
    """Write `C = A B` where the m columns of A lie in chunks."""
    for p in range(chunks):
        left, right = a + p * rows * like.itemsize, b + p * width * bk * like.itemsize
        product(like, count, vectors, left, width, 1, right, bk, c, cr, min(width, m - p * width), int(p > 0))
