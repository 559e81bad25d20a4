"""Convolutions on a lattice on the CPU: hands the boxes of `stencil` to the threads.

The gradient of the signal is a convolution too, of the gradient of the output with the filters reversed, zeros outside.
What it gives at places outside of the lattice is added to the vertices that the boundary put there.

Where parts are added up, the cut into parts does not depend on the number of threads, so every run gives the same bits.

One product may serve several vertices of a row, with zeros in its filters. So a number that is not finite may spread to
vertices beside those whose patches hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu import stencil
from glocal.kernels.cpu.lattice_plan import Plan, chunks_of, forward_plan, gradient_plans, tables
from glocal.kernels.cpu.parts import PARTS, SMALL, cut, empty, flat, total
from glocal.kernels.cpu.threads import count, share
from glocal.kernels.cpu.tiles import MAX_VECTORS, ROWS, TILE_BYTES
from glocal.lattice import Lattice

_LEAST = 2**20  # products in a part
_ALONE = 2**22  # products that one thread computes faster than it wakes another
Gradients = tuple[Tensor | None, Tensor | None]
Run = Callable[[Plan, int, int, Any], None]  # writes the boxes `first` to `last - 1` of a plan


def lattice_conv(x: Tensor, filters: Tensor, lattice: Lattice, bias: Tensor | None = None) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, n, c), filters (d, c, m), bias (m,) or None -> (b, n, m).

    Cost: O(b n d c m) time, O(1) memory in addition to the result.
    """
    d, c, m = filters.shape
    y = empty(x, *x.shape[:2], m)
    plan = forward_plan(lattice, c, m, TILE_BYTES // x.element_size())
    _write([plan], [y], x.shape[0], d * c * m, _convolver(x, filters, [plan], bias))
    return y


def lattice_conv_backward(g: Tensor, x: Tensor, filters: Tensor, lattice: Lattice, mask: Sequence[bool]) -> Gradients:
    """Return the gradients of x and the filters that `mask` selects, given that of the output, (b, n, m)."""
    gx = gf = None
    if mask[0]:
        d, c, m = filters.shape
        plans = gradient_plans(lattice, m, c, TILE_BYTES // x.element_size())
        flipped = filters.detach().flip(0).transpose(1, 2)
        gx = _signal_gradient(x, lattice, plans, d * c * m, _convolver(g, flipped, plans))
    if mask[1]:
        gf = _filter_gradient(x, g, lattice)
    return gx, gf


def lattice_shared(x: Tensor, taps: Tensor, lattice: Lattice) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, n, c) -> (b, n, c). Cost: O(b n d c)."""
    b, _, c = x.shape
    y = empty(x, *x.shape)
    plan = forward_plan(lattice, c, 0, TILE_BYTES // x.element_size())
    _write([plan], [y], b, len(taps) * c, _sharer(x, taps))
    return y


def lattice_shared_backward(g: Tensor, x: Tensor, taps: Tensor, lattice: Lattice, mask: Sequence[bool]) -> Gradients:
    """Return the gradients of x and the taps that `mask` selects, given that of the output, (b, n, c)."""
    gx = gt = None
    if mask[0]:
        c = x.shape[2]
        plans = gradient_plans(lattice, c, 0, TILE_BYTES // x.element_size())
        gx = _signal_gradient(x, lattice, plans, len(taps) * c, _sharer(g, taps.detach().flip(0)))
    if mask[1]:
        gt = _tap_gradient(x, g, lattice)
    return gx, gt


def _convolver(x: Tensor, filters: Tensor, plans: Sequence[Plan], bias: Tensor | None = None) -> Run:
    """Return what convolves x with the filters (d, c, m) by one of the plans, and adds the bias."""
    _, c, m = filters.shape
    signal, values = flat(x), filters.detach().numpy()
    shift = np.zeros(m, values.dtype)
    if bias is not None:
        shift[:] = bias.detach().numpy()
    layouts = {_layout(plan): plan for plan in plans}
    packed = {layout: (_pack(values, plan), _pack_bias(shift, plan)) for layout, plan in layouts.items()}

    def run(plan: Plan, first: int, last: int, out: Any) -> None:
        region, phases, vectors, chunks = plan
        stencil.convolve(signal, *packed[_layout(plan)], region, c, m, phases, vectors, chunks, first, last, out)

    return run


def _layout(plan: Plan) -> tuple[int, int, int]:
    """Return what decides the layout of the filters of a plan."""
    return max(1, plan.phases), plan.vectors, plan.chunks


def _pack(filters: Any, plan: Plan) -> Any:
    """Lay the filters (d, c, m) out as (chunks, k, width), shifted by one column of the patch from phase to phase."""
    (_, c, m), (depth, down, across) = filters.shape, plan.region.size
    phases, width = max(1, plan.phases), plan.vectors * (TILE_BYTES // filters.itemsize)
    wide = np.zeros((depth * down, across + phases - 1, c, plan.chunks * width), filters.dtype)
    taps = filters.reshape(depth * down, across, c, m)
    for phase in range(phases):
        wide[:, phase : phase + across, :, phase * m : (phase + 1) * m] = taps
    return np.ascontiguousarray(wide.reshape(-1, plan.chunks, width).swapaxes(0, 1)).reshape(-1)


def _pack_bias(bias: Any, plan: Plan) -> Any:
    """Lay the bias (m,) out beside the packed filters."""
    phases, m = max(1, plan.phases), len(bias)
    wide = np.zeros(plan.chunks * plan.vectors * TILE_BYTES // bias.itemsize, bias.dtype)
    wide[: phases * m] = np.tile(bias, phases)
    return wide


def _sharer(x: Tensor, taps: Tensor) -> Run:
    """Return what convolves every channel of x with the same taps (d,)."""
    signal, factors, c = flat(x), flat(taps), x.shape[2]
    return lambda plan, first, last, out: stencil.shared(signal, factors, plan.region, c, first, last, out)


def _write(plans: Sequence[Plan], outputs: Sequence[Tensor], batches: int, work: int, run: Run) -> None:
    """Let the threads compute all plans; `work` are the products for one vertex. The first plan is the largest."""
    threads = count()
    parts = 1 if threads == 1 else 4 * threads  # each has its own buffer, so few are better
    cuts = cut(batches * plans[0].boxes, parts, _least(plans[0], work))
    jobs = [(0, first, last) for first, last in pairwise(cuts)]
    jobs += [(number, 0, batches * plan.boxes) for number, plan in enumerate(plans[1:], start=1)]
    arrays = [y.view(-1).numpy() for y in outputs]

    def part(at: int) -> None:
        number, first, last = jobs[at]
        run(plans[number], first, last, arrays[number])

    _each(len(jobs), part, batches * plans[0].vertices * work)


def _each(parts: int, run: Callable[[int], None], products: int) -> None:
    """Run all parts, by several threads if that is worth it."""
    if products < _ALONE:
        for part in range(parts):
            run(part)
    else:
        share(parts, run)


def _least(plan: Plan, work: int) -> int:
    """Boxes of a part."""
    rows, columns = plan.region.box
    return max(1, _LEAST // (rows * columns * work))


def _signal_gradient(x: Tensor, lattice: Lattice, plans: Sequence[Plan], work: int, run: Run) -> Tensor:
    """Compute the gradient of x: the first plan is that of the lattice, the others are outside of it."""
    b, _, c = x.shape
    gx, *parts = (empty(x, b, plan.vertices, c) for plan in plans)
    _write(plans, [gx, *parts], b, work, run)
    if parts:
        places, start = tables(lattice, 1)
        out = gx.view(-1).numpy()
        for part, (region, *_) in zip(parts, plans[1:], strict=True):
            stencil.fold(flat(part), region.shape, places, start, region.origin, region.extent, c, out)
    return gx


def _filter_gradient(x: Tensor, g: Tensor, lattice: Lattice) -> Tensor:
    """Sum the products of patches and gradients: (d, c, m)."""
    (b, _, c), m, d = x.shape, g.shape[2], lattice.degree
    lanes = TILE_BYTES // x.element_size()
    plan = forward_plan(lattice, c, 8 * lanes, lanes)  # so many maps that one vertex fills a product
    vectors, chunks = chunks_of(m, lanes, min(5, MAX_VECTORS))
    segments, inner = len(plan.region.steps), plan.region.inner
    padded = -(-inner // ROWS[vectors - 1]) * ROWS[vectors - 1]
    size = chunks * segments * padded * vectors * lanes
    cuts = cut(b * plan.boxes, max(1, min(PARTS, SMALL // size)), _least(plan, d * c * m))
    signal, right = flat(x), flat(g)
    sums = np.zeros((len(cuts) - 1, size), signal.dtype)

    def work(part: int) -> None:
        first, last = cuts[part], cuts[part + 1]
        stencil.filter_sums(signal, right, plan.region, c, m, vectors, chunks, padded, first, last, sums[part])

    _each(len(cuts) - 1, work, b * plan.vertices * d * c * m)
    added = total(sums).reshape(chunks, segments, padded, vectors * lanes)[:, :, :inner]
    return torch.from_numpy(np.ascontiguousarray(added.transpose(1, 2, 0, 3).reshape(d, c, -1)[..., :m]))


def _tap_gradient(x: Tensor, g: Tensor, lattice: Lattice) -> Tensor:
    """Sum the products of signal and gradient for each tap: (d,)."""
    (b, _, c), d = x.shape, lattice.degree
    plan = forward_plan(lattice, c, 0, TILE_BYTES // x.element_size())
    signal, right = flat(x), flat(g)
    cuts = cut(b * plan.boxes, PARTS, _least(plan, d * c))
    sums = np.zeros((len(cuts) - 1, d), signal.dtype)

    def work(part: int) -> None:
        stencil.tap_sums(signal, right, plan.region, c, cuts[part], cuts[part + 1], sums[part])

    _each(len(cuts) - 1, work, b * plan.vertices * d * c)
    return torch.from_numpy(total(sums))
