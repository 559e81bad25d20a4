"""Nearest patches between two signals of one size inside a search window: block by block of pixels, frame by frame.

All pixels of a block try one shift together, as in `neighbor_blocks`: their distances to the patches that lie (dy, dx)
away in a frame of the source are window sums of one difference image. Strides leave out pixels of the blocks,
candidates, and shifts that join none of both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from threading import current_thread
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.neighbor_lists import EMPTY, LAST, Array, Lists, empty_lists, insert
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
from glocal.kernels.matching import Matching, Sizes

VECTORS = constant(2)  # vectors in a row of a block
HEIGHT, LANES = 8, 32  # rows of a block, and columns between two rows of its lists
BLOCKS = 4  # blocks in a unit of work
NEAR = 24  # shifts that are tried first, by length


class Signals(NamedTuple):
    """Two signals: channel c of pixel (t, y, x) is at `margin + ((t frame_channels + c) height + y) row + x`."""

    query: Array
    source: Array
    margin: int
    row: int
    plane: int
    frame: int  # numbers from one frame to the next
    t: int
    h: int
    w: int
    channels: tuple[bool, ...]  # of all frames of a patch; compile-time constant, as are these
    ph: tuple[bool, ...]
    pw: tuple[bool, ...]


class Window(NamedTuple):
    """What is tried."""

    shifts: Array  # (m, 2), in this order
    reach: int  # frames before and after
    factor: np.float32  # coords^2
    stride: Sizes
    source_stride: Sizes
    own: int  # 1 where the vertex itself comes first


@njit(nogil=True, cache=True)
def _comb(start: int, step: int) -> int:
    """Bit l: `start + l` is a multiple of `step`, 32 bits."""
    bits = 0
    for lane in range(LANES):
        if (start + lane) % step == 0:
            bits |= 1 << lane
    return bits


@njit(nogil=True, cache=True)
def _try_frame(
    signals: Signals, window: Window, lists: Lists, y0: int, x0: int, height: int, width: int, here: int, there: int,
    combs: Array, d2: Array, inputs: tuple[bool, ...],
) -> None:  # fmt: skip
    """Let a block of frame `here` try all shifts in frame `there`."""
    k, size, keys, worst, last, groups = lists
    h, w, row, plane = signals.h, signals.w, signals.row, signals.plane
    _, sy, sx = window.source_stride
    dt = there - here
    for i in range(len(window.shifts)):
        dy, dx = window.shifts[i, 0], window.shifts[i, 1]
        if window.own == 1 and dt == 0 and dy == 0 and dx == 0:
            continue
        top, bottom = max(0, -(y0 + dy)), min(height, h - y0 - dy)
        first, end = max(0, -(x0 + dx)), min(width, w - x0 - dx)
        if top >= bottom or first >= end:
            continue
        inside = ((1 << end) - 1) & ~((1 << first) - 1)
        if sx > 1:
            inside &= combs[(x0 + dx) % sx]
        if inside == 0:
            continue
        term = window.factor * np.float32(dt * dt + dy * dy + dx * dx)
        a = signals.margin + here * signals.frame + (y0 + top) * row + x0
        b = signals.margin + there * signals.frame + (y0 + top + dy) * row + x0 + dx
        strip_distances(
            signals.query, a, signals.source, b, row, plane, bottom - top, d2, signals.channels, signals.ph, signals.pw,
            inputs, VECTORS,
        )  # fmt: skip
        for r in range(top, bottom):
            if sy > 1 and (y0 + r + dy) % sy != 0:
                continue
            o, p = (r - top) * LANES, r * LANES
            hits = at_most_with(d2, o, term, worst, p, VECTORS) & inside
            if hits != 0:
                candidate = (there * h + y0 + r + dy) * w + x0 + dx
                hits &= comes_before(d2, o, term, candidate, worst, last, p, VECTORS)
                while hits != 0:
                    lane = lowest_bit(hits)
                    hits &= hits - 1
                    key = float_bits(d2[o + lane] + term) << 32 | (candidate + lane)
                    insert(keys, worst, last, k, size, groups, p + lane, key)


@njit(nogil=True, cache=True)
def _write(
    signals: Signals, window: Window, lists: Lists, y0: int, x0: int, height: int, width: int, here: int, neighbors: Array,
    distances: Array,
) -> None:  # fmt: skip
    """Write out the lists of a block. Keys count all pixels; the results count those that the strides leave."""
    st, sy, sx = window.stride
    zt, zy, zx = window.source_stride
    rows, columns = (signals.h + sy - 1) // sy, (signals.w + sx - 1) // sx
    source_rows, source_columns = (signals.h + zy - 1) // zy, (signals.w + zx - 1) // zx
    for r in range(height):
        for lane in range(width):
            if lists.worst[r * LANES + lane] < 0:
                continue
            vertex = (here // st * rows + (y0 + r) // sy) * columns + (x0 + lane) // sx
            if window.own == 1:
                neighbors[vertex, 0], distances[vertex, 0] = vertex, 0.0
            for j in range(lists.k - 1):
                key = lists.keys[(r * LANES + lane) * lists.size + j]
                at = key & LAST
                t, y, x = at // (signals.w * signals.h), at // signals.w % signals.h, at % signals.w
                neighbors[vertex, window.own + j] = (t // zt * source_rows + y // zy) * source_columns + x // zx
                distances[vertex, window.own + j] = bits_float(key >> 32)


@njit(nogil=True, cache=True)
def _search(
    signal_fields: tuple[Any, ...], window_fields: tuple[Any, ...], list_fields: tuple[Any, ...], here: int, y0: int,
    x: int, combs: Array, d2: Array, neighbors: Array, distances: Array, inputs: tuple[bool, ...],
) -> None:  # fmt: skip
    """Search `BLOCKS` blocks side by side. Called with plain tuples, whose types Numba recognises faster."""
    signals, window, lists = Signals(*signal_fields), Window(*window_fields), Lists(*list_fields)
    _, sy, sx = window.stride
    step = min(LANES, 16 * len(inputs) - len(signals.pw) + 1)
    height = min(HEIGHT, signals.h - y0)
    for x0 in range(x, min(x + BLOCKS * step, signals.w), step):
        width = min(step, signals.w - x0)
        lists.keys[:] = EMPTY
        lists.worst[:] = np.float32(-1.0)
        lists.last[:] = LAST
        some = False
        for r in range(height):
            for lane in range(width):
                if (y0 + r) % sy == 0 and (x0 + lane) % sx == 0:
                    lists.worst[r * LANES + lane] = np.inf
                    some = True
        if not some:
            continue
        if lists.k > 1:
            for away in range(2 * window.reach + 1):  # 0, -1, 1, -2, 2, ...
                there = here + (away // 2 if away % 2 == 0 else -(away + 1) // 2)
                if 0 <= there < signals.t and there % window.source_stride[0] == 0:
                    _try_frame(signals, window, lists, y0, x0, height, width, here, there, combs, d2, inputs)
        _write(signals, window, lists, y0, x0, height, width, here, neighbors, distances)


def _shifts(matching: Matching, shape: Sizes) -> Array:
    """List the shifts (dy, dx) that join a query vertex to a source vertex: the nearest, then the others mixed."""
    assert matching.radius is not None
    axes = []
    for axis in (1, 2):
        reach = min(matching.radius[axis], shape[axis] - 1)
        step = math.gcd(matching.stride[axis], matching.source_stride[axis])
        axes.append(np.arange(-(reach // step), reach // step + 1) * step)
    shifts = np.stack([grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")], 1)
    order = np.argsort((shifts * shifts).sum(1), kind="stable")
    # In mixed order: in raster order, or by length, each pixel of a constant region would meet ever smaller indices,
    # and ties insert them all.
    near, far = order[:NEAR], order[NEAR:]
    mixed = far[np.argsort(np.arange(len(far)) * 0.6180339887498949 % 1.0, kind="stable")]
    return np.ascontiguousarray(shifts[np.concatenate([near, mixed])])


def _lay_out(frames: Tensor, margin: int) -> Array:
    flat = np.zeros(frames.numel() + 2 * margin, np.float32)
    flat[margin : margin + frames.numel()] = frames.reshape(-1).numpy()
    return flat


def match_patches(
    query: Tensor, source: Tensor, k: int, matching: Matching, progress: Callable[[float], None] | None = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches in a search window; the contract is `reference_search.match_patches`.

    Cost: O(n s (c + k)) time for the `s` places of a window, counted before the strides; O(n (c + k)) memory.
    """
    assert matching.radius is not None
    t, h, w = matching.shape(query)
    pt, ph, pw = matching.patch
    _, c, height, width = query.shape
    inputs = 2 if pw <= 9 else 2 + (pw + 14) // 16  # as in neighbor_blocks
    margin = 16 * inputs + pw + 16
    first = _lay_out(query, margin)
    second = first if source is query else _lay_out(source, margin)
    signals = Signals(
        first, second, margin, width, height * width, c * height * width, t, h, w, constant(pt * c), constant(ph),
        constant(pw),
    )  # fmt: skip
    factor = np.float32(matching.coords * matching.coords)
    window = Window(
        _shifts(matching, (t, h, w)), min(matching.radius[0], t - 1), factor, matching.stride, matching.source_stride,
        int(matching.own),
    )  # fmt: skip
    step = BLOCKS * min(LANES, 16 * inputs - pw + 1)
    units = list(itertools.product(range(0, t, matching.stride[0]), range(0, h, HEIGHT), range(0, w, step)))
    n = math.prod(-(-length // stride) for length, stride in zip((t, h, w), matching.stride, strict=True))
    neighbors, distances = torch.empty(n, k, dtype=torch.int32), torch.empty(n, k, dtype=torch.float32)
    combs = np.array([_comb(start, window.source_stride[2]) for start in range(window.source_stride[2])], np.int64)
    results = neighbors.numpy(), distances.numpy()
    shared = tuple(signals), tuple(window)
    memory: dict[str, tuple[tuple[Any, ...], Array]] = {}
    caller = current_thread()

    def work(unit: int) -> None:
        thread = current_thread()
        if thread.name not in memory:
            lists = empty_lists(HEIGHT * LANES, k + 1 - window.own)
            memory[thread.name] = tuple(lists), np.empty(HEIGHT * LANES, np.float32)
        lists_, d2 = memory[thread.name]
        _search(*shared, lists_, *units[unit], combs, d2, *results, constant(inputs))
        if progress is not None and thread is caller:
            progress((unit + 1) / len(units))

    share(len(units), work)
    return neighbors, distances
