"""Nearest patches over the whole image or signal, without a coordinate term: every pair of pixels once, for both ends.

The rows of the picture lie one after another, so one number `shift` says where the other end of a pair lies, and rows
need no borders: a pair that leaves its row is the pair of another shift in two dimensions. Distances at one shift are
window sums of one difference signal, first down the columns, then along the rows.

Most pairs are far from being neighbours. After the nearest shifts have filled the lists, the others are scanned in
16-bit integers, rounded so that a sum is never too large: a lower bound, and pairs it cannot exclude are computed as
the definition says. Where it excludes too little (noise below the last of 16 bits, constant regions), units of work go
back to float32 for a while. Each thread has its own lists and learns the others' limits now and then; a few times,
and at the end, the lists are merged, so no result depends on who did what.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from threading import current_thread
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from glocal.kernels.neighbor_lists import LAST, Array, Lists, Picture, aligned, empty_lists, insert, lay_out, rounding
from glocal.kernels.simd import (
    at_most,
    bits_float,
    column_sums,
    comes_before,
    constant,
    float_bits,
    insert_key,
    lowest_bit,
    pair_distance,
    row_sums,
)
from glocal.kernels.threads import most_threads, share

LANES = 64  # pairs tested at a time
FOUR, TWO, NONE = constant(4), constant(2), constant(0)
TILE_ROWS, TILE_COLUMNS = 64, 128  # pairs scanned before those found are settled
LINE = 4096  # the same in one dimension
UNIT = 64  # shifts in a unit of work
NEAR = 6  # radius of the shifts that fill the lists
TOO_MANY = 0.05  # share of pairs left in doubt above which the coarse scan does not pay
EXCHANGE = 16  # units between two looks at the limits of the other threads
MERGED = 2048  # pixels merged or written at a time
STAGES = (0.0, 0.03, 0.1, 0.3, 1.0)  # between these shares of the units the lists are merged
PAUSE = 8  # units without it, then
TINY = np.float32(1e-37)  # above what float32 loses by underflow
TOP = 60_000.0  # where the largest limit should lie among 16-bit sums


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
def _limit(worst: np.float32, scale: np.float32, offset: np.float32) -> np.uint16:
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
            limits[t] = _limit(worst[t], coarse.scale, coarse.offset)
        if d2 <= worst[t + shift]:
            insert(keys, worst, last, k, size, groups, t + shift, bits | t)
            limits[t + shift] = _limit(worst[t + shift], coarse.scale, coarse.offset)


@numba.njit(nogil=True, cache=True)
def _search(
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


@numba.njit(nogil=True, cache=True)
def _exchange(worst: Array, last: Array, limits: Array, common: Array, scale: np.float32, offset: np.float32) -> None:
    """Take over the smaller worst distances of the other threads, tell them mine, and set the coarse limits.

    Threads may overwrite one another here; each value is the k-th distance of some list, so each is a valid limit.
    """
    for i in range(len(worst)):
        if worst[i] < common[i]:
            common[i] = worst[i]
        elif common[i] < worst[i]:
            worst[i] = common[i]
            last[i] = LAST
        limits[i] = 0 if worst[i] < 0 else _limit(worst[i], scale, offset)


@numba.njit(nogil=True, cache=True, forceinline=True)
def _join(all_keys: Array, base: int, k: int, size: int) -> None:
    """Bring the nearest of all threads' lists of a pixel into the first of them; what several have counts once."""
    keys = all_keys[0]
    for other in range(1, len(all_keys)):
        at = base
        for j in range(base, base + k - 1):
            key = all_keys[other, j]
            if key >= keys[base + k - 2]:
                break
            while keys[at] < key:
                at += 1
            if keys[at] != key:
                insert_key(keys, base, size, key, NONE)


@numba.njit(nogil=True, cache=True)
def _merge(all_keys: Array, k: int, first: int, end: int, common: Array) -> None:
    """Give all threads the joint lists of the pixels `first..end`, and their limits."""
    size = (k + 6) // 8 * 8
    for pixel in range(first, end):
        if common[pixel] < 0:
            continue
        base = pixel * size
        _join(all_keys, base, k, size)
        common[pixel] = bits_float(all_keys[0, base + k - 2] >> 32)
        for other in range(1, len(all_keys)):
            for j in range(base, base + size):
                all_keys[other, j] = all_keys[0, j]


@numba.njit(nogil=True, cache=True)
def _write(all_keys: Array, k: int, first: int, end: int, w: int, row: int, neighbors: Array, distances: Array) -> None:
    """Merge the lists of all threads for the vertices `first..end` and write them out."""
    size = (k + 6) // 8 * 8
    for vertex in range(first, end):
        base = (vertex // w * row + vertex % w) * size
        _join(all_keys, base, k, size)
        neighbors[vertex, 0] = vertex
        distances[vertex, 0] = 0.0
        for j in range(k - 1):
            key = all_keys[0, base + j]
            at = key & LAST
            neighbors[vertex, j + 1] = at // row * w + at % row
            distances[vertex, j + 1] = bits_float(key >> 32)


def _shift_order(h: int, w: int, row: int) -> tuple[Array, list[Array]]:
    """List the near shifts, which fill the lists, and all others in units, in an order that mixes near and far."""
    reach = (h - 1) * row + w  # shifts at and beyond it have no pair
    square = [(dy, dx) for dy in range(NEAR + 1) for dx in range(-NEAR, NEAR + 1) if dy * dy + dx * dx <= NEAR**2]
    near = {dy * row + dx for dy, dx in square} if h > 1 else set(range(1, 2 * NEAR**2 + 1))
    seeds = np.array([shift for shift in sorted(near) if 0 < shift < reach], np.int64)
    others = np.ones(reach, np.bool_)
    others[0], others[seeds] = False, False
    rest = np.flatnonzero(others)[::-1].copy()
    # In a constant region all candidates tie and smaller indices win. In raster order each pixel would meet ever
    # smaller ones and insert them all; in mixed order their number grows with the logarithm.
    units = [rest[first : first + UNIT] for first in range(0, len(rest), UNIT)]
    return seeds, [units[i] for i in np.argsort(np.arange(len(units)) * 0.6180339887498949 % 1.0, kind="stable")]


def _coarsen(planes: Tensor, picture: Picture, patch: tuple[int, int], worst: Array) -> Coarse:
    """Round the picture to 16 bits, so that its whole range fits and most limits stay below `TOP`.

    A value is off by at most 1/2, a patch of p values by sqrt(p) / 2, a difference of two patches by sqrt(p).
    """
    signal = planes.double()
    low, high = signal.amin((1, 2), keepdim=True), signal.amax((1, 2), keepdim=True)
    spread = float((high - low).max())
    finite = worst[np.isfinite(worst)]
    scale = min(65534 / spread, 1e17) if spread > 0 else 1.0
    if finite.size and finite.max() > 0:
        scale = min(scale, 256 * math.sqrt(TOP / float(finite.max())))
    middle = (low + high) / 2
    rounded = ((signal - middle) * scale).round_()
    flat = lay_out(rounded, patch, picture.row, picture.origin).flat.astype(np.int16)
    # Stripes between the rows, far from every value: patches that reach into them seldom look near.
    rows = flat[picture.origin : -picture.origin].reshape(-1, picture.row)
    rows[:, planes.shape[2] :: 2], rows[:, planes.shape[2] + 1 :: 2] = 32767, -32768
    area = planes.shape[0] * patch[0] * patch[1]
    growth = 1 + rounding(planes.shape[0], patch)
    return Coarse(flat, np.float32(scale * growth / 256), np.float32(math.sqrt(area) / 256))


def patch_neighbors(
    planes: Tensor, k: int, patch: tuple[int, int], progress: Callable[[float], None] | None = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches; the contract is `reference.patch_neighbors`, bit for bit. Needs k > 1.

    Cost: O(n^2 c) time for any patch size, O(n (c + k)) memory a thread.
    """
    ph, pw = patch
    row = -(-planes.shape[2] // 8) * 8
    picture = lay_out(planes, patch, row, (ph + 2) * row + pw + 4 * LANES)
    h, w = picture.h, picture.w
    common = np.full((h + 1) * row + 4 * LANES, -1, np.float32)  # the k-th distances, -1 between the rows
    common[: h * row].reshape(h, row)[:, :w] = np.inf
    team = _Team(picture, k, common)
    near, far = _shift_order(h, w, row)
    exact = Coarse(np.zeros(1, np.int16), np.float32(0), np.float32(0))
    parts = np.array_split(near, max(1, torch.get_num_threads()))
    share(len(parts), lambda i: team.search(parts[i], exact, None))
    coarse = _coarsen(planes, picture, patch, common)
    caller = current_thread()

    def work(first: int, i: int) -> None:
        unit = first + i
        team.search(far[unit], coarse, unit)
        if progress is not None and current_thread() is caller:
            progress((unit + 1) / len(far))

    ends = [int(len(far) * stage) for stage in STAGES]
    for first, end in itertools.pairwise(ends):
        team.merge()
        share(end - first, partial(work, first))
    return team.result()


class _Team:
    """The threads at work on one picture: their memories, and the limits they have in common."""

    def __init__(self, picture: Picture, k: int, common: Array):
        self.picture, self.fields, self.k = picture, tuple(picture), k
        self.common, self.blank = common, common.copy()
        size = -(-(k - 1) // 8) * 8
        # a thread touches its part when it begins, so that idle ones cost nothing
        threads = most_threads()
        self.keys = aligned(threads * len(common) * size, np.int64).reshape(threads, -1)
        self.memories: dict[str, Memory] = {}
        self.coarse: dict[str, Coarse] = {}
        self.pause: dict[str, int] = {}
        self.places = itertools.count()

    def search(self, shifts: Array, coarse: Coarse, unit: int | None) -> None:
        """Try the shifts on the calling thread: in float32 if there is no unit number or the coarse scan has a pause."""
        name = current_thread().name
        if name not in self.memories:
            self.memories[name] = self._memory()
        lists, *scratch = self.memories[name]
        begins = self.coarse.get(name) is not coarse
        if begins:
            self.coarse[name], self.pause[name] = coarse, 0
        if begins or unit is None or unit % EXCHANGE == 0:
            _exchange(lists.worst, lists.last, scratch[0], self.common, coarse.scale, coarse.offset)
        exact = unit is None or self.pause[name] > 0
        doubt = _search(self.fields, tuple(coarse), tuple(lists), tuple(scratch), shifts, exact)
        self.pause[name] = max(0, self.pause[name] - 1) if exact else PAUSE * (doubt > TOO_MANY)
        if unit is None:
            _exchange(lists.worst, lists.last, scratch[0], self.common, coarse.scale, coarse.offset)

    def _memory(self) -> Memory:
        lists = empty_lists(len(self.common), self.k, self.keys[next(self.places)])
        lists.worst[:] = self.blank
        pw = len(self.picture.pw)
        area = TILE_ROWS * (TILE_COLUMNS + pw + 32) if self.picture.h > 1 else LINE + pw + 32
        sums = aligned(area, np.float32), aligned(area, np.uint16)
        d2 = aligned(LANES, np.float32), aligned(2 * LANES, np.uint16)
        found = np.empty(max(TILE_ROWS * TILE_COLUMNS, LINE), np.int32)
        return Memory(lists, aligned(len(self.common), np.uint16), *sums, *d2, found)

    def merge(self) -> None:
        """Let each thread go on from the joint lists: what one has found, no other needs to find."""
        keys = self.keys[: len(self.memories)]
        parts = -(-len(self.common) // MERGED)

        def work(part: int) -> None:
            _merge(keys, self.k, part * MERGED, min((part + 1) * MERGED, len(self.common)), self.common)

        if len(keys) > 1:
            share(parts, work)
            self.coarse.clear()

    def result(self) -> tuple[Tensor, Tensor]:
        """Merge the lists of all threads."""
        n, keys = self.picture.h * self.picture.w, self.keys[: len(self.memories)]
        neighbors, distances = torch.empty(n, self.k, dtype=torch.int32), torch.empty(n, self.k, dtype=torch.float32)
        results = neighbors.numpy(), distances.numpy()

        def work(part: int) -> None:
            first, end = part * MERGED, min((part + 1) * MERGED, n)
            _write(keys, self.k, first, end, self.picture.w, self.picture.row, *results)

        share(-(-n // MERGED), work)
        return neighbors, distances
