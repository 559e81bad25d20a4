"""The loops of the total variation: its value and its slope in one pass over the rows of an image.

`image` and `slope` are flat, (h, row) with `row = w c`. Rows `first` to `last - 1` are done; any cut gives the same
numbers.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _distance(image, a, b, count):
    """Sum `|x[a + i] - x[b + i]|`, i < count.

    A loop that only reads: one that also writes is compiled twice, and the addresses of its arrays decide which of the
    two runs. Their sums have different orders.
    """
    total = image.dtype.type(0)
    for i in range(np.uint64(count)):
        total += abs(image[np.uint64(a) + i] - image[np.uint64(b) + i])
    return total


@njit(nogil=True, cache=True)
def variation(image, h, row, c, first, last, slope, totals):
    """Write `sum_j sign(x_i - x_j)` over the neighbours j of i to slope[i].

    The sum of `|x_i - x_j|` inside of row y and to the row above goes to totals[y].
    """
    zero, step, below = image.dtype.type(0), np.uint64(c), np.uint64(row)
    for y in range(first, last):
        begin, end = np.uint64(y * row), np.uint64((y + 1) * row)
        for at in range(begin, end):
            slope[at] = zero
        for at in range(begin + step, end):
            e = image[at] - image[at - step]
            slope[at] += image.dtype.type(e > 0) - image.dtype.type(e < 0)
        for at in range(begin, end - step):
            e = image[at + step] - image[at]
            slope[at] -= image.dtype.type(e > 0) - image.dtype.type(e < 0)
        if y > 0:
            for at in range(begin, end):
                e = image[at] - image[at - below]
                slope[at] += image.dtype.type(e > 0) - image.dtype.type(e < 0)
        if y < h - 1:
            for at in range(begin, end):
                e = image[at + below] - image[at]
                slope[at] -= image.dtype.type(e > 0) - image.dtype.type(e < 0)
        totals[y] = _distance(image, y * row + c, y * row, row - c)
        if y > 0:
            totals[y] += _distance(image, y * row, (y - 1) * row, row)
