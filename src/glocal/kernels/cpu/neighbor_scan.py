"""The scans of `neighbor_pairs`: all pairs of a tile, at one shift exactly or at 32 shifts coarsely.

The coarse scan works in 16-bit integers, rounded so that a sum is never too large: a lower bound. Pairs that it cannot
exclude are computed as the definition says. Those that are near enough enter the lists of both ends.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.neighbor_lists import Array, Lists, Picture, insert
from glocal.kernels.cpu.reuse import room
from glocal.kernels.cpu.simd import (
    at_most,
    column_sums,
    comes_before,
    constant,
    float_bits,
    lowest_bit,
    pair_distance,
    row_sums,
)
from glocal.kernels.cpu.simd_shifts import SHIFTS, any_set, shift_row

LANES = 64  # pairs tested at a time by the exact scan
FOUR = constant(4)
TILE_ROWS, TILE_COLUMNS = 64, 128  # pairs scanned exactly before those found are settled
LINE = 4096  # the same in one dimension
RUNNING = 1024  # vectors of running sums of a coarse tile, such that they stay in the nearest caches
TINY = np.float32(1e-37)  # above what float32 loses by underflow


class Coarse(NamedTuple):
    """The picture in 16 bits, and the limits of its pixels: `(scale sqrt(worst) + offset)^2`."""

    flat: Array
    scale: np.float32
    offset: np.float32
    cap: int  # largest square


class Bounds(NamedTuple):
    """The pairs of a search: one end from `a0` to `a1 - 1`, the other from `b0` to `b1 - 1`."""

    a0: int
    a1: int
    b0: int
    b1: int


class Memory(NamedTuple):
    """What a search writes: the lists and limits of its pixels, and what it needs for itself."""

    lists: Lists
    limits: Array
    sums: Array
    d2: Array
    found: Array
    cells: Array
    running: Array
    masks: Array


def scratch(patch: tuple[int, int]) -> tuple[Array, ...]:
    """Make what a search needs for itself."""
    ph, pw = patch
    columns = coarse_columns(ph)
    return (
        room(max(LINE + pw + 32, TILE_ROWS * (TILE_COLUMNS + pw + 32)), np.float32),
        room(LANES, np.float32),
        np.empty(max(TILE_ROWS * TILE_COLUMNS, LINE), np.int32),
        room((columns + pw) * SHIFTS, np.uint16),
        room(ph * columns * SHIFTS, np.uint16),
        np.zeros(columns + 16, np.uint32),
    )


@njit(nogil=True, cache=True, forceinline=True)
def limit(worst: np.float32, scale: np.float32, offset: np.float32) -> np.uint16:
    """Return the largest coarse distance of a pair that is not farther than `worst`."""
    root = scale * np.float32(math.sqrt(worst + TINY)) + offset
    return np.uint16(min(root * root + np.float32(2.0), np.float32(65535.0)))


@njit(nogil=True, cache=True)
def coarse_columns(ph: int) -> int:
    """Columns of a coarse tile, such that its running sums stay in the cache."""
    return max(16, RUNNING // (ph + 1) if ph > 1 else RUNNING)


@njit(nogil=True, cache=True, forceinline=True)
def _sum_columns(picture: Picture, start: int, shift: int, rows: int, width: int, sums: Array) -> None:
    """Fill `rows` rows of `width` sums over the patch height."""
    flat, row, plane, channels, ph = picture.flat, picture.row, picture.plane, picture.channels, picture.ph
    if rows == 1 and len(ph) == 1:  # vectors side by side instead of one below the other
        column_sums(flat, start, start + shift, 16, plane, width // 16, sums, 0, 16, channels, ph)
        return
    for j in range(0, width, 16):
        column_sums(flat, start + j, start + j + shift, row, plane, rows, sums, j, width, channels, ph)


@njit(nogil=True, cache=True, forceinline=True)
def _append(found: Array, count: int, at: int, hits: int, columns: int) -> int:
    """Write down the pairs whose bits are set."""
    if columns < LANES:
        hits &= (1 << max(columns, 0)) - 1
    while hits != 0:
        found[count] = at + lowest_bit(hits)
        hits &= hits - 1
        count += 1
    return count


@njit(nogil=True, cache=True)
def _scan_exactly(picture: Picture, memory: Memory, start: int, shift: int, rows: int, columns: int) -> int:
    """Find the pairs of a tile that enter the list of one end."""
    worst, last, sums, d2 = memory.lists.worst, memory.lists.last, memory.sums, memory.d2
    width = (columns + LANES - 1) // LANES * LANES + (len(picture.pw) + 14) // 16 * 16
    _sum_columns(picture, picture.origin + start, shift, rows, width, sums)
    zero = np.float32(0.0)
    count = np.int64(0)
    for r in range(rows):
        for x in range(0, columns, LANES):
            row_sums(sums, r * width + x, d2, picture.pw, FOUR)
            t = start + r * picture.row + x
            if (at_most(d2, 0, worst, t, FOUR) | at_most(d2, 0, worst, t + shift, FOUR)) != 0:
                hits = comes_before(d2, 0, zero, t + shift, worst, last, t, FOUR)
                hits |= comes_before(d2, 0, zero, t, worst, last, t + shift, FOUR)
                count = _append(memory.found, count, t, hits, columns - x)
    return int(count)


@njit(nogil=True, cache=True, forceinline=True)
def _settle(picture: Picture, coarse: Coarse, memory: Memory, bounds: Bounds, t: int, shift: int) -> None:
    """Compute a pair, and insert it into the lists of both ends if it is near enough."""
    k, size, keys, worst, last, groups = memory.lists
    limits, other = memory.limits, t + shift
    if other < bounds.b0 or other >= bounds.b1 or worst[t] < 0 or worst[other] < 0:  # the last: between the rows
        return
    a = picture.origin + t
    flat, row, plane = picture.flat, picture.row, picture.plane
    d2 = pair_distance(flat, a, row, plane, flat, a + shift, row, plane, picture.channels, picture.ph, picture.pw)
    bits = float_bits(d2) << 32
    if d2 <= worst[t]:
        insert(keys, worst, last, k, size, groups, t, bits | other)
        limits[t] = limit(worst[t], coarse.scale, coarse.offset)
    if d2 <= worst[other]:
        insert(keys, worst, last, k, size, groups, other, bits | t)
        limits[other] = limit(worst[other], coarse.scale, coarse.offset)


@njit(nogil=True, cache=True)
def _scan_coarsely(
    picture: Picture, coarse: Coarse, memory: Memory, bounds: Bounds, start: int, shift: int, valid: int, rows: int,
    columns: int,
) -> int:  # fmt: skip
    """Settle the pairs of a tile at the `valid` ones of 32 shifts that may enter the list of one end; count them."""
    ph, row = len(picture.ph), picture.row
    size, count = columns * SHIFTS, 0
    for at in range(np.uint64(ph * size if ph > 1 else 0)):
        memory.running[at] = 0
    for x in range(columns, columns + 16):  # what is looked at beyond the last column
        memory.masks[x] = 0
    for y in range(rows + ph - 1):
        t = max(0, start + (y - ph + 1) * row)  # before the first patches are whole, no masks are looked at
        above, here = (y + ph - 1) % ph * size, y % ph * size
        shift_row(
            coarse.flat, picture.origin + start + y * row, shift, picture.plane, columns, coarse.cap, memory.cells,
            memory.running, above, here, memory.limits, t, memory.masks, picture.channels, picture.ph, picture.pw,
        )  # fmt: skip
        if y < ph - 1:
            continue
        for x in range(0, columns, 16):
            pixels = any_set(memory.masks, x)
            while pixels != 0:
                pixel = x + lowest_bit(pixels)
                pixels &= pixels - 1
                hits = int(memory.masks[pixel]) & valid
                while hits != 0:
                    _settle(picture, coarse, memory, bounds, t + pixel, shift + lowest_bit(hits))
                    hits &= hits - 1
                    count += 1
    return count


@njit(nogil=True, cache=True, forceinline=True)
def _range(picture: Picture, bounds: Bounds, shift: int, shifts: int) -> tuple[int, int]:
    """Find the rows, or in one dimension the columns, with pairs within the bounds at `shifts` shifts from `shift` on."""
    step, wide = (picture.row, picture.w) if picture.h > 1 else (1, 1)
    first = max(bounds.a0 // step, -((shift + shifts + wide - 2 - bounds.b0) // step))
    return first, min((bounds.a1 + step - 1) // step, -((shift - bounds.b1) // step))


@njit(nogil=True, cache=True)
def search(
    picture_fields: tuple[Any, ...],
    coarse_fields: tuple[Any, ...],
    list_fields: tuple[Any, ...],
    others: tuple[Array, ...],
    bound_fields: tuple[int, ...],
    shifts: Array,
    exact: bool,
) -> float:
    """Try all pairs within the bounds at the given shifts. Returns the share of them that a coarse scan had to settle.

    `shifts` are rows (first, bits): bit l stands for the shift `first + l`. The function is called from Python with
    plain tuples, whose types Numba recognises a hundred times faster than those of named ones.
    """
    picture, coarse, bounds = Picture(*picture_fields), Coarse(*coarse_fields), Bounds(*bound_fields)
    memory = Memory(Lists(*list_fields), *others)
    if exact:
        _search_exactly(picture, coarse, memory, bounds, shifts)
        return 0.0
    return _search_coarsely(picture, coarse, memory, bounds, shifts)


@njit(nogil=True, cache=True)
def _search_exactly(picture: Picture, coarse: Coarse, memory: Memory, bounds: Bounds, shifts: Array) -> None:
    for group in range(len(shifts)):
        bits = shifts[group, 1]
        while bits != 0:
            shift = shifts[group, 0] + lowest_bit(bits)
            bits &= bits - 1
            first, end = _range(picture, bounds, shift, 1)
            y0, y1, x0, x1 = (first, end, 0, picture.w) if picture.h > 1 else (0, 1, first, end)
            tile = TILE_COLUMNS if picture.h > 1 else LINE
            for y in range(y0, y1, TILE_ROWS):
                for x in range(x0, x1, tile):
                    rows, columns = min(TILE_ROWS, y1 - y), min(tile, x1 - x)
                    for i in range(_scan_exactly(picture, memory, y * picture.row + x, shift, rows, columns)):
                        _settle(picture, coarse, memory, bounds, np.int64(memory.found[i]), shift)


@njit(nogil=True, cache=True)
def _search_coarsely(picture: Picture, coarse: Coarse, memory: Memory, bounds: Bounds, shifts: Array) -> float:
    width = coarse_columns(len(picture.ph))
    pieces = (picture.w + width - 1) // width
    tile = (picture.w + pieces - 1) // pieces if picture.h > 1 else width
    pairs, settled = 1, 0
    for group in range(len(shifts)):
        shift, valid = shifts[group]
        first, end = _range(picture, bounds, shift, SHIFTS)
        y0, y1, x0, x1 = (first, end, 0, picture.w) if picture.h > 1 else (0, 1, first, end)
        for x in range(x0, x1 if y0 < y1 else x0, tile):
            start, rows, columns = y0 * picture.row + x, y1 - y0, min(tile, x1 - x)
            settled += _scan_coarsely(picture, coarse, memory, bounds, start, shift, valid, rows, columns)
            pairs += SHIFTS * rows * columns
    return settled / pairs
