"""Weighted sums of rows and products of rows: the loops of the shared filter and of patch extraction.

Arrays and names are those of `convolve`: flat arrays, x (b, s, c), edge `e = i d + l` from vertex i to its neighbour
`j = neighbors[e]`. Each function does the vertices (or targets) `first` to `last - 1`, counted over the batches where
it has an output for each; any cut gives the same numbers.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.in_edges import SEGMENT
from glocal.kernels.cpu.packing import fill, row_chunking
from glocal.kernels.cpu.tiles import VECTOR_BYTES, sum_rows


@njit(nogil=True, cache=True)
def add_rows(x, rows, scales, count, c, place, out):
    """Add `sum_t scales[t] x[rows[t] : rows[t] + c]` to `out[place : place + c]`."""
    size = VECTOR_BYTES // x.itemsize
    chunks, _, width = row_chunking(c, x.itemsize)
    for q in range(chunks):
        begin = q * width
        columns = min(width, c - begin)
        if columns >= size:
            shift = begin * x.itemsize
            sum_rows(
                x, (columns + size - 1) // size, x.ctypes.data + shift, rows.ctypes.data, scales.ctypes.data,
                columns - size, out.ctypes.data + place * x.itemsize + shift, count,
            )  # fmt: skip
        else:
            add_few(x, rows, scales, count, begin, c, place, out)


@njit(nogil=True, cache=True, inline="always")
def add_few(x, rows, scales, count, begin, c, place, out):
    """Do the same for the columns `begin` to `c - 1`, which are fewer than a vector holds."""
    for column in range(begin, c):
        total = out[place + column]
        for t in range(count):
            total += scales[t] * x[rows[t] + column]
        out[place + column] = total


@njit(nogil=True, cache=True)
def shared_forward(x, neighbors, weights, taps, n, s, d, c, first, last, y):
    """Write `y[i, :] = sum_l taps[l] w_il x[j_l, :]`."""
    rows, scales = np.empty(d, np.int64), np.empty(d, x.dtype)
    for vertex in range(first, last):
        batch = vertex // n
        e0 = (vertex - batch * n) * d
        for tap in range(d):
            rows[tap] = (batch * s + neighbors[e0 + tap]) * c
            scales[tap] = taps[tap] * weights[e0 + tap] if weights.size else taps[tap]
        fill(y, vertex * c, (vertex + 1) * c)
        if c < VECTOR_BYTES // x.itemsize:
            add_few(x, rows, scales, d, 0, c, vertex * c, y)
        else:
            add_rows(x, rows, scales, d, c, vertex * c, y)


@njit(nogil=True, cache=True)
def gather_back(g, weights, taps, start, edges, n, s, d, c, first, last, out):
    """Write `out[j, :] = sum_(edges e = (i, l) to j) w_e taps[l] g[i, :]`, or w_e g[e, :] where `taps` is empty."""
    rows, scales = np.empty(SEGMENT, np.int64), np.empty(SEGMENT, g.dtype)
    for target in range(first, last):
        batch = target // s
        j = target - batch * s
        fill(out, target * c, (target + 1) * c)
        for begin in range(start[j], start[j + 1], SEGMENT):
            count = min(SEGMENT, start[j + 1] - begin)
            for t in range(count):
                e = np.int64(edges[begin + t])
                scale = weights[e] if weights.size else g.dtype.type(1)
                if taps.size:
                    # Most edges have 32-bit numbers; their division takes a third of the time.
                    i = np.int64(np.uint32(e) // np.uint32(d)) if edges.itemsize == 4 else e // d
                    rows[t] = (batch * n + i) * c
                    scales[t] = scale * taps[e - i * d]
                else:
                    rows[t] = (batch * n * d + e) * c
                    scales[t] = scale
            if c < VECTOR_BYTES // g.itemsize:
                add_few(g, rows, scales, count, 0, c, target * c, out)
            else:
                add_rows(g, rows, scales, count, c, target * c, out)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def edge_products(x, g, neighbors, n, s, d, c, patches, first, last, out):
    """Write `out[i, l] = sum over batches of <x[j_l, :], g[i, :]>`, or with g[i, l, :] where `patches` is 1."""
    batches = x.size // (s * c)
    for i in range(first, last):
        for e in range(i * d, (i + 1) * d):
            total = x.dtype.type(0)
            for batch in range(batches):
                row = np.uint64((batch * s + neighbors[e]) * c)
                other = np.uint64((batch * n * d + e) * c if patches else (batch * n + i) * c)
                for column in range(np.uint64(c)):
                    total += x[row + column] * g[other + column]
            out[e] = total


@njit(nogil=True, cache=True)
def tap_sums(products, weights, d, first, last, out):
    """Write `out[l] = sum_(first <= i < last) w_il products[i, l]`."""
    fill(out, 0, d)
    for i in range(first, last):
        for tap in range(d):
            e = i * d + tap
            out[tap] += products[e] * weights[e] if weights.size else products[e]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def squared_differences(x, rows, candidates, k, p, first, last, out):
    """Write `out[i, l] = |rows[j, :] - x[i, :]|^2` for `j = candidates[i, l]`; rows of p numbers."""
    for i in range(first, last):
        own = np.uint64(i * p)
        for e in range(i * k, (i + 1) * k):
            other, total = np.uint64(candidates[e] * p), x.dtype.type(0)
            for column in range(np.uint64(p)):
                away = rows[other + column] - x[own + column]
                total += away * away
            out[e] = total
