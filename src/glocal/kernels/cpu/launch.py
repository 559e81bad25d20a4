"""Hands the loops to the threads: tensors become flat arrays, work is cut into parts, sums of parts are added in order.

The number of parts depends on the sizes, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.kernels.cpu import convolve, differences, in_edges, packing, rows
from glocal.kernels.cpu import vectors as loops
from glocal.kernels.cpu.parts import (
    COPIES,
    LEAST,
    PARTS,
    SMALL,
    add_spans,
    cut,
    empty,
    flat,
    flat_or_none,
    promised,
    spans,
    total,
)
from glocal.kernels.cpu.threads import share
from glocal.kernels.cpu.turns import share_turns
from glocal.kernels.known import reverse as reversed_graph


def forward(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Convolve, and add the bias (m,): (b, n, m)."""
    (b, s, c), n, (d, _, m) = x.shape, neighbors.shape[0], filters.shape
    y = empty(x, b, n, m)
    packed = packing.pack(flat(filters), d * c, m, m, 1)
    cuts = np.array(cut(b * _blocks(n, d * c), PARTS, LEAST))
    given = flat(x), flat(neighbors), flat_or_none(weights, x), packed, flat_or_none(bias, x)
    share_turns(len(cuts) - 1, convolve.forward_parts, *given, n, s, d, c, m, cuts, flat(y))
    return y


def shared_forward(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor) -> Tensor:
    """Convolve every channel with the same taps: (b, n, c)."""
    (b, s, c), (n, d) = x.shape, neighbors.shape
    y = empty(x, b, n, c)
    signal, columns, w, h, out = flat(x), flat(neighbors), flat_or_none(weights, x), flat(taps), y.view(-1).numpy()
    cuts = cut(b * n)

    def work(part: int) -> None:
        promised(columns, 0, s, cuts[part], cuts[part + 1], n, d)
        rows.shared_forward(signal, columns, w, h, n, s, d, c, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return y


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None) -> Tensor:
    """Gather all patches: (b, n, d, c)."""
    (b, s, c), (n, d) = x.shape, neighbors.shape
    patches = empty(x, b, n, d, c)
    signal, columns, w, out = flat(x), flat(neighbors), flat_or_none(weights, x), patches.view(b, -1).numpy()
    cuts = cut(n)

    def work(part: int) -> None:
        batch, piece = divmod(part, len(cuts) - 1)
        i0, i1 = cuts[piece], cuts[piece + 1]
        promised(columns, 0, s, i0, i1, n, d)
        convolve.gather(signal, columns, w, d, c, i0, i1, batch * s * c, out[batch, i0 * d * c : i1 * d * c])

    share(b * (len(cuts) - 1), work)
    return patches


def reverse(neighbors: Tensor, num_sources: int) -> tuple[Tensor, Tensor]:
    """Sort the edges by target."""
    columns, (n, d) = flat(neighbors), neighbors.shape
    promised(columns, 0, num_sources, 0, n, n, d)
    start = np.zeros(num_sources + 1, np.int64)
    edges = np.empty(neighbors.numel(), np.int32 if neighbors.numel() < 2**31 else np.int64)
    convolve.count_sort(columns, start, edges)
    return torch.from_numpy(start), torch.from_numpy(edges)


def gather_back(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor | None, g: Tensor) -> Tensor:
    """Sum over the in-edges: the gradient of x for `shared_forward`, or without taps for `extract`."""
    (b, s, c), (n, d) = x.shape, neighbors.shape
    start, edges = (flat(part) for part in reversed_graph(neighbors, s))
    right, w, h = flat(g), flat_or_none(weights, x), flat_or_none(taps, x)
    gx = torch.empty_like(x, memory_format=torch.contiguous_format)
    out, cuts = gx.view(-1).numpy(), cut(b * s)

    def work(part: int) -> None:
        rows.gather_back(right, w, h, start, edges, n, s, d, c, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return gx


def edge_products(x: Tensor, neighbors: Tensor, g: Tensor, *, patches: bool) -> Tensor:
    """Multiply for every edge the row of its target in x with its row of g, (n, d)."""
    (_, s, c), (n, d) = x.shape, neighbors.shape
    products = x.new_empty(n, d)
    signal, right, columns, out, cuts = flat(x), flat(g), flat(neighbors), products.view(-1).numpy(), cut(n)

    def work(part: int) -> None:
        promised(columns, 0, s, cuts[part], cuts[part + 1], n, d)
        rows.edge_products(signal, right, columns, n, s, d, c, int(patches), cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return products


def tap_sums(products: Tensor, weights: Tensor | None) -> Tensor:
    """Compute the gradient of the taps."""
    n, d = products.shape
    values, w, cuts = flat(products), flat_or_none(weights, products), cut(n)
    sums = np.empty((len(cuts) - 1, d), values.dtype)

    def work(part: int) -> None:
        rows.tap_sums(values, w, d, cuts[part], cuts[part + 1], sums[part])

    share(len(cuts) - 1, work)
    return torch.from_numpy(total(sums))


def backward(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, g: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute those gradients of x, the weights and the filters that are needed."""
    (b, s, c), n, (d, _, m) = x.shape, neighbors.shape[0], filters.shape
    needs_x, needs_weights, needs_filters = needs
    packed = packing.pack(flat(filters), m, d * c, 1, m)
    graph = flat(x), flat(neighbors), flat_or_none(weights, x), packed, flat(g), n, s, d, c, m
    blocks, numbers = _blocks(n, d * c), packed.dtype
    cuts, lows, offsets = _pieces(neighbors, x, d * c, needs_x=needs_x)
    pieces = len(cuts) - 1
    copies = needs_x and b * offsets[-1] <= max(COPIES * b * s * c, SMALL)
    parts = np.empty((b, offsets[-1] if copies else 0), numbers)
    edge = np.empty((b, n * d if needs_weights else 0), numbers)
    size = packing.filters_size(d * c, m, packed.itemsize) if needs_filters else 0
    together = b * pieces * size <= SMALL
    sums = np.zeros((b * pieces, size if together else 0), numbers)
    if copies or needs_weights or (needs_filters and together):
        share_turns(b * pieces, convolve.backward_parts, *graph, b * pieces, blocks, cuts, lows, offsets,
                     parts.reshape(-1), edge.reshape(-1), sums.reshape(-1))  # fmt: skip
    if not together:
        sums = _large_filter_sums(graph, b * blocks, size)
    gx = gw = gf = None
    if copies and pieces == 1 and offsets[-1] == s * c:  # one copy that holds every source is the sum
        gx = torch.from_numpy(parts).view(b, s, c)
    elif copies:
        gx = torch.empty_like(x, memory_format=torch.contiguous_format)
        add_spans(parts, lows, offsets, gx.view(b, -1).numpy(), c)
    elif needs_x:
        gx = signal_gradient(x, neighbors, weights, filters, g)
    if needs_weights:
        gw = torch.from_numpy(total(edge)).view(n, d)
    if needs_filters:
        gf = torch.from_numpy(packing.unpack(total(sums), d * c, m)).view(d, c, m)
    return gx, gw, gf


def _pieces(neighbors: Tensor, x: Tensor, k: int, *, needs_x: bool) -> tuple[Any, Any, Any]:
    """Cut the blocks of one signal into parts; for the gradient of x, also find what each part's copy of it holds."""
    (b, s, c), blocks = x.shape, _blocks(len(neighbors), k)
    cuts = cut(blocks, max(1, PARTS // b), LEAST)
    if not needs_x:
        zeros = np.zeros(len(cuts), np.int64)
        return np.array(cuts), zeros, zeros
    lows, offsets = spans(neighbors, s, c, packing.block_size(k), cuts)
    if offsets[-1] > COPIES * s * c:  # copies that hold nearly everything take time to fill and to add: so have fewer
        cuts = cut(blocks, max(1, PARTS // (2 * b)), LEAST)
        lows, offsets = spans(neighbors, s, c, packing.block_size(k), cuts)
    return np.array(cuts), lows, offsets


def _large_filter_sums(graph: tuple[Any, ...], blocks: int, size: int) -> Any:
    """Compute the sums of the filters' gradient in so few parts that they fit; each may reach over several batches."""
    numbers = graph[0].dtype
    cuts, none = cut(blocks, max(1, SMALL // size)), np.empty(0, numbers)
    pieces = len(cuts) - 1
    sums, zeros = np.zeros((pieces, size), numbers), np.zeros(pieces + 1, np.int64)
    share_turns(pieces, convolve.backward_parts, *graph, pieces, 0, np.array(cuts), zeros, zeros, none, none,
                sums.reshape(-1))  # fmt: skip
    return sums


def signal_gradient(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, g: Tensor) -> Tensor:
    """Compute the gradient of x by gathering over the reversed graph."""
    (b, s, c), n, (d, _, m) = x.shape, neighbors.shape[0], filters.shape
    reverse = reversed_graph(neighbors, s)
    narrow = m < in_edges.VECTOR_BYTES // x.element_size()
    packed = flat(filters.transpose(1, 2)) if narrow else packing.pack_overlapping(flat(filters), d * c, m)
    start, edges, w, right = flat(reverse[0]), flat(reverse[1]), flat_or_none(weights, x), flat(g)
    gx = torch.zeros_like(x, memory_format=torch.contiguous_format)
    out, cuts = gx.view(-1).numpy(), cut(b * s)

    def work(part: int) -> None:
        in_edges.signal_gradient(right, w, packed, start, edges, n, s, d, c, m, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return gx


def squared_differences(x: Tensor, rows_of: Tensor, candidates: Tensor) -> Tensor:
    """Compare each row of x (n, p) with its candidates (n, k) among other rows (m, p): (n, k)."""
    (n, k), p = candidates.shape, x.shape[1]
    if n != len(x) or p != rows_of.shape[1]:
        message = (
            f"squared_differences: x {tuple(x.shape)}, rows {tuple(rows_of.shape)} and candidates {(n, k)} must be "
            "(n, p), (m, p) and (n, k). Give every row its candidates."
        )
        raise ArgumentError(message)
    if candidates.numel() == 0:
        return x.new_empty(n, k)
    low, high = torch.aminmax(candidates)
    if int(low) < 0 or int(high) >= len(rows_of):
        bad = int(low) if low < 0 else int(high)
        message = f"squared_differences: `candidates` has the index {bad} for {len(rows_of)} rows. Number them from 0."
        raise ArgumentError(message)
    away = x.new_empty(n, k)
    own, others, chosen, out, cuts = flat(x), flat(rows_of), flat(candidates), away.view(-1).numpy(), cut(n)

    def work(part: int) -> None:
        rows.squared_differences(own, others, chosen, k, p, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return away


def variation(image: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the total variation of (h, w, c) and its slope."""
    h, w, c = image.shape
    slope = torch.empty_like(image, memory_format=torch.contiguous_format)
    values, out = flat(image), slope.view(-1).numpy()
    totals, cuts = np.zeros(h, values.dtype), cut(h, PARTS, max(1, SMALL // (32 * w * c)))

    def work(part: int) -> None:
        differences.variation(values, h, w * c, c, cuts[part], cuts[part + 1], out, totals)

    share(len(cuts) - 1, work)
    return torch.tensor(totals.sum(), dtype=image.dtype), slope


def products(vectors: Tensor, some: list[int]) -> Tensor:
    """Multiply all vectors (r, n) with some of them: (r, len(some)), float64."""
    r, n = vectors.shape
    values, chosen, cuts = flat(vectors), np.array(some, np.int64), cut(n, PARTS, 4 * loops.PIECE)
    sums = np.zeros((len(cuts) - 1, r, len(some)))

    def work(part: int) -> None:
        loops.products(values, n, chosen, cuts[part], cuts[part + 1], sums[part])

    share(len(cuts) - 1, work)
    return torch.from_numpy(total(sums))


def combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """Add up the vectors (r, n), each times its factor."""
    n = vectors.shape[1]
    values, scales, cuts = flat(vectors), flat(factors.to(vectors)), cut(n, PARTS, 4 * loops.PIECE)
    combined = vectors.new_empty(n)
    out = combined.numpy()

    def work(part: int) -> None:
        loops.combine(values, n, scales, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return combined


def _blocks(n: int, k: int) -> int:
    return -(-n // packing.block_size(k))
