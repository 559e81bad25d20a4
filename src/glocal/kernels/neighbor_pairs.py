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

import numba
import numpy as np
import torch
from torch import Tensor

from glocal.kernels.neighbor_lists import LAST, Array, Picture, aligned, empty_lists, lay_out, rounding
from glocal.kernels.neighbor_scan import LANES, LINE, TILE_COLUMNS, TILE_ROWS, Coarse, Memory, limit, search
from glocal.kernels.simd import bits_float, constant, insert_key
from glocal.kernels.threads import most_threads, share

NONE = constant(0)
UNIT = 64  # shifts in a unit of work
NEAR = 6  # radius of the shifts that fill the lists
TOO_MANY = 0.05  # share of pairs left in doubt above which the coarse scan does not pay
EXCHANGE = 16  # units between two looks at the limits of the other threads
MERGED = 2048  # pixels merged or written at a time
STAGES = (0.0, 0.03, 0.1, 0.3, 1.0)  # between these shares of the units the lists are merged
PAUSE = 8  # units without it, then
TOP = 60_000.0  # where the largest limit should lie among 16-bit sums


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
        limits[i] = 0 if worst[i] < 0 else limit(worst[i], scale, offset)


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
        doubt = search(self.fields, tuple(coarse), tuple(lists), tuple(scratch), shifts, exact)
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
