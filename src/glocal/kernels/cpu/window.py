"""The most similar vertices inside a window on the CPU: products by the BLAS, the choice in one pass over each window.

Products are made tile by tile as in `portable_window`. Each vertex then walks once through its window and keeps a sorted list;
almost all candidates fail one comparison with its last entry.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.threads import share
from glocal.kernels.portable_window import tile_axis

_AT_ONCE = 1 << 22  # products at a time: 16 MiB
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
    size_here, size_there = int(sizes[0] * sizes[1]), int(sizes[2] * sizes[3])
    signal = features.contiguous().numpy()
    at_once = min(len(tiles), max(1, _AT_ONCE // (size_here * size_there)))
    here, there = torch.empty(at_once, size_here, f), torch.empty(at_once, size_there, f)
    space = torch.empty(at_once, size_here, size_there)
    for part in tiles.split(at_once):
        places = part.numpy()
        cuts = np.linspace(0, len(part), min(_PARTS, len(part)) + 1).astype(np.int64)

        def copy(number: int, places: np.ndarray = places, cuts: np.ndarray = cuts) -> None:
            span = cuts[number], cuts[number + 1]
            _copy(signal, places, *span, tops, lefts, sizes[0], sizes[1], here.numpy())
            _copy(signal, places, *span, first_rows, first_columns, sizes[2], sizes[3], there.numpy())

        def choose(number: int, places: np.ndarray = places, cuts: np.ndarray = cuts) -> None:
            _choose(
                space.numpy(), places, cuts[number], cuts[number + 1], tops, lefts, first_rows, first_columns, sizes,
                h, w, radius, exclude, out,
            )  # fmt: skip

        share(len(cuts) - 1, copy)
        count = len(part)
        torch.bmm(here[:count], there[:count].transpose(1, 2), out=space[:count])
        share(len(cuts) - 1, choose)
    return neighbors


@njit(nogil=True, cache=True)
def _copy(signal, places, first, last, tops, lefts, rows, columns, out):
    """Copy the vectors of a rectangle of vertices for each of the tiles `first` to `last - 1`."""
    for tile in range(first, last):
        picture, top, left = places[tile, 0], tops[places[tile, 1]], lefts[places[tile, 2]]
        for row in range(rows):
            for column in range(columns):
                for channel in range(signal.shape[3]):
                    out[tile, row * columns + column, channel] = signal[picture, top + row, left + column, channel]


@njit(nogil=True, cache=True)
def _choose(products, places, first, last, tops, lefts, first_rows, first_columns, sizes, h, w, radius, exclude, out):
    """Choose for the vertices of the tiles `first` to `last - 1`; raster order makes ties go to the smaller index."""
    k = out.shape[1]
    best, chosen = np.empty(k, np.float32), np.empty(k, np.int32)
    side_y, side_x = min(2 * radius + 1, h), min(2 * radius + 1, w)
    for tile in range(first, last):
        base = places[tile, 0] * h * w
        begin_y, begin_x = first_rows[places[tile, 1]], first_columns[places[tile, 2]]
        for q in range(sizes[0] * sizes[1]):
            y, x = tops[places[tile, 1]] + q // sizes[1], lefts[places[tile, 2]] + q % sizes[1]
            top, left = min(max(y - radius, 0), h - side_y), min(max(x - radius, 0), w - side_x)
            best[:] = -np.inf
            chosen[:] = base + y * w + x
            for cy in range(top, top + side_y):
                near = abs(cy - y) <= exclude
                start = (cy - begin_y) * sizes[3] - begin_x
                for cx in range(left, left + side_x):
                    value = products[tile, q, start + cx]
                    if value > best[k - 1] and not (near and abs(cx - x) <= exclude):
                        place = k - 1
                        while place > 0 and value > best[place - 1]:
                            best[place], chosen[place] = best[place - 1], chosen[place - 1]
                            place -= 1
                        best[place], chosen[place] = value, base + cy * w + cx
            out[base + y * w + x] = chosen
