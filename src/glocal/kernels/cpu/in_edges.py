"""The gradient of the signal of a graph convolution, gathered over the reversed graph `start, edges`.

It serves graphs whose edges reach so far that a copy of the gradient for each part would be too large. Arrays are as in
`convolve`.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.packing import row_chunking
from glocal.kernels.cpu.tiles import MAX_OUTPUTS, VECTOR_BYTES, dot_rows

SEGMENT = 64  # in-edges taken at a time


@njit(nogil=True, cache=True)
def signal_gradient(g, weights, packed, start, edges, n, s, d, c, m, first, last, out):
    """Add `sum_(edges (i, l) to j) w_il sum_m filters[l, :, m] g[i, m]` to out[j, :]; targets count over the batches.

    `packed` are the filters (d c, m) by `pack_overlapping`, or, where m is shorter than a vector, plain as (d, m, c).
    """
    itemsize = g.itemsize
    size = VECTOR_BYTES // itemsize
    chunks, _, width = row_chunking(m, itemsize)
    rows, taps, scales = np.empty(SEGMENT, np.int64), np.empty(SEGMENT, np.int64), np.ones(SEGMENT, g.dtype)
    stride = c * width if m >= size else c * m
    for target in range(first, last):
        batch = target // s
        j = target - batch * s
        for begin in range(start[j], start[j + 1], SEGMENT):
            count = min(SEGMENT, start[j + 1] - begin)
            for t in range(count):
                e = edges[begin + t]
                i = e // d
                rows[t] = (batch * n + i) * m
                taps[t] = (e - i * d) * stride
                if weights.size:
                    scales[t] = weights[e]
            if m < size:
                _signal_gradient_narrow(g, packed, rows, taps, scales, c, m, count, target * c, out)
                continue
            for q in range(chunks):
                columns = min(width, m - q * width)
                vectors = (columns + size - 1) // size
                x, f = g.ctypes.data + q * width * itemsize, packed.ctypes.data + q * d * c * width * itemsize
                for channel in range(0, c, MAX_OUTPUTS):
                    place = out.ctypes.data + (target * c + channel) * itemsize
                    dot_rows(
                        g, min(MAX_OUTPUTS, c - channel), vectors, x, rows.ctypes.data, scales.ctypes.data,
                        f + channel * width * itemsize, taps.ctypes.data, width, columns - size, place, count,
                    )  # fmt: skip


@njit(nogil=True, cache=True)
def _signal_gradient_narrow(g, filters, rows, taps, scales, c, m, count, place, out):
    for t in range(count):
        for column in range(m):
            value, tap = scales[t] * g[rows[t] + column], taps[t] + column * c
            for channel in range(c):
                out[place + channel] += value * filters[tap + channel]
