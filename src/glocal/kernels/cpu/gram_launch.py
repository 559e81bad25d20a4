"""Hands the loops of the Gram matrix to the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu import grams
from glocal.kernels.cpu.parts import COPIES, LEAST, PARTS, SMALL, add_spans, cut, flat, flat_or_none, promised, spans
from glocal.kernels.cpu.reuse import room
from glocal.kernels.cpu.threads import share
from glocal.kernels.known import known

_NEAR = 1e-6  # of a map's usual size: more than ten times the rounding errors of float32


def gram_forward(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Compute the Gram matrix (m, m) of the maps of x (n, c), in float64, and the maps for `gram_backward`.

    With shares (r, n) there is one for each region, (r, m, m), and the maps are computed once. The maps have the precision
    of the filters. If that of x is higher, it decides which of them are positive.
    """
    c, n, (d, _, m) = x.shape[1], neighbors.shape[0], filters.shape
    columns, w, runs = flat(neighbors), flat_or_none(weights, filters), find_runs(neighbors, weights)
    fine, kind = flat(x), flat(filters).dtype
    signal = (
        np.ascontiguousarray(x.detach().numpy().T, kind).reshape(-1) if runs.size else fine.astype(kind, copy=False)
    )
    packed = grams.pack(flat(torch.cat([bias.view(1, m).to(filters), filters.reshape(d * c, m)])), 1 + d * c, m, m, 1)
    if fine.dtype == kind:
        fine, near = fine[:0], np.zeros(m, kind)
    else:
        largest = float(max(signal.max(), -signal.min()))
        if weights is not None:
            largest *= known(weights, "largest sum", lambda: float(weights.detach().abs().sum(1).max())) / d
        sizes = largest * (d * c * filters.detach().square().sum((0, 1))).sqrt() + bias.detach().abs()
        near = _NEAR * flat(sizes)
    blocks = -(-n // grams.BLOCK)
    maps = room(blocks * grams.map_rows(m) * grams.BLOCK, signal.dtype)
    regions, parts = 1 if shares is None else len(shares), flat_or_none(shares, filters)
    size = regions * grams.sums_size(m, signal.itemsize)
    cuts = cut(blocks, max(1, min(PARTS, SMALL // size)), LEAST)
    sums = room((len(cuts) - 1) * size, signal.dtype)

    def work(part: int) -> None:
        first, last, mine = cuts[part], cuts[part + 1], sums[part * size : (part + 1) * size]
        promised(columns, 0, len(x), first * grams.BLOCK, min(n, last * grams.BLOCK), n, d)
        grams.forward(signal, fine, near, columns, w, runs, packed, parts, n, d, c, m, first, last, maps, mine)

    share(len(cuts) - 1, work)
    lanes = grams.TILE_BYTES // signal.itemsize
    added = sums.reshape(-1, size).sum(axis=0, dtype=np.float64).reshape(regions, -1)
    totals = [torch.from_numpy(grams.assemble(one, m, lanes)) for one in added]
    return totals[0] if shares is None else torch.stack(totals), maps


def gram_backward(
    x: Tensor,
    neighbors: Tensor,
    weights: Tensor | None,
    filters: Tensor,
    maps: Any,
    g: Tensor,
    shares: Tensor | None = None,
) -> Tensor:
    """Compute the gradient of x, (n, c) in the filters' precision, from that of the Gram matrix, or of those of the regions."""
    c, n, (d, _, m) = x.shape[1], neighbors.shape[0], filters.shape
    columns, w, runs = flat(neighbors), flat_or_none(weights, filters), find_runs(neighbors, weights)
    both = (g + g.mT).to(filters.dtype).reshape(-1, m, m)
    sides = np.concatenate([grams.pack(flat(one), m, m, m, 1) for one in both])
    regions = flat_or_none(shares, filters)
    packed = grams.pack(flat(filters), m, d * c, 1, m)
    blocks = -(-n // grams.BLOCK)
    cuts = cut(blocks, PARTS, LEAST)
    lows, offsets = spans(neighbors, len(x), c, grams.BLOCK, cuts)
    if offsets[-1] > max(COPIES * x.numel(), SMALL):
        cuts = cut(blocks, COPIES, LEAST)
        lows, offsets = spans(neighbors, len(x), c, grams.BLOCK, cuts)
    parts = room(offsets[-1], maps.dtype)

    def work(part: int) -> None:
        mine, first, last = parts[offsets[part] : offsets[part + 1]], cuts[part], cuts[part + 1]
        promised(columns, lows[part], len(mine) // c, first * grams.BLOCK, min(n, last * grams.BLOCK), n, d)
        grams.backward(maps, columns, w, runs, sides, packed, regions, n, d, c, m, first, last, lows[part], mine)

    share(len(cuts) - 1, work)
    gx = torch.empty_like(x, dtype=filters.dtype, memory_format=torch.contiguous_format)
    add_spans(parts.reshape(1, -1), lows, offsets, gx.view(1, -1).numpy(), c, planes=runs.size > 0)
    return gx


def find_runs(neighbors: Tensor, weights: Tensor | None) -> Any:
    """Find the runs of a graph without weights, for `grams`; empty where most taps are none."""
    n, d = neighbors.shape

    def find() -> Any:
        runs = np.zeros(-(-n // grams.RUN) * d, np.uint8)
        return runs if grams.find_runs(flat(neighbors), n, d, runs) > 0.5 else runs[:0]

    return np.empty(0, np.uint8) if weights is not None else known(neighbors, "runs", find)
