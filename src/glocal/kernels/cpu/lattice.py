"""Convolutions on a lattice on the CPU: plans the boxes of `stencil` and hands them to the threads.

The gradient of the signal is a convolution too, of the gradient of the output with the filters reversed, zeros outside.
What it gives at places outside of the lattice is added to the vertices that the boundary put there.

Where parts are added up, the cut into parts does not depend on the number of threads, so every run gives the same bits.

One product may serve several vertices of a row, with zeros in its filters. So a number that is not finite may spread to
vertices beside those whose patches hold it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu import stencil
from glocal.kernels.cpu.launch import PARTS, SMALL, _cuts, _empty, _flat
from glocal.kernels.cpu.stencil import Region
from glocal.kernels.cpu.threads import count, share
from glocal.kernels.cpu.tiles import MAX_VECTORS, ROWS, VECTOR_BYTES
from glocal.lattice import BOUNDARIES, Lattice

_BUFFER = 96 * 1024  # numbers in the surroundings of a box, for the second-level cache
_PANEL = 6 * 1024  # numbers in filters that stay in the first-level cache
_LEAST = 2**20  # products in a part: what a thread does must take longer than waking it
Triple = tuple[int, int, int]


def lattice_conv(x: Tensor, filters: Tensor, lattice: Lattice) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, n, c), filters (d, c, m) -> (b, n, m).

    Cost: O(b n d c m) time, O(1) memory besides the result.
    """
    y = _empty(x, *x.shape[:2], filters.shape[2])
    tables = _tables(lattice, 1)
    _convolve(x, filters, lattice, tables, (0, 0, 0), _triple(lattice.shape), y)
    return y


def lattice_conv_backward(
    g: Tensor, x: Tensor, filters: Tensor, lattice: Lattice, mask: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and the filters that `mask` asks for, from that of the output, (b, n, m)."""
    gx = gf = None
    if mask[0]:
        flipped = filters.detach().flip(0).transpose(1, 2).contiguous()
        gx = _signal_gradient(g, x, lattice, lambda *where: _convolve(g, flipped, lattice, *where))
    if mask[1]:
        gf = _filter_gradient(x, g, lattice)
    return gx, gf


def lattice_shared(x: Tensor, taps: Tensor, lattice: Lattice) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, n, c) -> (b, n, c). Cost: O(b n d c)."""
    y = _empty(x, *x.shape)
    _shared(x, taps, lattice, _tables(lattice, 1), (0, 0, 0), _triple(lattice.shape), y)
    return y


def lattice_shared_backward(
    g: Tensor, x: Tensor, taps: Tensor, lattice: Lattice, mask: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and the taps that `mask` asks for, from that of the output, (b, n, c)."""
    gx = gt = None
    if mask[0]:
        flipped = taps.detach().flip(0)
        gx = _signal_gradient(g, x, lattice, lambda *where: _shared(g, flipped, lattice, *where))
    if mask[1]:
        gt = _tap_gradient(x, g, lattice)
    return gx, gt


class Tables(NamedTuple):
    """Which vertex stands at each place of the axes, as `Region` takes it."""

    places: Any
    start: Triple


@lru_cache(maxsize=64)
def _tables(lattice: Lattice, reach: int) -> Tables:
    """Tabulate the vertices at the places up to `reach` half patches outside of the lattice."""
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
    return Tables(np.concatenate(found), (start[0], start[1], start[2]))


class Cut(NamedTuple):
    """How a convolution is computed: the shape of the product, the box, and the segments of a patch."""

    phases: int
    vectors: int
    chunks: int
    box: tuple[int, int]
    inner: int
    steps: tuple[int, ...]


@lru_cache(maxsize=256)
def _cut(size: Triple, dilation: int, extent: Triple, c: int, m: int, lanes: int) -> Cut:
    """Choose the cheapest product for a convolution c -> m on a region of a lattice."""
    narrow = extent[2] < stencil.HEIGHTS[0] // 2 and extent[1] > extent[2]
    phases = 0 if narrow else 1 if dilation > 1 else min(range(1, 9), key=lambda p: _cost(size[2], m, p, lanes))
    together = max(1, phases)
    small = size[0] * size[1] * (size[2] + together - 1) * c * together * m <= _PANEL
    vectors, chunks = _chunks(together * m, lanes, MAX_VECTORS if small else 4)
    box = _box(size, dilation, extent, c)
    inner, steps = _segments(size, dilation, box, c, together)
    return Cut(phases, vectors, chunks, box, inner, steps)


def _cost(across: int, m: int, phases: int, lanes: int) -> float:
    """Vector products for each vertex, input channel and row of the patch."""
    return (across + phases - 1) * -(-phases * m // lanes) / phases


def _chunks(columns: int, lanes: int, most: int) -> tuple[int, int]:
    """Cut columns into chunks of equal width: (vectors in each, how many)."""
    vectors = -(-columns // lanes)
    across = -(-vectors // -(-vectors // most))
    return across, -(-vectors // across)


def _box(size: Triple, dilation: int, extent: Triple, c: int) -> tuple[int, int]:
    """Choose the rows and columns of a box, so that its surroundings fit into the cache."""
    down, across = (size[1] - 1) * dilation, (size[2] - 1) * dilation
    columns = max(48, min(2048, _BUFFER // (size[0] * c * (down + 4)) - across))
    columns = -(-extent[2] // -(-extent[2] // columns))
    rows = max(1, min(max(32, 1024 // columns), _BUFFER // (size[0] * c * (columns + across)) - down))
    return min(rows, extent[1]), columns


def _segments(size: Triple, dilation: int, box: tuple[int, int], c: int, phases: int) -> tuple[int, tuple[int, ...]]:
    """Find the segments of a patch in the buffer of a box: the length of each, and where they begin.

    For `phases` of 0 every tap is a segment; otherwise the taps of a row are together where nothing lies between them.
    """
    high, wide = box[0] + (size[1] - 1) * dilation, box[1] + (size[2] - 1) * dilation
    rows = [(t * high + y * dilation) * wide * c for t in range(size[0]) for y in range(size[1])]
    if dilation == 1 and phases > 0:
        return (size[2] + phases - 1) * c, tuple(rows)
    return c, tuple(row + x * dilation * c for row in rows for x in range(size[2]))


def _region(
    lattice: Lattice, tables: Tables, origin: Triple, extent: Triple, box: Any, inner: int, steps: Any
) -> Region:
    shape, size = _triple(lattice.shape), _triple(lattice.size)
    return Region(
        shape,
        size,
        lattice.dilation,
        tables.places,
        tables.start,
        origin,
        extent,
        box,
        np.array(steps, np.int64),
        inner,
    )


def _parts() -> int:
    """Into how many parts to cut what is not added up: each has a buffer of its own, so few are better."""
    threads = count()
    return 1 if threads == 1 else 4 * threads


def _share(region: Region, batches: int, work: int, most: int) -> list[int]:
    """Cut the boxes of all batches into parts; `work` are the products for one vertex."""
    (high, wide), extent = region.box, region.extent
    boxes = batches * extent[0] * -(-extent[1] // high) * -(-extent[2] // wide)
    return _cuts(boxes, most, max(1, _LEAST // (high * wide * work)))


def _convolve(
    x: Tensor, filters: Tensor, lattice: Lattice, tables: Tables, origin: Triple, extent: Triple, y: Tensor
) -> None:
    """Write the convolution on a region, (b, *extent, m)."""
    d, c, m = filters.shape
    lanes, size = VECTOR_BYTES // x.element_size(), _triple(lattice.size)
    cut = _cut(size, lattice.dilation, extent, c, m, lanes)
    region = _region(lattice, tables, origin, extent, cut.box, cut.inner, cut.steps)
    signal, out, packed = _flat(x), y.view(-1).numpy(), _pack(filters.detach().numpy(), size, cut, lanes)
    cuts = _share(region, x.shape[0], d * c * m, _parts())

    def work(part: int) -> None:
        stencil.convolve(signal, packed, region, c, m, cut.phases, cut.vectors, cut.chunks, cuts[part], cuts[part + 1],
                         out)  # fmt: skip

    share(len(cuts) - 1, work)


def _pack(filters: Any, size: Triple, cut: Cut, lanes: int) -> Any:
    """Lay the filters (d, c, m) out as (chunks, k, width), shifted by one column of the patch from phase to phase."""
    (_, c, m), (depth, down, across) = filters.shape, size
    phases, width = max(1, cut.phases), cut.vectors * lanes
    wide = np.zeros((depth * down, across + phases - 1, c, cut.chunks * width), filters.dtype)
    taps = filters.reshape(depth * down, across, c, m)
    for phase in range(phases):
        wide[:, phase : phase + across, :, phase * m : (phase + 1) * m] = taps
    return np.ascontiguousarray(wide.reshape(-1, cut.chunks, width).swapaxes(0, 1)).reshape(-1)


def _filter_gradient(x: Tensor, g: Tensor, lattice: Lattice) -> Tensor:
    """Sum the products of patches and gradients: (d, c, m)."""
    (b, _, c), m, d = x.shape, g.shape[2], lattice.degree
    lanes, size, extent = VECTOR_BYTES // x.element_size(), _triple(lattice.size), _triple(lattice.shape)
    vectors, chunks = _chunks(m, lanes, min(5, MAX_VECTORS))
    box = _box(size, lattice.dilation, extent, c)
    inner, steps = _segments(size, lattice.dilation, box, c, 1)
    region = _region(lattice, _tables(lattice, 1), (0, 0, 0), extent, box, inner, steps)
    padded = -(-inner // ROWS[vectors - 1]) * ROWS[vectors - 1]
    layout = (chunks, len(steps), padded, vectors * lanes)
    cuts = _share(region, b, d * c * m, max(1, min(PARTS, SMALL // int(np.prod(layout)))))
    signal, right = _flat(x), _flat(g)
    sums = np.zeros((len(cuts) - 1, *layout), signal.dtype)

    def work(part: int) -> None:
        mine = sums[part].reshape(-1)
        stencil.filter_sums(signal, right, region, c, m, vectors, chunks, padded, cuts[part], cuts[part + 1], mine)

    share(len(cuts) - 1, work)
    total = _total(sums)[:, :, :inner].transpose(1, 2, 0, 3).reshape(d, c, -1)[..., :m]
    return torch.from_numpy(np.ascontiguousarray(total))


def _shared(
    x: Tensor, taps: Tensor, lattice: Lattice, tables: Tables, origin: Triple, extent: Triple, y: Tensor
) -> None:
    """Write the convolution with one filter for all channels on a region, (b, *extent, c)."""
    c, region = x.shape[2], _tap_region(x, lattice, tables, origin, extent)
    signal, factors, out = _flat(x), _flat(taps), y.view(-1).numpy()
    cuts = _share(region, x.shape[0], lattice.degree * c, _parts())

    def work(part: int) -> None:
        stencil.shared(signal, factors, region, c, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)


def _tap_gradient(x: Tensor, g: Tensor, lattice: Lattice) -> Tensor:
    """Sum the products of signal and gradient for each tap: (d,)."""
    c, region = x.shape[2], _tap_region(x, lattice, _tables(lattice, 1), (0, 0, 0), _triple(lattice.shape))
    signal, right = _flat(x), _flat(g)
    cuts = _share(region, x.shape[0], lattice.degree * c, PARTS)
    sums = np.zeros((len(cuts) - 1, lattice.degree), signal.dtype)

    def work(part: int) -> None:
        stencil.tap_sums(signal, right, region, c, cuts[part], cuts[part + 1], sums[part])

    share(len(cuts) - 1, work)
    return torch.from_numpy(_total(sums))


def _tap_region(x: Tensor, lattice: Lattice, tables: Tables, origin: Triple, extent: Triple) -> Region:
    """The region for `stencil.shared`, where every tap is a segment."""
    size, c = _triple(lattice.size), x.shape[2]
    box = _box(size, lattice.dilation, extent, c)
    inner, steps = _segments(size, lattice.dilation, box, c, 0)
    return _region(lattice, tables, origin, extent, box, inner, steps)


def _signal_gradient(g: Tensor, x: Tensor, lattice: Lattice, convolve: Any) -> Tensor:
    """Compute the gradient of x, where `convolve(tables, origin, extent, out)` convolves g with the reversed filters."""
    b, _, c = x.shape
    shape, size = _triple(lattice.shape), _triple(lattice.size)
    tables, gx = _tables(replace(lattice, boundary="zero"), 2), _empty(x, *x.shape)
    convolve(tables, (0, 0, 0), shape, gx)
    if lattice.boundary != "zero":
        stands = _tables(lattice, 1)
        for origin, extent in _outside(shape, size, lattice.dilation):
            part = _empty(x, b, int(np.prod(extent)), c)
            convolve(tables, origin, extent, part)
            stencil.fold(_flat(part), shape, stands.places, stands.start, origin, extent, c, gx.view(-1).numpy())
    return gx


@lru_cache(maxsize=64)
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


def _total(parts: Any) -> Any:
    """Add the parts in their order. Infinity is a result like any other: a line search may step that far."""
    with np.errstate(over="ignore", invalid="ignore"):
        return parts.sum(axis=0)
