"""Hands the loops to the threads: tensors become flat arrays, work is cut into parts, sums of parts are added in order.

The number of parts depends on the sizes, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu import convolve, differences, grams, rows
from glocal.kernels.cpu import vectors as loops
from glocal.kernels.cpu.reuse import room
from glocal.kernels.cpu.threads import share
from glocal.kernels.known import known
from glocal.kernels.known import reverse as reversed_graph

PARTS = 16  # enough for 16 threads, few enough to add up their copies
LEAST = 16  # blocks of a part: what a thread does must take longer than waking it
_NEAR = 1e-6  # of a map's usual size: more than ten times the rounding errors of float32
COPIES, SMALL = 4, 2**22  # copies of a gradient may hold so many times its numbers, or so many numbers


def forward(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor) -> Tensor:
    """Convolve: (b, n, m)."""
    (b, s, c), n, (d, _, m) = x.shape, neighbors.shape[0], filters.shape
    y = _empty(x, b, n, m)
    signal, columns, w, out = _flat(x), _flat(neighbors), _flat(weights, x), y.view(-1).numpy()
    packed = convolve.pack(_flat(filters), d * c, m)
    cuts = _cuts(b * _blocks(n, d * c), PARTS, LEAST)

    def work(part: int) -> None:
        convolve.forward(signal, columns, w, packed, n, s, d, c, m, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return y


def shared_forward(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor) -> Tensor:
    """Convolve every channel with the same taps: (b, n, c)."""
    (b, s, c), (n, d) = x.shape, neighbors.shape
    y = _empty(x, b, n, c)
    signal, columns, w, h, out = _flat(x), _flat(neighbors), _flat(weights, x), _flat(taps), y.view(-1).numpy()
    cuts = _cuts(b * n)

    def work(part: int) -> None:
        rows.shared_forward(signal, columns, w, h, n, s, d, c, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return y


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None) -> Tensor:
    """Gather all patches: (b, n, d, c)."""
    (b, s, c), (n, d) = x.shape, neighbors.shape
    patches = _empty(x, b, n, d, c)
    signal, columns, w, out = _flat(x), _flat(neighbors), _flat(weights, x), patches.view(b, -1).numpy()
    cuts = _cuts(n)

    def work(part: int) -> None:
        batch, piece = divmod(part, len(cuts) - 1)
        i0, i1 = cuts[piece], cuts[piece + 1]
        convolve.gather(signal, columns, w, d, c, i0, i1, batch * s * c, out[batch, i0 * d * c : i1 * d * c])

    share(b * (len(cuts) - 1), work)
    return patches


def reverse(neighbors: Tensor, num_sources: int) -> tuple[Tensor, Tensor]:
    """Sort the edges by target."""
    start = np.zeros(num_sources + 1, np.int64)
    edges = np.empty(neighbors.numel(), np.int32 if neighbors.numel() < 2**31 else np.int64)
    convolve.count_sort(_flat(neighbors), start, edges)
    return torch.from_numpy(start), torch.from_numpy(edges)


def gather_back(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor | None, g: Tensor) -> Tensor:
    """Sum over the in-edges: the gradient of x for `shared_forward`, or without taps for `extract`."""
    (b, s, c), (n, d) = x.shape, neighbors.shape
    start, edges = (_flat(part) for part in reversed_graph(neighbors, s))
    right, w, h = _flat(g), _flat(weights, x), _flat(taps, x)
    gx = torch.empty_like(x, memory_format=torch.contiguous_format)
    out, cuts = gx.view(-1).numpy(), _cuts(b * s)

    def work(part: int) -> None:
        rows.gather_back(right, w, h, start, edges, n, s, d, c, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return gx


def edge_products(x: Tensor, neighbors: Tensor, g: Tensor, *, patches: bool) -> Tensor:
    """Multiply for every edge the row of its target in x with its row of g, (n, d)."""
    (_, s, c), (n, d) = x.shape, neighbors.shape
    products = x.new_empty(n, d)
    signal, right, columns, out, cuts = _flat(x), _flat(g), _flat(neighbors), products.view(-1).numpy(), _cuts(n)

    def work(part: int) -> None:
        rows.edge_products(signal, right, columns, n, s, d, c, int(patches), cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return products


def tap_sums(products: Tensor, weights: Tensor | None) -> Tensor:
    """Compute the gradient of the taps."""
    n, d = products.shape
    values, w, cuts = _flat(products), _flat(weights, products), _cuts(n)
    sums = np.empty((len(cuts) - 1, d), values.dtype)

    def work(part: int) -> None:
        rows.tap_sums(values, w, d, cuts[part], cuts[part + 1], sums[part])

    share(len(cuts) - 1, work)
    return torch.from_numpy(_total(sums))


def backward(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, g: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute those gradients of x, the weights and the filters that are needed."""
    (b, s, c), n, (d, _, m) = x.shape, neighbors.shape[0], filters.shape
    needs_x, needs_weights, needs_filters = needs
    signal, columns, w, right = _flat(x), _flat(neighbors), _flat(weights, x), _flat(g)
    blocks, packed = _blocks(n, d * c), convolve.pack(_flat(filters.reshape(d * c, m).t()), m, d * c)
    cuts = _cuts(blocks, max(1, PARTS // b), LEAST)
    pieces = len(cuts) - 1
    lows, offsets = (
        _spans(neighbors, c, convolve.block_size(d * c), cuts) if needs_x else (np.zeros(pieces + 1, np.int64),) * 2
    )
    copies = needs_x and b * offsets[-1] <= max(COPIES * b * s * c, SMALL)
    parts = np.empty((b, offsets[-1] if copies else 0), signal.dtype)
    edge = np.empty((b, n * d if needs_weights else 0), signal.dtype)
    size = convolve.filters_size(d * c, m, signal.itemsize) if needs_filters else 0
    together = b * pieces * size <= SMALL
    sums = np.zeros((b * pieces, size if together else 0), signal.dtype)

    def work(part: int) -> None:
        batch, piece = divmod(part, pieces)
        first, last = batch * blocks + cuts[piece], batch * blocks + cuts[piece + 1]
        mine = parts[batch, offsets[piece] : offsets[piece + 1]] if copies else parts[batch]
        convolve.backward(signal, columns, w, packed, right, n, s, d, c, m, first, last, lows[piece], mine,
                          edge.reshape(-1), sums[part])  # fmt: skip

    if copies or needs_weights or (needs_filters and together):
        share(b * pieces, work)
    if not together:
        sums = _large_filter_sums(x, neighbors, weights, packed, g, size)
    gx = gw = gf = None
    if copies and pieces == 1 and offsets[-1] == s * c:  # one copy that holds every source is the sum
        gx = torch.from_numpy(parts).view(b, s, c)
    elif copies:
        gx = torch.empty_like(x, memory_format=torch.contiguous_format)
        _add_spans(parts, lows, offsets, gx.view(b, -1).numpy(), c)
    elif needs_x:
        gx = signal_gradient(x, neighbors, weights, filters, g)
    if needs_weights:
        gw = torch.from_numpy(_total(edge) if b > 1 else edge).view(n, d)
    if needs_filters:
        total = sums[0] if len(sums) == 1 else _total(sums)
        gf = torch.from_numpy(convolve.unpack(total, d * c, m)).view(d, c, m)
    return gx, gw, gf


def _large_filter_sums(x: Tensor, neighbors: Tensor, weights: Tensor | None, packed: Any, g: Tensor, size: int) -> Any:
    """Compute the sums of the filters' gradient in so few parts that they fit; each may reach over several batches."""
    (b, s, c), (n, d), m = x.shape, neighbors.shape, g.shape[2]
    signal, columns, w, right = _flat(x), _flat(neighbors), _flat(weights, x), _flat(g)
    cuts, none = _cuts(b * _blocks(n, d * c), max(1, SMALL // size)), np.empty(0, signal.dtype)
    sums = np.zeros((len(cuts) - 1, size), signal.dtype)

    def work(part: int) -> None:
        first, last = cuts[part], cuts[part + 1]
        convolve.backward(signal, columns, w, packed, right, n, s, d, c, m, first, last, 0, none, none, sums[part])

    share(len(cuts) - 1, work)
    return sums


def signal_gradient(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, g: Tensor) -> Tensor:
    """Compute the gradient of x by gathering over the reversed graph."""
    (b, s, c), n, (d, _, m) = x.shape, neighbors.shape[0], filters.shape
    reverse = reversed_graph(neighbors, s)
    narrow = m < convolve.VECTOR_BYTES // x.element_size()
    packed = _flat(filters.transpose(1, 2)) if narrow else convolve.pack_overlapping(_flat(filters), d * c, m)
    start, edges, w, right = _flat(reverse[0]), _flat(reverse[1]), _flat(weights, x), _flat(g)
    gx = torch.zeros_like(x, memory_format=torch.contiguous_format)
    out, cuts = gx.view(-1).numpy(), _cuts(b * s)

    def work(part: int) -> None:
        convolve.signal_gradient(right, w, packed, start, edges, n, s, d, c, m, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return gx


def gram_forward(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor
) -> tuple[Tensor, Any]:
    """Compute the Gram matrix (m, m) of the maps of x (n, c), in float64, and the maps for `gram_backward`.

    The maps have the precision of the filters. If that of x is higher, it decides which of them are positive.
    """
    c, n, (d, _, m) = x.shape[1], neighbors.shape[0], filters.shape
    columns, w, runs = _flat(neighbors), _flat(weights, filters), _runs(neighbors, weights)
    fine, kind = _flat(x), _flat(filters).dtype
    signal = (
        np.ascontiguousarray(x.detach().numpy().T, kind).reshape(-1) if runs.size else fine.astype(kind, copy=False)
    )
    packed = grams.pack(_flat(torch.cat([bias.view(1, m).to(filters), filters.reshape(d * c, m)])), 1 + d * c, m, m, 1)
    if fine.dtype == kind:
        fine, near = fine[:0], np.zeros(m, kind)
    else:
        largest = float(max(signal.max(), -signal.min()))
        if weights is not None:
            largest *= known(weights, "largest sum", lambda: float(weights.detach().abs().sum(1).max())) / d
        sizes = largest * (d * c * filters.detach().square().sum((0, 1))).sqrt() + bias.detach().abs()
        near = _NEAR * _flat(sizes)
    blocks = -(-n // grams.BLOCK)
    maps = room(blocks * grams.map_rows(m) * grams.BLOCK, signal.dtype)
    size = grams.sums_size(m, signal.itemsize)
    cuts = _cuts(blocks, max(1, min(PARTS, SMALL // size)), LEAST)
    sums = room((len(cuts) - 1) * size, signal.dtype)

    def work(part: int) -> None:
        first, last, mine = cuts[part], cuts[part + 1], sums[part * size : (part + 1) * size]
        grams.forward(signal, fine, near, columns, w, runs, packed, n, d, c, m, first, last, maps, mine)

    share(len(cuts) - 1, work)
    lanes = grams.VECTOR_BYTES // signal.itemsize
    return torch.from_numpy(grams.assemble(sums.reshape(-1, size).sum(axis=0, dtype=np.float64), m, lanes)), maps


def gram_backward(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, maps: Any, g: Tensor
) -> Tensor:
    """Compute the gradient of x, (n, c) in the filters' precision, from that of the Gram matrix, (m, m)."""
    c, n, (d, _, m) = x.shape[1], neighbors.shape[0], filters.shape
    columns, w, runs = _flat(neighbors), _flat(weights, filters), _runs(neighbors, weights)
    sides = grams.pack(_flat((g + g.t()).to(filters.dtype)), m, m, m, 1)
    packed = grams.pack(_flat(filters), m, d * c, 1, m)
    blocks = -(-n // grams.BLOCK)
    cuts = _cuts(blocks, PARTS, LEAST)
    lows, offsets = _spans(neighbors, c, grams.BLOCK, cuts)
    if offsets[-1] > max(COPIES * x.numel(), SMALL):
        cuts = _cuts(blocks, COPIES, LEAST)
        lows, offsets = _spans(neighbors, c, grams.BLOCK, cuts)
    parts = room(offsets[-1], maps.dtype)

    def work(part: int) -> None:
        mine, first, last = parts[offsets[part] : offsets[part + 1]], cuts[part], cuts[part + 1]
        grams.backward(maps, columns, w, runs, sides, packed, n, d, c, m, first, last, lows[part], mine)

    share(len(cuts) - 1, work)
    gx = torch.empty_like(x, dtype=filters.dtype, memory_format=torch.contiguous_format)
    _add_spans(parts.reshape(1, -1), lows, offsets, gx.view(1, -1).numpy(), c, planes=runs.size > 0)
    return gx


def variation(image: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the total variation of (h, w, c) and its slope."""
    h, w, c = image.shape
    slope = torch.empty_like(image, memory_format=torch.contiguous_format)
    flat, out = _flat(image), slope.view(-1).numpy()
    totals, cuts = np.zeros(h, flat.dtype), _cuts(h, PARTS, max(1, SMALL // (32 * w * c)))

    def work(part: int) -> None:
        differences.variation(flat, h, w * c, c, cuts[part], cuts[part + 1], out, totals)

    share(len(cuts) - 1, work)
    return torch.tensor(totals.sum(), dtype=image.dtype), slope


def products(vectors: Tensor, some: list[int]) -> Tensor:
    """Multiply all vectors (r, n) with some of them: (r, len(some)), float64."""
    r, n = vectors.shape
    flat, chosen, cuts = _flat(vectors), np.array(some, np.int64), _cuts(n, PARTS, 4 * loops.PIECE)
    sums = np.zeros((len(cuts) - 1, r, len(some)))

    def work(part: int) -> None:
        loops.products(flat, n, chosen, cuts[part], cuts[part + 1], sums[part])

    share(len(cuts) - 1, work)
    return torch.from_numpy(_total(sums))


def combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """Add up the vectors (r, n), each times its factor."""
    n = vectors.shape[1]
    flat, scales, cuts = _flat(vectors), _flat(factors.to(vectors)), _cuts(n, PARTS, 4 * loops.PIECE)
    total = vectors.new_empty(n)
    out = total.numpy()

    def work(part: int) -> None:
        loops.combine(flat, n, scales, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return total


def _spans(neighbors: Tensor, c: int, block: int, cuts: list[int]) -> tuple[Any, Any]:
    """Find for each part of the vertices its first target, and where its copy of the targets' rows starts."""
    n, d = neighbors.shape
    columns, pieces = _flat(neighbors), len(cuts) - 1

    def find() -> tuple[Any, Any]:
        lows, highs = np.zeros(pieces, np.int64), np.zeros(pieces, np.int64)

        def work(part: int) -> None:
            lows[part], highs[part] = convolve.span(columns, cuts[part] * block * d, min(n, cuts[part + 1] * block) * d)

        share(pieces, work)
        return lows, np.append(0, (highs + 1 - lows).cumsum())

    lows, ends = known(neighbors, ("spans", block, *cuts), find)
    return lows, ends * c


def _runs(neighbors: Tensor, weights: Tensor | None) -> Any:
    """Find the runs of a graph without weights, for `grams`; empty where most taps are none."""
    n, d = neighbors.shape

    def find() -> Any:
        runs = np.zeros(-(-n // grams.RUN) * d, np.uint8)
        return runs if grams.find_runs(_flat(neighbors), n, d, runs) > 0.5 else runs[:0]

    return np.empty(0, np.uint8) if weights is not None else known(neighbors, "runs", find)


def _add_spans(parts: Any, lows: Any, offsets: Any, out: Any, c: int, *, planes: bool = False) -> None:
    """Add up the copies of all parts, (b, offsets[-1]), into out (b, n c); `planes`: the copies have channels first."""
    cuts = _cuts(out.shape[1] // c, PARTS, 4096)

    def work(part: int) -> None:
        batch, piece = divmod(part, len(cuts) - 1)
        convolve.add_spans(parts[batch], offsets, lows, cuts[piece], cuts[piece + 1], c, int(planes), out[batch])

    share(len(out) * (len(cuts) - 1), work)


def _empty(like: Tensor, *shape: int) -> Tensor:
    """Make a tensor on memory by NumPy, which asks the system for large pages: fresh ones come several times faster."""
    return torch.from_numpy(np.empty(shape, _flat(like).dtype))


def _flat(tensor: Tensor | None, like: Tensor | None = None) -> Any:
    """View a tensor as a flat array; None is an empty array of the numbers of `like`."""
    if tensor is None:
        assert like is not None
        return np.empty(0, like.detach().numpy().dtype)
    return tensor.detach().contiguous().numpy().reshape(-1)


def _blocks(n: int, k: int) -> int:
    return -(-n // convolve.block_size(k))


def _cuts(count: int, parts: int = PARTS, least: int = 1) -> list[int]:
    """Cut 0 ... count into at most `parts` parts of nearly equal length, each of `least` or more where there are two."""
    parts = max(1, min(parts, count // least))
    return [count * part // parts for part in range(parts + 1)]


def _total(parts: Any) -> Any:
    """Add the parts in their order. Infinity is a result like any other: a line search may step that far."""
    with np.errstate(over="ignore", invalid="ignore"):
        return parts.sum(axis=0)
