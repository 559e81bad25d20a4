"""Nearest patches with a coordinate term or in a search window: block by block of pixels.

All pixels of a block try one shift together: their distances to the pixels that lie (dy, dx) away are window sums of
one difference image. Shifts come by increasing length. With a coordinate term a pixel whose worst neighbour is nearer
than the term of the next shifts is closed, and a block whose pixels are all closed is done. When few are open, each of
them searches alone (`neighbor_pixel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import current_thread
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.neighbor_lists import EMPTY, LAST, Array, Lists, Picture, empty_lists, insert, lay_out, rounding
from glocal.kernels.cpu.neighbor_pixel import Search, half_width, nth_row, search_pixel
from glocal.kernels.cpu.simd import (
    at_most_with,
    bits_float,
    comes_before,
    constant,
    float_bits,
    lowest_bit,
    strip_distances,
)
from glocal.kernels.cpu.threads import share
from glocal.kernels.reference_search import window_sum

VECTORS = constant(2)  # vectors in a row of a block
HEIGHT, LANES = 8, 32  # rows of a block, and columns between two rows of its lists
DISC = 20  # with coordinates, radius of the shifts that whole blocks try
FEW, MOST = 0.5, 0.9  # shares of open pixels: below, each alone; above (when the disc is done), all together
FIRST = 60  # shifts before pixels may go alone: enough to fill most lists
BLOCKS = 4  # blocks in a unit of work


class Block(NamedTuple):
    """Pixels `y..y + height`, `x..x + width`; pixel (r, lane) has list number `r LANES + lane`."""

    y: int
    x: int
    height: int
    width: int


@njit(nogil=True, cache=True)
def _count_open(worst: Array, term: np.float32) -> int:
    count = 0
    for i in range(len(worst)):
        count += worst[i] >= term
    return count


@njit(nogil=True, cache=True)
def _try_shifts(
    picture: Picture,
    lists: Lists,
    block: Block,
    shifts: Array,
    count: int,
    search: Search,
    rings: bool,
    d2: Array,
    inputs: tuple[bool, ...],
) -> int:
    """Try the first `count` shifts on a block; with `rings`, stop where few pixels are open. Returns how many it tried."""
    k, size, keys, worst, last, groups = lists
    flat, factor = picture.flat, search.factor
    start = picture.origin + block.y * picture.row + block.x
    ring = np.float32(0.0)
    few = int(FEW * block.height * block.width)
    for i in range(count):
        dy, dx = shifts[i, 0], shifts[i, 1]
        term = factor * np.float32(dy * dy + dx * dx)
        if rings and term > ring:
            ring = term
            left = _count_open(worst, term)
            if left == 0 or (left < few and i > FIRST):
                return i
        top, bottom = max(0, -(block.y + dy)), min(block.height, picture.h - block.y - dy)
        first, end = max(0, -(block.x + dx)), min(block.width, picture.w - block.x - dx)
        if top >= bottom or first >= end:
            continue
        inside = ((1 << end) - 1) & ~((1 << first) - 1)
        a = start + top * picture.row
        b = a + dy * picture.row + dx
        strip_distances(
            flat,
            a,
            flat,
            b,
            picture.row,
            picture.plane,
            bottom - top,
            d2,
            picture.channels,
            picture.ph,
            picture.pw,
            inputs,
            VECTORS,
        )
        for r in range(top, bottom):
            o, p = (r - top) * LANES, r * LANES
            hits = at_most_with(d2, o, term, worst, p, VECTORS) & inside
            if hits != 0:
                candidate = (block.y + r + dy) * picture.w + block.x + dx
                hits &= comes_before(d2, o, term, candidate, worst, last, p, VECTORS)
                while hits != 0:
                    lane = lowest_bit(hits)
                    hits &= hits - 1
                    insert(
                        keys,
                        worst,
                        last,
                        k,
                        size,
                        groups,
                        p + lane,
                        float_bits(d2[o + lane] + term) << 32 | (candidate + lane),
                    )
    return count


@njit(nogil=True, cache=True)
def _try_rest(
    picture: Picture, lists: Lists, block: Block, row_shifts: Array, search: Search, d2: Array, inputs: tuple[bool, ...]
) -> None:
    """Try the shifts outside the disc row by row, as far as the worst pixel of the block needs."""
    for step in range(2 * search.reach_y + 1):
        dy = nth_row(step)
        peak = lists.worst.max()
        if search.factor * np.float32(dy * dy) > peak:
            return
        half = half_width(peak, search.factor, dy, search.reach_x)
        count = np.int64(0)  # a literal has another type and would be compiled again
        for dx in range(max(-half, -(block.x + block.width - 1)), min(half, picture.w - 1 - block.x) + 1):
            if dy * dy + dx * dx > search.disc:
                row_shifts[count, 0], row_shifts[count, 1] = dy, dx
                count += 1
        _try_shifts(picture, lists, block, row_shifts, count, search, np.bool_(False), d2, inputs)


@njit(nogil=True, cache=True)
def _search_block(
    picture: Picture,
    lists: Lists,
    block: Block,
    search: Search,
    row_shifts: Array,
    d2: Array,
    inputs: tuple[bool, ...],
) -> None:
    """Fill the lists of one block."""
    lists.keys[:] = EMPTY
    lists.worst[:] = np.float32(-1.0)
    lists.last[:] = LAST
    for r in range(block.height):
        lists.worst[r * LANES : r * LANES + block.width] = np.float32(np.inf)
    count = len(search.shifts)
    done = _try_shifts(picture, lists, block, search.shifts, count, search, search.disc >= 0, d2, inputs)
    if search.disc < 0:
        return
    tried = search.disc
    if done < count:
        dy, dx = search.shifts[done, 0], search.shifts[done, 1]
        tried = dy * dy + dx * dx - 1
    edge = search.factor * np.float32(tried + 1)
    left = _count_open(lists.worst, edge)
    if done == count and left > MOST * block.height * block.width:
        _try_rest(picture, lists, block, row_shifts, search, d2, inputs)
    elif left > 0:
        for r in range(block.height):
            for lane in range(block.width):
                if lists.worst[r * LANES + lane] >= edge:
                    search_pixel(picture, lists, r * LANES + lane, block.y + r, block.x + lane, tried, search, d2)


@njit(nogil=True, cache=True)
def _search_blocks(
    picture_fields: tuple[Any, ...],
    list_fields: tuple[Any, ...],
    search_fields: tuple[Any, ...],
    y: int,
    x: int,
    blocks: int,
    row_shifts: Array,
    d2: Array,
    neighbors: Array,
    distances: Array,
    inputs: tuple[bool, ...],
) -> None:
    """Search `blocks` blocks side by side and write their neighbours out.

    Called from Python with plain tuples, whose types Numba recognises a hundred times faster than those of named ones.
    """
    picture, lists, search = Picture(*picture_fields), Lists(*list_fields), Search(*search_fields)
    step = min(LANES, 16 * len(inputs) - len(picture.pw) + 1)
    for left in range(x, min(x + blocks * step, picture.w), step):
        block = Block(y, left, min(HEIGHT, picture.h - y), min(step, picture.w - left))
        _search_block(picture, lists, block, search, row_shifts, d2, inputs)
        for r in range(block.height):
            for lane in range(block.width):
                vertex = (y + r) * picture.w + left + lane
                base = (r * LANES + lane) * lists.size
                neighbors[vertex, 0] = vertex
                distances[vertex, 0] = 0.0
                for j in range(lists.k - 1):
                    key = lists.keys[base + j]
                    neighbors[vertex, j + 1] = key & LAST
                    distances[vertex, j + 1] = bits_float(key >> 32)


def _shifts(reach_y: int, reach_x: int, factor: np.float32) -> tuple[Array, int]:
    """List the shifts that blocks try, and the squared radius of the disc they fill (-1 without a coordinate term)."""
    radius = DISC if factor > 0 else reach_y + reach_x
    y, x = np.mgrid[-min(radius, reach_y) : min(radius, reach_y) + 1, -min(radius, reach_x) : min(radius, reach_x) + 1]
    shifts = np.stack([y.ravel(), x.ravel()], 1)
    length = (shifts * shifts).sum(1)
    order = np.argsort(length, kind="stable")
    order = order[(length[order] > 0) & (length[order] <= radius * radius)]
    if factor > 0:
        return np.ascontiguousarray(shifts[order]), radius * radius
    # Near shifts fill the lists well. The others in mixed order: in raster order, or by length, each pixel of a
    # constant region would meet ever smaller indices, and ties insert them all.
    near, far = order[:24], order[24:]
    mixed = far[np.argsort((np.arange(len(far)) * 0.6180339887498949) % 1.0, kind="stable")]
    return np.ascontiguousarray(shifts[np.concatenate([near, mixed])]), -1


def _patch_means(planes: Tensor, patch: tuple[int, int]) -> Array:
    """Patch sums / sqrt(patch area) of each channel: unit projections, so their distances bound those of patches."""
    means = [
        window_sum(window_sum(plane - plane.mean(), patch[0], 0), patch[1], 1).flatten() for plane in planes.double()
    ]
    return (torch.cat(means) / math.sqrt(patch[0] * patch[1])).float().numpy()


def _prepare(planes: Tensor, picture: Picture, patch: tuple[int, int], coords: float, radius: int | None) -> Search:
    h, w = picture.h, picture.w
    reach_y, reach_x = (size - 1 if radius is None else min(radius, size - 1) for size in (h, w))
    factor = np.float32(coords * coords)
    shifts, disc = _shifts(reach_y, reach_x, factor)
    means = np.pad(_patch_means(planes, patch), (0, 32)) if factor > 0 else np.zeros(1, np.float32)
    dx = np.arange(-w, w + 32)
    # Each mean is off by 2^-24 of the largest, a difference of two by four times that; the sum over c channels is at
    # most (sqrt(d2) + error)^2.
    error = 2 * math.sqrt(planes.shape[0]) * 2.0**-21 * float(np.abs(means).max())
    relative = np.float32(1 + rounding(planes.shape[0], patch))
    return Search(
        shifts,
        disc,
        reach_y,
        reach_x,
        factor,
        (factor * dx * dx).astype(np.float32),
        means,
        relative,
        np.float32(max(error, 1e-18)),  # not 0: an infinite d2 stays infinite
    )


def patch_neighbors(
    planes: Tensor,
    k: int,
    patch: tuple[int, int],
    coords: float,
    radius: int | None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches; the contract is `reference_search.patch_neighbors`, bit for bit. Needs k > 1.

    Cost: O(n s (c + k)) time for s shifts (about `(2 radius + 1)^2`, or as many as the k-th distances and the
    coordinate term leave), O(n (c + k)) memory.
    """
    # A narrow patch loses fewer columns at the end of a block than it costs to read one vector more.
    inputs = 2 if patch[1] <= 9 else 2 + (patch[1] + 14) // 16
    picture = lay_out(planes, patch, planes.shape[2], 16 * inputs + patch[1] + 16)
    search = _prepare(planes, picture, patch, coords, radius)
    n, width = picture.h * picture.w, BLOCKS * min(LANES, 16 * inputs - patch[1] + 1)
    neighbors, distances = torch.empty(n, k, dtype=torch.int32), torch.empty(n, k, dtype=torch.float32)
    units = [(y, x) for y in range(0, picture.h, HEIGHT) for x in range(0, picture.w, width)]
    results = neighbors.numpy(), distances.numpy()
    memory: dict[str, tuple[tuple[Any, ...], Array, Array]] = {}
    shared = tuple(picture), tuple(search)
    caller = current_thread()

    def work(unit: int) -> None:
        thread = current_thread()
        if thread.name not in memory:
            pixels = HEIGHT * LANES
            rows = np.empty((2 * search.reach_x + 1, 2), np.int64)
            memory[thread.name] = tuple(empty_lists(pixels, k)), rows, np.empty(pixels, np.float32)
        lists, row_shifts, d2 = memory[thread.name]
        y, x = units[unit]
        _search_blocks(shared[0], lists, shared[1], y, x, BLOCKS, row_shifts, d2, *results, constant(inputs))
        if progress is not None and thread is caller:
            progress((unit + 1) / len(units))

    share(len(units), work)
    return neighbors, distances
