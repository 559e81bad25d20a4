"""The loops of L-BFGS: inner products of long vectors, and their combinations, piece by piece so that each is read once.

`vectors` is flat, (r, n). The pieces from `first` to `last` are done; any cut gives the same numbers but for the order in
which the sums of the cuts are added.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np

from glocal.kernels.cpu.compiled import njit

PIECE = 4096  # numbers of each vector that stay in the cache while they are used


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _dot(vectors, a, b, count):
    total = vectors.dtype.type(0)
    for i in range(np.uint64(count)):
        total += vectors[np.uint64(a) + i] * vectors[np.uint64(b) + i]
    return total


@njit(nogil=True, cache=True)
def products(vectors, n, some, first, last, out):
    """Add `<v_r, v_some[k]>` over the entries `first` to `last - 1` to out[r, k], in float64."""
    for begin in range(first, last, PIECE):
        count = min(PIECE, last - begin)
        for r in range(vectors.size // n):
            for k in range(some.size):
                out[r, k] += np.float64(_dot(vectors, r * n + begin, some[k] * n + begin, count))


@njit(nogil=True, cache=True)
def combine(vectors, n, factors, first, last, out):
    """Write `sum_r factors[r] v_r` to the entries `first` to `last - 1` of out; vectors whose factor is 0 are not read."""
    for begin in range(first, last, PIECE):
        end = min(last, begin + PIECE)
        for i in range(np.uint64(begin), np.uint64(end)):
            out[i] = 0
        for r in range(factors.size):
            factor, row = factors[r], np.uint64(r * n)
            if factor != 0:
                for i in range(np.uint64(begin), np.uint64(end)):
                    out[i] += factor * vectors[row + i]
