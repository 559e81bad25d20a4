"""What a search with a coordinate term knows, and the search for the neighbours of one pixel alone.

For 16 candidates at a time there is a lower bound from patch means and coordinates, and the distance is computed only
where the bound leaves a doubt.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.neighbor_lists import Array, Lists, Picture, insert
from glocal.kernels.cpu.simd import bound_mask, float_bits, lowest_bit, point_distances

TINY = np.float32(1e-30)  # above what float32 loses by underflow


class Search(NamedTuple):
    """What all blocks share."""

    shifts: Array  # (m, 2), in the order to try them
    disc: int  # with a coordinate term, all shifts up to this squared length are among them; else -1
    reach_y: int
    reach_x: int
    factor: np.float32  # coords^2
    terms: Array  # terms[w + dx] = factor dx^2
    means: Array  # (c n,) patch sums / sqrt(patch area), for the bound
    relative: np.float32  # rounding of distance and bound
    absolute: np.float32


@njit(nogil=True, cache=True)
def nth_row(step: int) -> int:
    """0, -1, 1, -2, 2, ..."""
    return step // 2 if step % 2 == 0 else -(step + 1) // 2


@njit(nogil=True, cache=True)
def half_width(d2: np.float32, factor: np.float32, dy: int, reach: int) -> int:
    """At least the largest |dx| with `factor (dy^2 + dx^2) <= d2`, at most `reach`."""
    rest = np.float64(d2) / np.float64(factor) - dy * dy
    return int(min(math.sqrt(max(rest, 0.0)) + 1.0, float(reach)))


@njit(nogil=True, cache=True)
def _limit(d2: np.float32, relative: np.float32, absolute: np.float32) -> np.float32:
    """Return the largest bound of a candidate that is not farther than d2."""
    return d2 * relative + np.float32(math.sqrt(d2)) * absolute + absolute * absolute + TINY


@njit(nogil=True, cache=True)
def search_pixel(
    picture: Picture, lists: Lists, p: int, y: int, x: int, tried: int, search: Search, line: Array
) -> None:
    """Pixel (y, x), list p, tries every candidate farther than `tried` (squared), rows outward."""
    k, size, keys, worst, last, groups = lists
    flat, means, terms, factor = picture.flat, search.means, search.terms, search.factor
    w, row, plane = picture.w, picture.row, picture.plane
    final = p * size + k - 2
    limit = _limit(worst[p], search.relative, search.absolute)
    half = half_width(worst[p], factor, np.int64(0), search.reach_x)
    inner = int(math.sqrt(float(tried)))
    for step in range(2 * search.reach_y + 1):
        dy = nth_row(step)
        if factor * np.float32(dy * dy) > worst[p]:
            return
        while half > 0 and factor * np.float32(dy * dy + half * half) > worst[p]:  # no farther than half
            half -= 1
        while inner >= 0 and dy * dy + inner * inner > tried:  # up to inner they were tried
            inner -= 1
        if y + dy < 0 or y + dy >= picture.h:
            continue
        column, end = max(0, x - half), min(w, x + half + 1)
        near, far = (x - inner, x + inner + 1) if inner >= 0 else (end, end)
        if near <= column:
            column = max(column, far)
        while column < end:
            stop = near if column < near else end
            vertex = (y + dy) * w + column
            rest = limit - factor * np.float32(dy * dy)
            hits = bound_mask(means, y * w + x, vertex, picture.h * w, terms, w + column - x, rest, picture.channels)
            if stop - column < 16:
                hits &= (1 << (stop - column)) - 1
            if hits != 0:
                a = picture.origin + y * row + x
                b = picture.origin + (y + dy) * row + column
                point_distances(flat, a, b, row, plane, line, picture.channels, picture.ph, picture.pw)
                while hits != 0:
                    lane = lowest_bit(hits)
                    hits &= hits - 1
                    dx = column + lane - x
                    key = float_bits(line[lane] + factor * np.float32(dy * dy + dx * dx)) << 32 | (vertex + lane)
                    if key < keys[final]:
                        insert(keys, worst, last, k, size, groups, p, key)
                        limit = _limit(worst[p], search.relative, search.absolute)
            column = far if column < near and column + 16 >= near else column + 16
