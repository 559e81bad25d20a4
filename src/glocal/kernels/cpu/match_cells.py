"""Vectors in cells of 64 near ones, by halving a set at its widest coordinate again and again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.neighbor_lists import Array
from glocal.kernels.cpu.reuse import room
from glocal.kernels.cpu.simd import constant
from glocal.kernels.cpu.simd_build import FLOATS
from glocal.kernels.cpu.simd_products import CELL


class Cells(NamedTuple):
    """Cell c holds the vectors `order[64 c : 64 c + 64]`; behind the last vector are places without one (-1)."""

    number: int  # of cells
    dims: int
    order: Array  # int32
    rows: Array  # (64 count dims,): vector after vector
    columns: Array  # (64 count dims,): cell after cell, in each coordinate after coordinate
    halves: Array  # (64 count,): half of the squared lengths, NaN where there is no vector: it compares false
    low: Array  # (dims count,): the boxes around the cells, coordinate after coordinate
    high: Array
    boxes: Array  # (count 2 dims,): the same, box after box
    peak: float  # the largest of the halves
    more: Array  # (64 count 16 len(vectors),): longer ones for a second look, vector after vector
    vectors: tuple[bool, ...]  # compile-time constant


@njit(nogil=True, cache=True)
def _select(keys: Array, order: Array, first: int, end: int, place: int) -> None:
    """Sort just so far that the entries before `place` are at most those after it."""
    low, high = first, end - 1
    while low < high:
        a, b, c = keys[low], keys[(low + high) // 2], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            return


@njit(nogil=True, cache=True)
def _arrange(vectors: Array, order: Array, keys: Array) -> None:
    """Order the vectors so that each 64 of them are close to each other."""
    n, dims = vectors.shape
    low, high = np.empty(dims, np.float32), np.empty(dims, np.float32)
    stack = np.empty((64, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, (n + CELL - 1) // CELL
    depth = 1
    while depth > 0:
        depth -= 1
        left, right = stack[depth]
        if right - left < 2:
            continue
        first, end, middle = left * CELL, min(n, right * CELL), (left + right) // 2
        low[:], high[:] = np.inf, -np.inf
        for i in range(first, end):
            vector = vectors[order[i]]
            for d in range(dims):
                low[d] = min(low[d], vector[d])
                high[d] = max(high[d], vector[d])
        widest = np.argmax(high - low)
        if high[widest] > low[widest]:
            for i in range(first, end):
                keys[i] = vectors[order[i], widest]
            _select(keys, order, first, end, middle * CELL)
        stack[depth, 0], stack[depth, 1] = left, middle
        stack[depth + 1, 0], stack[depth + 1, 1] = middle, right
        depth += 2


@njit(nogil=True, cache=True)
def _fill(
    vectors: Array, order: Array, rows: Array, columns: Array, halves: Array, low: Array, high: Array, count: int
) -> None:
    n, dims = vectors.shape
    low[:], high[:] = np.inf, -np.inf
    for place in range(count * CELL):
        cell, lane = place // CELL, place % CELL
        total = 0.0
        for d in range(dims):
            value = vectors[order[place], d] if place < n else np.float32(0.0)
            rows[place * dims + d] = value
            columns[(cell * dims + d) * CELL + lane] = value
            total += np.float64(value) * np.float64(value)
            if place < n:
                low[d * count + cell] = min(low[d * count + cell], value)
                high[d * count + cell] = max(high[d * count + cell], value)
        halves[place] = total / 2 if place < n else np.nan


def make_cells(vectors: Array, longer: Array, names: Array) -> Cells:
    """Put vectors (n, dims) float32 into cells, and longer ones (n, a multiple of 16 or 0) along with them.

    `names` are the numbers that `order` gives them.

    Cost: O(n dims log n) time, O(n dims) memory.
    """
    n, dims = vectors.shape
    count = -(-n // CELL)
    order = np.full(count * CELL, -1, np.int32)
    order[:n] = np.arange(n)
    _arrange(vectors, order, np.empty(n, np.float32))
    rows, columns = (room(count * CELL * dims, np.float32) for _ in range(2))
    halves = np.empty(count * CELL, np.float32)
    low, high = (np.empty(dims * count, np.float32) for _ in range(2))
    _fill(vectors, order, rows, columns, halves, low, high, count)
    boxes = np.concatenate([low.reshape(dims, count), high.reshape(dims, count)]).T.flatten()
    more = longer[order.clip(min=0)].reshape(-1)
    order[:n] = names[order[:n]]
    return Cells(
        count, dims, order, rows, columns, halves, low, high, boxes, float(halves[:n].max()), more,
        constant(longer.shape[1] // FLOATS),
    )  # fmt: skip
