"""How the operands of the graph convolution are laid out, so that every product is made of whole tiles.

The columns of a matrix are cut into chunks of at most `MAX_VECTORS` vectors; packed operands are (chunks, rows, width).
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.tiles import MAX_VECTORS, ROWS, TILE_BYTES, VECTOR_BYTES

SPARE = max(ROWS)  # rows that a tile may touch beyond the end


@njit(nogil=True, cache=True)
def chunking(m, itemsize):
    """Cut m columns of a product into chunks of equal width: (how many, vectors in each, columns in each)."""
    return _chunking(m, TILE_BYTES // itemsize)


@njit(nogil=True, cache=True)
def row_chunking(m, itemsize):
    """Cut the m numbers of a row, as `chunking` does."""
    return _chunking(m, VECTOR_BYTES // itemsize)


@njit(nogil=True, cache=True)
def _chunking(m, size):
    vectors = (m + size - 1) // size
    chunks = (vectors + MAX_VECTORS - 1) // MAX_VECTORS
    across = (vectors + chunks - 1) // chunks
    return (vectors + across - 1) // across, across, across * size


@njit(nogil=True, cache=True)
def block_size(k):
    """Vertices in a block, such that their patches of length k fit into the second-level cache."""
    return max(24, min(120, 60000 // k // 12 * 12))


@njit(nogil=True, cache=True)
def fill(out, first, last):
    """Set out[first : last] to 0; a slice would take a second to compile."""
    for at in range(np.uint64(first), np.uint64(last)):
        out[at] = 0


@njit(nogil=True, cache=True)
def pack(matrix, rows, columns, sr, sc):
    """Lay a (rows, columns) matrix out as (chunks, rows, width), filled with zeros.

    Its rows are `sr` apart and its columns `sc`, so it may be stored transposed.
    """
    chunks, _, width = chunking(columns, matrix.itemsize)
    out = np.zeros(chunks * rows * width, matrix.dtype)
    for r in range(rows):
        for column in range(columns):
            q = column // width
            out[(q * rows + r) * width + column - q * width] = matrix[r * sr + column * sc]
    return out


@njit(nogil=True, cache=True)
def _tile_numbers(rows, columns, itemsize):
    """Numbers in the whole tiles of a (rows, columns) product: what it costs to compute it."""
    chunks, vectors, width = chunking(columns, itemsize)
    height = ROWS[vectors - 1]
    return chunks * width * ((rows + height - 1) // height * height)


@njit(nogil=True, cache=True)
def turned(k, m, itemsize):
    """Whether the gradient of the filters is computed as (m, k): its tiles hold fewer numbers than those of (k, m)."""
    return _tile_numbers(m, k, itemsize) < _tile_numbers(k, m, itemsize)


@njit(nogil=True, cache=True)
def filters_size(k, m, itemsize):
    """Numbers in the gradient of the filters as `backward` lays it out."""
    rows, columns = (m, k) if turned(k, m, itemsize) else (k, m)
    chunks, _, width = chunking(columns, itemsize)
    return chunks * (rows + SPARE) * width


@njit(nogil=True, cache=True)
def unpack(sums, k, m):
    """Lay a gradient of the filters from `backward` out as a (k, m) matrix."""
    turn = turned(k, m, sums.itemsize)
    rows, columns = (m, k) if turn else (k, m)
    _, _, width = chunking(columns, sums.itemsize)
    out = np.empty(k * m, sums.dtype)
    for r in range(rows):
        for column in range(columns):
            q = column // width
            place = column * m + r if turn else r * m + column
            out[place] = sums[(q * (rows + SPARE) + r) * width + column - q * width]
    return out


@njit(nogil=True, cache=True)
def pack_overlapping(matrix, rows, m):
    """As `pack`, but the last vector holds the last columns, with zeros where the vector before has them too."""
    chunks, _, width = row_chunking(m, matrix.itemsize)
    size = VECTOR_BYTES // matrix.itemsize
    out = np.zeros(chunks * rows * width, matrix.dtype)
    tail = (m - 1) // size * size  # the first column of the last vector
    for r in range(rows):
        for column in range(m):
            q = column // width
            place = column - q * width + (size - (m - tail) if column >= tail else 0)
            out[(q * rows + r) * width + place] = matrix[r * m + column]
    return out
