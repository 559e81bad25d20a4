"""How a convolution on a lattice is cut into boxes and products. Everything here is worked out once for each lattice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch

from glocal.kernels.cpu.stencil import HEIGHTS, Region
from glocal.kernels.cpu.tiles import MAX_VECTORS
from glocal.lattice import BOUNDARIES, Lattice

_BUFFER = 96 * 1024  # numbers in the surroundings of a box, for the second-level cache
_PANEL = 6 * 1024  # numbers in filters that stay in the first-level cache
Triple = tuple[int, int, int]


class Plan(NamedTuple):
    """A region with its boxes, and the product that computes it, as `stencil.convolve` takes them."""

    region: Region
    phases: int
    vectors: int
    chunks: int

    @property
    def vertices(self) -> int:
        """Places in the region."""
        return prod(self.region.extent)

    @property
    def boxes(self) -> int:
        """Boxes in the region."""
        (depth, high, wide), (rows, columns) = self.region.extent, self.region.box
        return depth * -(-high // rows) * -(-wide // columns)


@lru_cache(maxsize=256)
def forward_plan(lattice: Lattice, c: int, m: int, lanes: int) -> Plan:
    """Plan the convolution c -> m on the whole lattice; m = 0 is one filter for all channels."""
    return _plan(lattice, 1, (0, 0, 0), _triple(lattice.shape), c, m, lanes)


@lru_cache(maxsize=256)
def gradient_plans(lattice: Lattice, c: int, m: int, lanes: int) -> list[Plan]:
    """Plan the gradient of the signal as a convolution c -> m: on the lattice, and outside of it where that counts."""
    zero = replace(lattice, boundary="zero")
    shape, size = _triple(lattice.shape), _triple(lattice.size)
    outside = [] if lattice.boundary == "zero" else _outside(shape, size, lattice.dilation)
    return [_plan(zero, 2, *where, c, m, lanes) for where in [((0, 0, 0), shape), *outside]]


@lru_cache(maxsize=64)
def tables(lattice: Lattice, reach: int) -> tuple[Any, Triple]:
    """Tabulate the vertices at the places up to `reach` half patches outside: `places` and `start` of `Region`."""
    found, start, total = [], [], 0
    for n, s in zip(_triple(lattice.shape), _triple(lattice.size), strict=True):
        halo = reach * (s // 2) * lattice.dilation
        places = torch.arange(-halo, n + halo)
        vertices = BOUNDARIES[lattice.boundary](places, n)
        if lattice.boundary == "zero":
            vertices = torch.where((places >= 0) & (places < n), vertices, -1)
        found.append(vertices.numpy())
        start.append(total + halo)
        total += len(places)
    return np.concatenate(found), (start[0], start[1], start[2])


def chunks_of(columns: int, lanes: int, most: int) -> tuple[int, int]:
    """Cut columns into chunks of equal width: (vectors in each, how many).

    >>> chunks_of(50, 8, 4)
    (4, 2)
    """
    vectors = -(-columns // lanes)
    across = -(-vectors // -(-vectors // most))
    return across, -(-vectors // across)


def _plan(lattice: Lattice, reach: int, origin: Triple, extent: Triple, c: int, m: int, lanes: int) -> Plan:
    """Choose the box and the cheapest product for a region of a lattice."""
    size, dilation = _triple(lattice.size), lattice.dilation
    inside = origin == (0, 0, 0) and extent == _triple(lattice.shape)
    phases = 1
    if extent[2] < HEIGHTS[0] // 2 and extent[1] > extent[2]:
        phases = 0
    elif dilation == 1 and inside and m > 0:
        phases = min(range(1, 9), key=lambda p: _cost(size[2], m, p, lanes))
    together = max(1, phases)
    small = size[0] * size[1] * (size[2] + together - 1) * c * together * m <= _PANEL
    vectors, chunks = chunks_of(max(1, together * m), lanes, MAX_VECTORS if small else 4)
    box = _box(size, dilation, extent, c)
    inner, steps = _segments(size, dilation, box, c, 0 if m == 0 else together)
    region = Region(
        _triple(lattice.shape), size, dilation, *tables(lattice, reach), origin, extent, box, np.array(steps), inner
    )
    return Plan(region, phases, vectors, chunks)


def _cost(across: int, m: int, phases: int, lanes: int) -> float:
    """Vector products for each vertex, input channel and row of the patch."""
    return (across + phases - 1) * -(-phases * m // lanes) / phases


def _box(size: Triple, dilation: int, extent: Triple, c: int) -> tuple[int, int]:
    """Choose the rows and columns of a box, so that its surroundings fit into the cache."""
    down, across = (size[1] - 1) * dilation, (size[2] - 1) * dilation
    columns = max(48, min(2048, _BUFFER // (size[0] * c * (down + 4)) - across))
    columns = -(-extent[2] // -(-extent[2] // columns))
    rows = max(1, min(max(32, 1024 // columns), _BUFFER // (size[0] * c * (columns + across)) - down))
    return min(rows, extent[1]), columns


def _segments(size: Triple, dilation: int, box: tuple[int, int], c: int, phases: int) -> tuple[int, Sequence[int]]:
    """Find the segments of a patch in the buffer of a box: the length of each, and where they begin.

    For `phases` of 0 every tap is a segment; otherwise the taps of a row are together where nothing lies between them.
    """
    high, wide = box[0] + (size[1] - 1) * dilation, box[1] + (size[2] - 1) * dilation
    rows = [(t * high + y * dilation) * wide * c for t in range(size[0]) for y in range(size[1])]
    if dilation == 1 and phases > 0:
        return (size[2] + phases - 1) * c, rows
    return c, [row + x * dilation * c for row in rows for x in range(size[2])]


def _outside(shape: Triple, size: Triple, dilation: int) -> list[tuple[Triple, Triple]]:
    """Cut the places outside of the lattice that its patches reach into boxes: the origin and extent of each.

    >>> _outside((1, 4, 6), (1, 1, 3), 1)
    [((0, 0, -1), (1, 4, 1)), ((0, 0, 6), (1, 4, 1))]
    """
    found = []
    halo = [s // 2 * dilation for s in size]
    for axis in range(3):
        if halo[axis] == 0:
            continue
        for begin in (-halo[axis], shape[axis]):
            # Axes before this one stay inside of the lattice, those after it reach as far as the patches do.
            origin = [*[0] * axis, begin, *(-reach for reach in halo[axis + 1 :])]
            later = [n + 2 * reach for n, reach in zip(shape[axis + 1 :], halo[axis + 1 :], strict=True)]
            extent = [*shape[:axis], halo[axis], *later]
            found.append(((origin[0], origin[1], origin[2]), (extent[0], extent[1], extent[2])))
    return found


def _triple(values: tuple[int, ...]) -> Triple:
    """Fill up to three axes with 1.

    >>> _triple((4, 5))
    (1, 4, 5)
    """
    three = (1,) * (3 - len(values)) + values
    return three[0], three[1], three[2]
