"""The search of `match`: the vectors of one cell look for their nearest ones in the cells of others.

Cells come by the distance between the boxes around them, and those that are farther away than the worst neighbour so
far do not come at all. In a cell, inner products of short vectors give a lower bound of each distance; only where that
leaves a doubt, the distance itself is computed, as the definition says.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import extending

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.match_cells import Cells
from glocal.kernels.cpu.neighbor_lists import Array
from glocal.kernels.cpu.simd import lowest_bit, pair_distance
from glocal.kernels.cpu.simd_build import FLOATS
from glocal.kernels.cpu.simd_products import CELL, GROUP, box_mask, less_products, product_masks, row_gap

SEEDED = 4  # near cells where a first few candidates are taken from
MOST_SEEDS = 64  # neighbours up to which that pays
GROWN = 1.00002  # more than the sums of a bound grow by rounding
PAIRS = CELL + CELL * CELL  # distances that may be in doubt at a time
LAST = 0x7FFFFFFF  # comes after every index


class Limits(NamedTuple):
    """How a distance becomes the largest bound that a candidate no farther away can have."""

    scale: float
    slack: float
    relative: float  # 1 + the rounding of a distance
    tiny: float  # above what underflow loses
    margin: float  # rounding of an inner product, for vectors of length 1


class Patches(NamedTuple):
    """Two signals as flat arrays, and where each patch begins. The channels and the patch are compile-time constants."""

    query: Array
    query_at: Array
    query_row: int
    query_plane: int
    source: Array
    source_at: Array
    source_row: int
    source_plane: int
    query_places: Array  # (n, 3), or nothing where places do not count
    source_places: Array
    factor: np.float32
    channels: tuple[bool, ...]
    ph: tuple[bool, ...]
    pw: tuple[bool, ...]


class Lists(NamedTuple):
    """The neighbours so far of the vectors of a cell, and what a visit of another cell needs."""

    d2: Array
    found: Array  # their indices
    limit: Array  # largest bound of a candidate that could still enter; -1 for none
    half: Array  # half of the squared length, less what rounding may cost
    lanes: Array
    places: Array
    least: Array
    masks: Array
    ends: Array  # pairs whose distances are needed
    doubt: Array  # the lanes of their first ends
    values: Array  # their distances


@njit(nogil=True, cache=True)
def _patch_distances(p: Patches, ends: Array, number: int, out: Array) -> None:
    left, right, left_at, right_at = p.query, p.source, p.query_at, p.source_at
    row, plane, other_row, other_plane = p.query_row, p.query_plane, p.source_row, p.source_plane
    for pair in range(number):
        i, j = ends[2 * pair], ends[2 * pair + 1]
        d2 = pair_distance(
            left, left_at[i], row, plane, right, right_at[j], other_row, other_plane, p.channels, p.ph, p.pw
        )
        if p.factor > 0:
            steps = 0
            for axis in range(3):
                step = p.query_places[i, axis] - p.source_places[j, axis]
                steps += step * step
            d2 += p.factor * np.float32(steps)
        out[pair] = d2


@njit(nogil=True, cache=True)
def _row_distances(query: Array, source: Array, ends: Array, number: int, out: Array) -> None:
    for pair in range(number):
        i, j = ends[2 * pair], ends[2 * pair + 1]
        d2 = 0.0
        for column in range(query.shape[1]):
            step = np.float64(source[j, column]) - np.float64(query[i, column])
            d2 += step * step
        out[pair] = d2


def _distances(data: Any, ends: Array, number: int, out: Array) -> None:
    """Compute the exact squared distances of pairs of vertices: `data` are the fields of `Patches`, or two matrices."""
    raise NotImplementedError  # compiled code alone calls it


@extending.overload(_distances)
def _choose(data, ends, number, out):  # type: ignore[no-untyped-def]  # the signature of the functions that it returns
    if len(data) == 2:
        return lambda data, ends, number, out: _row_distances(data[0], data[1], ends, number, out)
    return lambda data, ends, number, out: _patch_distances(Patches(*data), ends, number, out)


@njit(nogil=True, cache=True, forceinline=True)
def _limit(worst: float, limits: Limits) -> np.float32:
    root = math.sqrt(worst * limits.relative + limits.tiny) * limits.scale + limits.slack
    return np.float32(root * root * GROWN)


@njit(nogil=True, cache=True, forceinline=True)
def _insert(d2: Array, index: Array, base: int, k: int, value: float, j: int) -> None:
    """Put a candidate that comes before the last into its place."""
    at = base + k - 1
    while at > base and (d2[at - 1] > value or (d2[at - 1] == value and index[at - 1] > j)):
        d2[at], index[at] = d2[at - 1], index[at - 1]
        at -= 1
    d2[at], index[at] = value, j


@njit(nogil=True, cache=True)
def _box_distances(query: Cells, source: Cells, cell: int, out: Array) -> None:
    """Squared distances between the box of a cell and all boxes of the source."""
    out[:] = 0
    for d in range(query.dims):
        low, high = query.low[d * query.number + cell], query.high[d * query.number + cell]
        start = d * source.number
        for c in range(source.number):
            gap = max(max(source.low[start + c] - high, low - source.high[start + c]), np.float32(0.0))
            out[c] += gap * gap


@njit(nogil=True, cache=True, forceinline=True)
def _largest(values: Array) -> np.float32:
    largest = values[0]
    for value in values:
        largest = value if value > largest else largest
    return largest


@njit(nogil=True, cache=True)
def _start(query: Cells, source: Cells, cell: int, k: int, own: bool, limits: Limits, lists: Lists) -> None:
    """Empty the lists of a cell."""
    lists.d2[:], lists.found[:] = np.inf, LAST
    for lane in range(CELL):
        i, length = query.order[cell * CELL + lane], query.halves[cell * CELL + lane]
        if i < 0:
            lists.limit[lane] = -1.0
            continue
        lists.limit[lane] = np.inf
        lists.half[lane] = length - np.float32(limits.margin * (length + source.peak))
        if own:
            lists.d2[lane * k], lists.found[lane * k] = -1.0, i
            if k == 1:
                lists.limit[lane] = -1.0


@njit(nogil=True, cache=True)
def _seed(query: Cells, source: Cells, cell: int, boxes: Array, wanted: int, own: bool, lists: Lists) -> int:
    """List, for each vector of a cell, the `wanted` nearest short vectors of a few near cells. Returns their number."""
    count, dims, pairs = min(SEEDED, source.number), query.dims, 0
    near, gaps = np.empty(count, np.int64), np.empty(count, np.float32)
    for place in range(count):
        near[place] = np.argmin(boxes)
        gaps[place] = boxes[near[place]]
        boxes[near[place]] = np.inf
    boxes[near] = gaps
    far = np.empty(count * CELL, np.float32)
    best, who = np.empty(wanted, np.float32), np.empty(wanted, np.int64)
    for lane in range(CELL):
        i = query.order[cell * CELL + lane]
        if i < 0:
            continue
        for place in range(count):
            start = near[place] * CELL
            less_products(
                query.rows, (cell * CELL + lane) * dims, source.columns, start * dims, dims, source.halves, start, far,
                place * CELL,
            )  # fmt: skip
        best[:] = np.inf
        for at in range(count * CELL):
            if far[at] < best[wanted - 1]:
                j = source.order[near[at // CELL] * CELL + at % CELL]
                if not (own and i == j):
                    place = wanted - 1
                    while place > 0 and best[place - 1] > far[at]:
                        best[place], who[place] = best[place - 1], who[place - 1]
                        place -= 1
                    best[place], who[place] = far[at], j
        if best[wanted - 1] < np.inf:
            for at in range(wanted):
                lists.ends[2 * pairs], lists.ends[2 * pairs + 1], lists.doubt[pairs] = i, who[at], lane
                pairs += 1
    return pairs


@njit(nogil=True, cache=True)
def _cap(wanted: int, pairs: int, limits: Limits, lists: Lists) -> None:
    """Limit how far the neighbours of each vector can be: no farther than all of those that `_seed` found for it."""
    for first in range(0, pairs, wanted):
        worst = lists.values[first]
        for at in range(first, first + wanted):
            worst = max(worst, lists.values[at])
        lists.limit[lists.doubt[first]] = _limit(worst, limits)


@njit(nogil=True, cache=True)
def _settle(k: int, pairs: int, limits: Limits, lists: Lists) -> None:
    """Insert the candidates that were in doubt and are near enough."""
    d2, found, limit = lists.d2, lists.found, lists.limit
    for at in range(pairs):
        lane, j, value = lists.doubt[at], lists.ends[2 * at + 1], lists.values[at]
        base = lane * k
        last = d2[base + k - 1]
        if value < last or (value == last and j < found[base + k - 1]):
            _insert(d2, found, base, k, value, j)
            limit[lane] = min(limit[lane], _limit(d2[base + k - 1], limits))


@njit(nogil=True, cache=True)
def _scan(
    query: Cells, source: Cells, cell: int, cells: Array, first: int, boxes: Array, own: bool, lists: Lists
) -> tuple[int, int, int]:
    """Let the vectors of a cell look into `cells[first], ...`, nearest first, until a few candidates are in doubt.

    Returns where to go on, how many are in doubt, and how many bounds that took.
    """
    limit, half, lanes, places, least, masks = (
        lists.limit, lists.half, lists.lanes, lists.places, lists.least, lists.masks
    )  # fmt: skip
    ends, doubt, more, dims, order = lists.ends, lists.doubt, query.vectors, query.dims, query.order
    length, start = FLOATS * len(more), cell * CELL
    bounds, pairs = 0, 0
    if boxes[cells[first]] > _largest(limit):
        return len(cells), 0, 0
    for position in range(first, len(cells)):
        if pairs >= CELL:
            return position, pairs, bounds
        other = cells[position]
        near = box_mask(query.columns, start * dims, source.boxes, other * 2 * dims, dims, limit, 0)
        count = 0
        while near != 0:
            lane = lowest_bit(near)
            near &= near - 1
            lanes[count], places[count], least[count] = lane, (start + lane) * dims, half[lane] - limit[lane] / 2
            count += 1
        for at in range(count, (count + GROUP - 1) // GROUP * GROUP):
            places[at], least[at] = places[count - 1], np.inf
        for at in range(0, count, GROUP):
            product_masks(
                query.rows,
                places,
                at,
                source.columns,
                other * dims * CELL,
                dims,
                source.halves,
                other * CELL,
                least,
                masks,
            )
        bounds += count * CELL
        for at in range(count):
            hits = masks[at]
            if hits == 0:
                continue
            lane = lanes[at]
            i = order[start + lane]
            while hits != 0:
                place = other * CELL + lowest_bit(hits)
                hits &= hits - 1
                j = source.order[place]
                if row_gap(query.more, (start + lane) * length, source.more, place * length, more) > limit[lane]:
                    continue  # without longer vectors the gap is 0
                if not (own and i == j):
                    ends[2 * pairs], ends[2 * pairs + 1], doubt[pairs] = i, j, lane
                    pairs += 1
    return len(cells), pairs, bounds


@njit(nogil=True, cache=True)
def _near(boxes: Array, limit: Array) -> Array:
    """List the cells that are not too far, nearest first."""
    near = np.nonzero(boxes <= _largest(limit))[0]
    return near[np.argsort(boxes[near])]


@njit(nogil=True, cache=True)
def _make_lists(k: int) -> Lists:
    return Lists(
        np.empty(CELL * k, np.float64), np.empty(CELL * k, np.int64), np.empty(CELL, np.float32), np.empty(CELL, np.float32),
        np.empty(CELL, np.int64), np.empty(CELL + GROUP, np.int64), np.empty(CELL + GROUP, np.float32),
        np.empty(CELL + GROUP, np.int64), np.empty(2 * PAIRS, np.int64), np.empty(PAIRS, np.int64),
        np.empty(PAIRS, np.float64),
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _write(order: Array, cell: int, k: int, lists: Lists, neighbors: Array, distances: Array) -> None:
    for lane in range(CELL):
        i = order[cell * CELL + lane]
        if i >= 0:
            for place in range(k):
                neighbors[i, place] = lists.found[lane * k + place]
                distances[i, place] = max(lists.d2[lane * k + place], 0.0)


@njit(nogil=True, cache=True)
def search(
    data: tuple[Any, ...],
    query_fields: tuple[Any, ...],
    source_fields: tuple[Any, ...],
    limit_fields: tuple[float, ...],
    k: int,
    own: bool,
    first: int,
    end: int,
    step: int,
    neighbors: Array,
    distances: Array,
) -> tuple[int, int]:
    """Search for the vectors of the cells `first, first + step, ...` before `end`.

    `data` is what `_distances` needs. It has another type for each size of a patch, so this function is compiled for
    each, and what it calls with other arguments only once. Returns how many bounds and how many distances were
    computed. Called from Python with plain tuples, whose types Numba recognises a hundred times faster than those of
    named ones.
    """
    query, source, limits, lists = Cells(*query_fields), Cells(*source_fields), Limits(*limit_fields), _make_lists(k)
    boxes = np.empty(source.number, np.float32)
    bounds, exact, wanted = 0, 0, k - int(own)
    for cell in range(first, end, step):
        _start(query, source, cell, k, own, limits, lists)
        _box_distances(query, source, cell, boxes)
        if 0 < wanted <= MOST_SEEDS:
            pairs = _seed(query, source, cell, boxes, wanted, own, lists)
            _distances(data, lists.ends, pairs, lists.values)
            _cap(wanted, pairs, limits, lists)
        near, position = _near(boxes, lists.limit), 0
        while position < len(near):
            position, pairs, count = _scan(query, source, cell, near, position, boxes, own, lists)
            _distances(data, lists.ends, pairs, lists.values)
            _settle(k, pairs, limits, lists)
            bounds, exact = bounds + count, exact + pairs
        _write(query.order, cell, k, lists, neighbors, distances)
    return bounds, exact
