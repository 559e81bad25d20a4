"""The scan of `neighbor_pairs`: all pairs of a tile at one shift, coarse or exact, and those found put into the lists.

The coarse scan works in 16-bit integers, rounded so that a sum is never too large: a lower bound. Pairs that it cannot
exclude are computed as the definition says.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from glocal.kernels.neighbor_lists import Array, Lists, Picture, insert
from glocal.kernels.simd import (
    at_most,
    column_sums,
    comes_before,
    constant,
    float_bits,
    lowest_bit,
    pair_distance,
    row_sums,
)

LANES = 64  # pairs tested at a time
FOUR, TWO = constant(4), constant(2)
TILE_ROWS, TILE_COLUMNS = 64, 128  # pairs scanned before those found are settled
LINE = 4096  # the same in one dimension
TINY = np.float32(1e-37)  # above what float32 loses by underflow


class Coarse(NamedTuple):
    """The picture in 16 bits, and the limits of its pixels: `(scale sqrt(worst) + offset)^2`."""

    flat: Array
    scale: np.float32
    offset: np.float32


class Memory(NamedTuple):
    """What a thread writes while it works."""

    lists: Lists
    limits: Array
    float_sums: Array
    short_sums: Array
    float_d2: Array
    short_d2: Array
    found: Array


@numba.njit(nogil=True, cache=True, forceinline=True)
def limit(worst: np.float32, scale: np.float32, offset: np.float32) -> np.uint16:
    """The largest coarse distance of a pair no farther than `worst`."""
    root = scale * np.float32(math.sqrt(worst + TINY)) + offset
    return np.uint16(min(root * root + np.float32(2.0), np.float32(65535.0)))


@numba.njit(nogil=True, cache=True, forceinline=True)
def _sum_columns(
    flat: Array, picture: Picture, start: int, shift: int, rows: int, width: int, lanes: int, sums: Array
) -> None:
    """Fill `rows` rows of `width` sums over the patch height."""
    if rows == 1 and len(picture.ph) == 1:  # vectors side by side instead of one below the other
        column_sums(
            flat,
            start,
            start + shift,
            lanes,
            picture.plane,
            width // lanes,
            sums,
            0,
            lanes,
            picture.channels,
            picture.ph,
        )
        return
    for j in range(0, width, lanes):
        column_sums(
            flat,
            start + j,
            start + j + shift,
            picture.row,
            picture.plane,
            rows,
            sums,
            j,
            width,
            picture.channels,
            picture.ph,
        )


@numba.njit(nogil=True, cache=True, forceinline=True)
def _append(found: Array, count: int, at: int, hits: int, columns: int) -> int:
    """Write down the pairs whose bits are set."""
    if columns < LANES:
        hits &= (1 << max(columns, 0)) - 1
    while hits != 0:
        found[count] = at + lowest_bit(hits)
        hits &= hits - 1
        count += 1
    return count


@numba.njit(nogil=True, cache=True)
def _scan_floats(picture: Picture, memory: Memory, start: int, shift: int, rows: int, columns: int) -> int:
    """Find the pairs of a tile that enter the list of one end."""
    worst, last, sums, d2 = memory.lists.worst, memory.lists.last, memory.float_sums, memory.float_d2
    width = (columns + LANES - 1) // LANES * LANES + (len(picture.pw) + 14) // 16 * 16
    _sum_columns(picture.flat, picture, picture.origin + start, shift, rows, width, 16, sums)
    zero = np.float32(0.0)
    count = 0
    for r in range(rows):
        for x in range(0, columns, LANES):
            row_sums(sums, r * width + x, d2, picture.pw, FOUR)
            t = start + r * picture.row + x
            if (at_most(d2, 0, worst, t, FOUR) | at_most(d2, 0, worst, t + shift, FOUR)) != 0:
                hits = comes_before(d2, 0, zero, t + shift, worst, last, t, FOUR)
                hits |= comes_before(d2, 0, zero, t, worst, last, t + shift, FOUR)
                count = _append(memory.found, count, t, hits, columns - x)
    return count


@numba.njit(nogil=True, cache=True)
def _scan_shorts(
    picture: Picture, coarse: Coarse, memory: Memory, start: int, shift: int, rows: int, columns: int
) -> int:
    """Find the pairs of a tile that may enter the list of one end."""
    limits, sums, d2 = memory.limits, memory.short_sums, memory.short_d2
    width = (columns + 2 * LANES - 1) // (2 * LANES) * (2 * LANES) + (len(picture.pw) + 30) // 32 * 32
    _sum_columns(coarse.flat, picture, picture.origin + start, shift, rows, width, 32, sums)
    count = 0
    for r in range(rows):
        for x in range(0, columns, 2 * LANES):
            row_sums(sums, r * width + x, d2, picture.pw, FOUR)
            t = start + r * picture.row + x
            near = at_most(d2, 0, limits, t, TWO) | at_most(d2, 0, limits, t + shift, TWO)
            t += LANES
            far = at_most(d2, LANES, limits, t, TWO) | at_most(d2, LANES, limits, t + shift, TWO)
            if (near | far) != 0:
                count = _append(memory.found, count, t - LANES, near, columns - x)
                count = _append(memory.found, count, t, far, columns - x - LANES)
    return count


@numba.njit(nogil=True, cache=True)
def _settle(picture: Picture, coarse: Coarse, memory: Memory, count: int, shift: int) -> None:
    """Compute the pairs that were found, and insert each into the lists of both ends."""
    k, size, keys, worst, last, groups = memory.lists
    found, limits, flat = memory.found, memory.limits, picture.flat
    for i in range(count):
        t = int(found[i])
        if worst[t] < 0 or worst[t + shift] < 0:  # columns between the rows
            continue
        a = picture.origin + t
        d2 = pair_distance(flat, a, a + shift, picture.row, picture.plane, picture.channels, picture.ph, picture.pw)
        bits = float_bits(d2) << 32
        if d2 <= worst[t]:
            insert(keys, worst, last, k, size, groups, t, bits | (t + shift))
            limits[t] = limit(worst[t], coarse.scale, coarse.offset)
        if d2 <= worst[t + shift]:
            insert(keys, worst, last, k, size, groups, t + shift, bits | t)
            limits[t + shift] = limit(worst[t + shift], coarse.scale, coarse.offset)


@numba.njit(nogil=True, cache=True)
def search(
    picture_fields: tuple[Any, ...],
    coarse_fields: tuple[Any, ...],
    list_fields: tuple[Any, ...],
    scratch: tuple[Array, ...],
    shifts: Array,
    exact: bool,
) -> float:
    """Try all pairs at the given shifts, tile by tile. Returns the share of them that had to be settled.

    Called from Python with plain tuples, whose types Numba recognises a hundred times faster than those of named ones.
    """
    picture, coarse = Picture(*picture_fields), Coarse(*coarse_fields)
    memory = Memory(Lists(*list_fields), *scratch)
    tile = TILE_COLUMNS if picture.h > 1 else LINE
    pairs, settled = 1, 0
    for y in range(0, picture.h, TILE_ROWS):
        for x in range(0, picture.w, tile):
            for shift in shifts:
                rows = min(TILE_ROWS, picture.h - y - shift // picture.row)
                columns = min(tile, picture.w - x if picture.h > 1 else picture.w - x - shift)
                if rows <= 0 or columns <= 0:
                    continue
                start = y * picture.row + x
                if exact:
                    count = _scan_floats(picture, memory, start, shift, rows, columns)
                else:
                    count = _scan_shorts(picture, coarse, memory, start, shift, rows, columns)
                _settle(picture, coarse, memory, count, shift)
                pairs += rows * columns
                settled += count
    return settled / pairs
