"""The most similar vertices inside a window on the CPU: products by the BLAS, the choice in two passes over each window.

Products are made tile by tile as in `portable_window`. The first pass over a window takes the largest product of each column.
The k-th largest of these is a bound: k candidates reach it. The second pass keeps a sorted list of the few that do. Each thread
works on tiles of its own, a few at a time, so that their products stay in its cache.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.simd import at_most, constant, lowest_bit
from glocal.kernels.cpu.simd_build import FLOATS
from glocal.kernels.cpu.threads import share, undisturbed
from glocal.kernels.portable_window import tile_axis

_AT_ONCE = 1 << 18  # products of a thread at a time: 1 MiB
_TWO = constant(2)
_LANES = 2 * FLOATS
_PARTS = 16


def window_neighbors(features: Tensor, k: int, radius: int, exclude: int) -> Tensor:
    """Find the `k` most similar vertices inside a window; the contract is `reference_search.window_neighbors`.

    Cost: O(b h w radius^2 f) time, O(b h w k) memory and a fixed amount of products.
    """
    b, h, w, f = features.shape
    (rows, row_spans), (columns, column_spans) = (tile_axis(n, radius, features.device) for n in (h, w))
    tops, lefts = rows[:, 0].numpy(), columns[:, 0].numpy()
    first_rows, first_columns = row_spans[:, 0].numpy(), column_spans[:, 0].numpy()
    sizes = np.array([rows.shape[1], columns.shape[1], row_spans.shape[1], column_spans.shape[1]])
    neighbors = torch.empty(b * h * w, k, dtype=torch.int32)
    out = neighbors.numpy()
    tiles = torch.cartesian_prod(torch.arange(b), torch.arange(len(rows)), torch.arange(len(columns))).reshape(-1, 3)
    places = tiles.numpy()
    size_here, size_there = int(sizes[0] * sizes[1]), int(sizes[2] * sizes[3])
    signal = features.contiguous().numpy()
    at_once = max(1, _AT_ONCE // (size_here * size_there))
    cuts = np.linspace(0, len(places), min(_PARTS, len(places)) + 1).astype(np.int64)

    def work(number: int) -> None:
        here, there = torch.empty(at_once, size_here, f), torch.empty(at_once, size_there, f)
        products = torch.empty(at_once * size_here * size_there + _LANES)
        space = products[:-_LANES].view(at_once, size_here, size_there)
        for start in range(cuts[number], cuts[number + 1], at_once):
            some = places[start : min(start + at_once, cuts[number + 1])]
            _copy(signal, some, tops, lefts, sizes[0], sizes[1], here.numpy())
            _copy(signal, some, first_rows, first_columns, sizes[2], sizes[3], there.numpy())
            count = len(some)
            torch.bmm(here[:count], there[:count].transpose(1, 2), out=space[:count])
            _choose(products.numpy(), some, tops, lefts, first_rows, first_columns, sizes, h, w, radius, exclude, out)

    with undisturbed():
        share(len(cuts) - 1, work)
    return neighbors


@njit(nogil=True, cache=True)
def _copy(signal, places, tops, lefts, rows, columns, out):
    """Copy the vectors of a rectangle of vertices for each tile."""
    for tile in range(len(places)):
        picture, top, left = places[tile, 0], tops[places[tile, 1]], lefts[places[tile, 2]]
        for row in range(rows):
            for column in range(columns):
                for channel in range(signal.shape[3]):
                    out[tile, row * columns + column, channel] = signal[picture, top + row, left + column, channel]


@njit(nogil=True, cache=True)
def _choose(products, places, tops, lefts, first_rows, first_columns, sizes, h, w, radius, exclude, out):
    """Choose for the vertices of the tiles; raster order makes ties go to the smaller index.

    `products` has `_LANES` more entries than there are products, because vectors reach beyond the end of a row.
    """
    k = out.shape[1]
    best, chosen = np.empty(k, np.float32), np.empty(k, np.int32)
    side_y, side_x = min(2 * radius + 1, h), min(2 * radius + 1, w)
    largest, bounds = np.empty(side_x + _LANES, np.float32), np.empty(_LANES, np.float32)
    area = sizes[2] * sizes[3]
    for tile in range(len(places)):
        base = places[tile, 0] * h * w
        begin_y, begin_x = first_rows[places[tile, 1]], first_columns[places[tile, 2]]
        for q in range(sizes[0] * sizes[1]):
            y, x = tops[places[tile, 1]] + q // sizes[1], lefts[places[tile, 2]] + q % sizes[1]
            top, left = min(max(y - radius, 0), h - side_y), min(max(x - radius, 0), w - side_x)
            origin = (tile * sizes[0] * sizes[1] + q) * area + (top - begin_y) * sizes[3] + left - begin_x
            largest[:] = -np.inf
            for row in range(side_y):
                if abs(top + row - y) > exclude:  # the other rows are not needed: a bound is made of some candidates
                    for column in range(0, side_x, _LANES):
                        _raise_to(largest, column, products, origin + row * sizes[3] + column)
            bounds[:] = _kth_largest(largest[:side_x], best)
            best[:] = -np.inf
            chosen[:] = base + y * w + x
            for row in range(side_y):
                near = abs(top + row - y) <= exclude
                start = origin + row * sizes[3]
                for column in range(0, side_x, _LANES):
                    hits = at_most(bounds, 0, products, start + column, _TWO)
                    if side_x - column < _LANES:
                        hits &= (1 << (side_x - column)) - 1
                    while hits != 0:
                        place = column + lowest_bit(hits)
                        hits &= hits - 1
                        value = products[start + place]
                        if value > best[k - 1] and not (near and abs(left + place - x) <= exclude):
                            _insert(best, chosen, value, base + (top + row) * w + left + place)
            out[base + y * w + x] = chosen


@njit(nogil=True, cache=True, forceinline=True)
def _raise_to(largest, i, values, j):
    """Compute `largest[i + l] = max(largest[i + l], values[j + l])` for `_LANES` entries."""
    for lane in range(_LANES):
        value, before = values[j + lane], largest[i + lane]
        largest[i + lane] = value if value > before else before


@njit(nogil=True, cache=True, forceinline=True)
def _insert(best, chosen, value, vertex):
    """Insert into the list, which is sorted by decreasing value, behind equal values; the last entry falls out."""
    place = len(best) - 1
    while place > 0 and value > best[place - 1]:
        best[place], chosen[place] = best[place - 1], chosen[place - 1]
        place -= 1
    best[place], chosen[place] = value, vertex


@njit(nogil=True, cache=True)
def _kth_largest(values, best):
    """Return the k-th largest value; -inf if there are fewer. `best` is space for k values."""
    k = len(best)
    best[:] = -np.inf
    for value in values:
        if value > best[k - 1]:
            place = k - 1
            while place > 0 and value > best[place - 1]:
                best[place] = best[place - 1]
                place -= 1
            best[place] = value
    return best[k - 1]
