"""Nearest patches over the whole image or signal, without a coordinate term: every pair of pixels once, for both ends.

The rows of the picture lie one after another, so one number `shift` says where the other end of a pair lies, and rows
need no borders: a pair that leaves its row is the pair of another shift in two dimensions. Distances at one shift are
window sums of one difference signal, first down the columns, then along the rows.

Most pairs are far from being neighbours. After the nearest shifts have filled the lists, the others are scanned in
16-bit integers, rounded so that a sum is never too large: a lower bound, and pairs it cannot exclude are computed as
the definition says. Where it excludes too little (noise below the last of 16 bits, constant regions), units of work go
back to float32 for a while.

A pair enters two lists, and no list may be written by two threads at once. So the pixels are cut into twice as many
blocks as there are threads, and the pairs into rounds, like the teams of a league: in a round every block meets one
other, so each thread has two blocks to itself. Lists hold the smallest keys of a set, in whatever order they came.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from threading import current_thread

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.neighbor_lists import LAST, Array, Picture, empty_lists, lay_out, rounding
from glocal.kernels.cpu.neighbor_scan import LANES, Coarse, limit, scratch, search
from glocal.kernels.cpu.reuse import room
from glocal.kernels.cpu.simd import bits_float
from glocal.kernels.cpu.simd_shifts import SHIFTS
from glocal.kernels.cpu.threads import count, share

UNIT = 32  # groups of shifts between two looks at how the coarse scan does
NEAR = 6  # radius of the shifts that fill the lists
TOO_MANY = 0.05  # share of pairs left in doubt above which the coarse scan does not pay
PAUSE = 2  # units without it, then
LEAST = 256  # samples of a block
WRITTEN = 2048  # pixels written at a time
TOP = 25_000.0  # the largest limit, among 16-bit sums
NO_COARSE = Coarse(np.zeros(1, np.int16), np.float32(0), np.float32(0), 0)


@njit(nogil=True, cache=True)
def _set_limits(worst: Array, limits: Array, scale: np.float32, offset: np.float32) -> None:
    for i in range(len(worst)):
        limits[i] = 0 if worst[i] < 0 else limit(worst[i], scale, offset)


@njit(nogil=True, cache=True)
def _write(keys: Array, k: int, first: int, end: int, w: int, row: int, neighbors: Array, distances: Array) -> None:
    """Write out the lists of the vertices `first..end`."""
    size = (k + 6) // 8 * 8
    for vertex in range(first, end):
        base = (vertex // w * row + vertex % w) * size
        neighbors[vertex, 0] = vertex
        distances[vertex, 0] = 0.0
        for j in range(k - 1):
            key = keys[base + j]
            at = key & LAST
            neighbors[vertex, j + 1] = at // row * w + at % row
            distances[vertex, j + 1] = bits_float(key >> 32)


def _shift_order(h: int, w: int, row: int) -> tuple[Array, Array]:
    """List the near shifts, which fill the lists, and all others, in an order that mixes near and far."""
    reach = (h - 1) * row + w  # shifts at and beyond it have no pair
    square = [(dy, dx) for dy in range(NEAR + 1) for dx in range(-NEAR, NEAR + 1) if dy * dy + dx * dx <= NEAR**2]
    near = {dy * row + dx for dy, dx in square} if h > 1 else set(range(1, 2 * NEAR**2 + 1))
    seeds = np.array([shift for shift in sorted(near) if 0 < shift < reach], np.int64)
    others = np.zeros(-(-reach // SHIFTS) * SHIFTS, np.bool_)
    others[1:reach] = True
    others[seeds] = False
    bits = (others.reshape(-1, SHIFTS) << np.arange(SHIFTS)).sum(1)
    rest = np.stack([np.arange(0, reach, SHIFTS), bits], 1)[bits > 0][::-1].copy()
    # In a constant region all candidates tie and smaller indices win. In raster order each pixel would meet ever
    # smaller ones and insert them all; in mixed order their number grows with the logarithm.
    mixed = np.argsort(np.arange(len(rest)) * 0.6180339887498949 % 1.0, kind="stable")
    return np.stack([seeds, np.ones_like(seeds)], 1), rest[mixed]


def _coarsen(picture: Picture, planes: Array, worst: Array) -> Coarse:
    """Round the picture to 16 bits, so that its whole range fits and no limit exceeds `TOP`.

    A value is off by at most 1/2, a patch of p values by sqrt(p) / 2, a difference of two patches by sqrt(p).
    """
    low, high = planes.min((1, 2), keepdims=True), planes.max((1, 2), keepdims=True)
    spread = float((high - low).max())
    finite = worst[np.isfinite(worst)]
    scale = min(65534 / spread, 1e17) if spread > 0 else 1.0
    if finite.size and finite.max() > 0:
        scale = min(scale, 256 * math.sqrt(TOP / float(finite.max())))
    flat = np.zeros(picture.flat.size, np.int16)
    cells = flat[picture.origin : -picture.origin].reshape(len(planes), -1, picture.row)
    # Stripes between the rows, far from every value: patches that reach into them seldom look near.
    cells[..., ::2], cells[..., 1::2] = 32767, -32768
    cells[..., : planes.shape[2]] = np.rint((planes - (low + high) / 2) * scale)
    patch = len(picture.ph), len(picture.pw)
    area = len(planes) * patch[0] * patch[1]
    growth = 1 + rounding(len(planes), patch)
    return Coarse(flat, np.float32(scale * growth / 256), np.float32(math.sqrt(area) / 256), 65535 // area)


def _rounds(blocks: int) -> list[list[tuple[int, int, int]]]:
    """Let all blocks meet, in rounds where none has two meetings: (first block, other block, how many of each).

    In the first round neighbours meet as one larger block, each also with itself; in the others every block meets one
    that it has not met.

    >>> _rounds(4)
    [[(0, 0, 2), (2, 2, 2)], [(0, 3, 1), (1, 2, 1)], [(0, 2, 1), (1, 3, 1)]]
    """
    if blocks == 1:
        return [[(0, 0, 1)]]
    circle, found = list(range(blocks)), []
    for _ in range(blocks - 1):
        met = zip(circle[: blocks // 2], reversed(circle[blocks // 2 :]), strict=True)
        found.append([(min(pair), max(pair)) for pair in met])
        circle.insert(1, circle.pop())
    place = {block: place for place, block in enumerate(itertools.chain(*found[0]))}  # who met first become neighbours
    others = [sorted((*sorted((place[a], place[b])), 1) for a, b in pairs) for pairs in found[1:]]
    return [[(block, block, 2) for block in range(0, blocks, 2)], *others]  # type: ignore[list-item]


def _edges(picture: Picture, threads: int) -> list[int]:
    """Cut the picture into blocks for the threads: of whole rows, or of samples, but not into very small ones."""
    length, step, least = (picture.w, 1, LEAST) if picture.h == 1 else (picture.h, picture.row, 2 * len(picture.ph))
    threads = min(threads, length // (2 * least))
    blocks = 2 * threads if threads > 1 else 1
    return [length * block // blocks * step for block in range(blocks + 1)]


def patch_neighbors(
    planes: Tensor, k: int, patch: tuple[int, int], progress: Callable[[float], None] | None = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches; the contract is `reference_search.patch_neighbors`, bit for bit. Needs k > 1.

    Cost: O(n^2 c) time for any patch size, O(n (c + k)) memory.
    """
    ph, pw = patch
    row = -(-planes.shape[2] // 8) * 8
    picture = lay_out(planes, patch, row, (ph + 2) * row + pw + 4 * LANES)
    h, w = picture.h, picture.w
    pixels = (h + 1) * row + 4 * LANES
    lists, limits = empty_lists(pixels, k), room(pixels, np.uint16)
    lists.worst[: h * row].reshape(h, row)[:, :w] = np.inf
    edges = _edges(picture, count())
    near, far = _shift_order(h, w, row)
    caller, done = current_thread(), itertools.count(1)
    units = [far[first : first + UNIT] for first in range(0, len(far), UNIT)]
    rounds = _rounds(len(edges) - 1)
    total = len(units) * sum(len(meetings) for meetings in rounds)

    fields, list_fields = tuple(picture), tuple(lists)

    def meet(meeting: tuple[int, int, int], coarse: Coarse | None) -> None:
        """Search all pairs of two blocks, the near ones exactly and the far ones coarsely."""
        a, b, size = meeting
        bounds = edges[a], edges[a + size], edges[b], edges[b + size]
        others, pause = (limits, *scratch(patch)), 0
        for shifts in [near] if coarse is None else units:
            exact = coarse is None or pause > 0
            doubt = search(fields, tuple(coarse or NO_COARSE), list_fields, others, bounds, shifts, exact)
            pause = max(0, pause - 1) if exact else PAUSE * (doubt > TOO_MANY)
            if coarse is not None and progress is not None:
                part = next(done) / total
                if current_thread() is caller:
                    progress(part)

    def meet_all(coarse: Coarse | None) -> None:
        for meetings in rounds:
            share(len(meetings), lambda i, meetings=meetings: meet(meetings[i], coarse))  # type: ignore[misc]

    meet_all(None)
    coarse = _coarsen(picture, planes.numpy().astype(np.float64), lists.worst)
    _set_limits(lists.worst, limits, coarse.scale, coarse.offset)
    meet_all(coarse)
    neighbors, distances = torch.empty(h * w, k, dtype=torch.int32), torch.empty(h * w, k, dtype=torch.float32)

    def write(part: int) -> None:
        first, end = part * WRITTEN, min((part + 1) * WRITTEN, h * w)
        _write(lists.keys, k, first, end, w, row, neighbors.numpy(), distances.numpy())

    share(-(-h * w // WRITTEN), write)
    return neighbors, distances
