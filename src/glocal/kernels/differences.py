"""The loops of the total variation: its value and its slope in one pass over the rows of an image.

`image` and `slope` are flat, (h, row) with `row = w c`. Rows `first` to `last - 1` are done; any cut gives the same
numbers.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def variation(image, h, row, c, first, last, slope, totals):
    """Write `sum_j sign(x_i - x_j)` over the neighbours j of i to slope[i].

    The sum of `|x_i - x_j|` inside of row y and to the row above goes to totals[y].
    """
    zero, step, below = image.dtype.type(0), np.uint64(c), np.uint64(row)
    for y in range(first, last):
        begin, end, total = np.uint64(y * row), np.uint64((y + 1) * row), zero
        for at in range(begin, end):
            slope[at] = zero
        for at in range(begin + step, end):
            e = image[at] - image[at - step]
            total += abs(e)
            slope[at] += image.dtype.type(e > 0) - image.dtype.type(e < 0)
        for at in range(begin, end - step):
            e = image[at + step] - image[at]
            slope[at] -= image.dtype.type(e > 0) - image.dtype.type(e < 0)
        if y > 0:
            for at in range(begin, end):
                e = image[at] - image[at - below]
                total += abs(e)
                slope[at] += image.dtype.type(e > 0) - image.dtype.type(e < 0)
        if y < h - 1:
            for at in range(begin, end):
                e = image[at + below] - image[at]
                slope[at] -= image.dtype.type(e > 0) - image.dtype.type(e < 0)
        totals[y] = total
