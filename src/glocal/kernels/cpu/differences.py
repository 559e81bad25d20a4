"""The loops of the total variation: its value and its slope in one pass over the rows of an image.

`image` and `slope` are flat, (h, row) with `row = w c`. Rows `first` to `last - 1` are done; any cut gives the same
numbers.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import numpy as np

from glocal.kernels.cpu.compiled import njit


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
def _slope(image, row, c, begin, count, above, below, slope):
    """Write the slopes of `count` pixels that have a left and a right neighbour; `above` and `below` are 0 or 1."""
    up, down = (
        np.uint64(above * row),
        np.uint64(below * row),
    )  # without such a neighbour a pixel is compared with itself
    for at in range(np.uint64(begin), np.uint64(begin + count)):
        x = image[at]
        left, right = x - image[at - np.uint64(c)], x - image[at + np.uint64(c)]
        over, under = x - image[at - up], x - image[at + down]
        total = np.int32(left > 0) - np.int32(left < 0) + np.int32(right > 0) - np.int32(right < 0)
        total += np.int32(over > 0) - np.int32(over < 0) + np.int32(under > 0) - np.int32(under < 0)
        slope[at] = total


@njit(nogil=True, cache=True)
def variation(image, h, row, c, first, last, slope, totals):
    """Write `sum_j sign(x_i - x_j)` over the neighbours j of i to slope[i].

    The sum of `|x_i - x_j|` inside of row y and to the row above goes to totals[y].
    """
    for y in range(first, last):
        begin, above, below = y * row, int(y > 0), int(y < h - 1)
        _slope(image, row, c, begin + c, row - 2 * c, above, below, slope)
        for channel in range(c):  # the first and the last pixel of the row
            for at, side in ((begin + channel, c), (begin + row - c + channel, -c)):
                x, total = image[at], 0
                for other in (at - above * row, at + below * row, at + (side if row > c else 0)):
                    total += int(x > image[other]) - int(x < image[other])
                slope[at] = total
        totals[y] = _distance(image, begin + c, begin, row - c)
        if y > 0:
            totals[y] += _distance(image, begin, begin - row, row)
