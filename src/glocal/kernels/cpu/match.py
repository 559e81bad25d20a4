"""Exact nearest patches and rows between two signals, without a search window. `reference_search` defines them.

Every vector is replaced by a short one whose distances are lower bounds (`match_bounds`). Short vectors that are near
each other are put into cells (`match_cells`). The vectors of a cell search together (`match_scan`). Where the bounds
turn out to exclude little, as in noise, the short vectors are made longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from threading import current_thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu import match_windows
from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.match_bounds import FEW, Vectors, shorten
from glocal.kernels.cpu.match_cells import Cells, make_cells
from glocal.kernels.cpu.match_copies import Some, distinct
from glocal.kernels.cpu.match_scan import Limits, Patches, search
from glocal.kernels.cpu.neighbor_lists import Array, rounding
from glocal.kernels.cpu.simd import constant
from glocal.kernels.cpu.threads import share
from glocal.kernels.matching import Matching, Sizes

DIRECTIONS = 15  # of the short vectors, at first
TRIED = 4  # cells that show whether more are needed
UNIT = 4  # cells in a unit of work

Progress = Callable[[float], None] | None


def match_rows(query: Tensor, source: Tensor, k: int, own: bool, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows; the contract is `reference_search.match_rows`, bit for bit.

    Cost: O(n m f) time at worst, far less where a few directions hold most of the variance; O((n + m) f) memory.
    """
    here = _Rows(query)
    there = here if source is query else _Rows(source)
    arrays = query.contiguous().numpy(), source.contiguous().numpy()
    limits = Limits(0, 0, 1 + (query.shape[1] + 8) * 2.0**-52, 1e-300, 0)
    distances = torch.empty(len(query), k, dtype=torch.float64)
    return _search(here, there, arrays, limits, k, own, 4.0 * query.shape[1], distances, progress)


def match_patches(
    query: Tensor, source: Tensor, k: int, matching: Matching, progress: Progress = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches; the contract is `reference_search.match_patches`, bit for bit.

    Cost: without a search window O(n m c patch) time at worst, far less for natural signals, and O((n + m) c) memory;
    with one see `match_windows`.
    """
    if matching.radius is not None:
        return match_windows.match_patches(query, source, k, matching, progress)
    same = source is query and matching.stride == matching.source_stride
    here = _Patches(query, matching, matching.stride)
    there = here if same else _Patches(source, matching, matching.source_stride)
    _, ph, pw = matching.patch
    channels = query.shape[1] * matching.patch[0]
    factor = np.float32(matching.coords * matching.coords)
    fields = Patches(
        here.flat, here.at, here.row, here.plane, there.flat, there.at, there.row, there.plane, here.places, there.places,
        factor, constant(channels), constant(ph), constant(pw),
    )  # fmt: skip
    limits = Limits(0, 0, 1 + rounding(channels, (ph, pw)), 1e-37, 0)
    distances = torch.empty(here.count, k, dtype=torch.float32)
    cost = 2.0 * channels * ph * (1 + (pw - 1) // 16) + 20
    return _search(here, there, tuple(fields), limits, k, matching.own, cost, distances, progress)


class _Rows:
    """The rows of a matrix."""

    def __init__(self, matrix: Tensor):
        self.matrix = matrix
        self.count, self.length = matrix.shape

    def take(self, places: Tensor) -> Tensor:
        return self.matrix[places].to(torch.float64)


class _Patches:
    """The patches of a signal and, where they count, their places."""

    def __init__(self, frames: Tensor, matching: Matching, stride: Sizes):
        _, c, height, width = frames.shape
        pt, self.ph, self.pw = matching.patch
        self.row, self.plane, self.channels = width, height * width, pt * c
        self.flat = np.zeros(frames.numel() + 32, np.float32)  # vectors are read beyond the last patch
        self.flat[: frames.numel()] = frames.reshape(-1).numpy()
        places = matching._replace(stride=stride).query_places(frames)
        self.at = ((places[:, 0] * c * height + places[:, 1]) * width + places[:, 2]).numpy()
        self.coords = matching.coords if np.float32(matching.coords * matching.coords) > 0 else 0.0
        self.places = places.numpy() if self.coords else np.zeros((0, 3), np.int64)
        self.count = len(places)
        self.length = self.channels * self.ph * self.pw + (3 if self.coords else 0)

    def take(self, places: Tensor) -> Tensor:
        out = np.empty((len(places), self.length))
        _gather(self.flat, self.at[places.numpy()], self.row, self.plane, self.channels, self.ph, self.pw, out)
        if self.coords:
            out[:, -3:] = self.coords * self.places[places.numpy()]
        return torch.from_numpy(out)


@njit(nogil=True, cache=True)
def _gather(flat: Array, at: Array, row: int, plane: int, channels: int, ph: int, pw: int, out: Array) -> None:
    for i in range(len(at)):
        place = 0
        for c in range(channels):
            for v in range(ph):
                start = at[i] + c * plane + v * row
                for u in range(pw):
                    out[i, place] = flat[start + u]
                    place += 1


def _search(
    query: Vectors, source: Vectors, data: tuple[Any, ...], limits: Limits, k: int, own: bool, cost: float, distances: Tensor, progress: Progress,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Search with short vectors of the right length. `cost` is that of a distance, in steps of 16 numbers."""
    neighbors = torch.empty(distances.shape, dtype=torch.int32)
    results = neighbors.numpy(), distances.numpy()
    names = distinct(source, k)
    if len(names) < source.count:
        source = Some(source, names)
    everyone = np.arange(query.count)
    directions = min(DIRECTIONS, query.length) if query.length > FEW else query.length
    while True:
        short = shorten(query, source, directions)
        sides = [(short.query, short.longer_query, everyone)]
        if source is not query:
            sides.append((short.source, short.longer_source, names))
        made: dict[int, Cells] = {}

        def make(side: int, sides: Any = sides, made: dict[int, Cells] = made) -> None:
            made[side] = make_cells(*sides[side])

        share(len(sides), make)
        here, there = made[0], made[len(sides) - 1]
        margin = (here.dims + 8) * 2.0**-22
        known = limits._replace(scale=short.scale, slack=short.slack, margin=margin)
        shared = data, tuple(here), tuple(there), tuple(known), k, own
        step = max(1, here.number // TRIED)
        bounds, exact = search(*shared, step // 2, here.number, step, *results)
        if directions == query.length or exact * cost < 2 * bounds * here.dims / 16:
            break
        directions = 3 * directions + 2
        if 2 * directions > query.length:
            directions = query.length
    caller, done, units = current_thread(), itertools.count(1), -(-here.number // UNIT)

    def work(unit: int) -> None:
        search(*shared, unit * UNIT, min((unit + 1) * UNIT, here.number), 1, *results)
        part = next(done) / units
        if progress is not None and current_thread() is caller:
            progress(part)

    share(units, work)
    return neighbors, distances
