"""The differentiable kernels on the CPU, compiled by Numba. What they compute is said in `reference`.

Patches are gathered block by block into the cache and never stored; the backward pass gathers them again. Gradients of
the signal are sums over in-edges: over the reversed graph, or block by block into copies that are then added in a fixed
order. No cut of the work depends on the number of threads, so every run gives the same bits on any number of threads.

All functions take float32 or float64 tensors of one type. Gradients are computed for those inputs that need one; they
are not themselves differentiable, and asking for it is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from glocal.kernels import convolve, rows
from glocal.kernels.threads import share

PARTS = 16  # the work is cut into so many parts: enough for 16 threads, few enough to add up their copies


def graph_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, reverse: tuple[Tensor, Tensor]
) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, n, c), filters (d, c, m) -> (b, n, m). Differentiable.

    `y[i, :] = sum_l w_il x[j_l, :] filters[l]`. Cost: O(b n d c m) time; memory beyond the result O(d c m) forward,
    and backward, for the gradient of x, at most O(b n c).

    >>> x, neighbors = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> graph_conv(x, neighbors, None, torch.tensor([[[2.0]], [[1.0]]]), reverse(neighbors))
    tensor([[[12.],
             [21.]]])
    """
    return _GraphConv.apply(x, neighbors, weights, filters, *reverse)


def shared_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, reverse: tuple[Tensor, Tensor]
) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, n, c) -> (b, n, c). Differentiable.

    `y[i, :] = sum_l taps[l] w_il x[j_l, :]`. Cost: O(b n d c) time, O(n d) memory beyond the result.

    >>> x, neighbors = torch.tensor([[[1.0, 2.0], [10.0, 20.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> shared_conv(x, neighbors, None, torch.tensor([2.0, 1.0]), reverse(neighbors))
    tensor([[[12., 24.],
             [21., 42.]]])
    """
    return _SharedConv.apply(x, neighbors, weights, taps, *reverse)


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None, reverse: tuple[Tensor, Tensor]) -> Tensor:
    """Equation 5: `p_l(i, x) = w_il x[j_l]`, from x (b, n, c) to patches (b, n, d, c). Differentiable.

    Cost: O(b n d c) time and memory: the patches are what is asked for. `graph_conv` does without them.

    >>> x, neighbors = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> extract(x, neighbors, None, reverse(neighbors)).tolist()
    [[[[1.0], [10.0]], [[10.0], [1.0]]]]
    """
    return _Extract.apply(x, neighbors, weights, *reverse)


def reverse(neighbors: Tensor) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to: `edges[start[j] : start[j + 1]]` are those with target `j`.

    Edge `i * d + l` is column `l` of vertex `i`; the edges of one target come in increasing order.
    Returns start (n + 1,) int64 and edges (n d,), int32 where n d allows. Cost: O(n d), a counting sort.

    >>> start, edges = reverse(torch.tensor([[0, 1], [1, 1]], dtype=torch.int32))
    >>> start.tolist(), edges.tolist()
    ([0, 1, 4], [0, 1, 2, 3])
    """
    start = np.zeros(neighbors.shape[0] + 1, np.int64)
    edges = np.empty(neighbors.numel(), np.int32 if neighbors.numel() < 2**31 else np.int64)
    convolve.count_sort(_flat(neighbors), start, edges)
    return torch.from_numpy(start), torch.from_numpy(edges)


class _GraphConv(Function):
    """`graph_conv` and its three gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor,
                start: Tensor, edges: Tensor) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, neighbors, weights, filters, start, edges)
        (b, n, c), (d, _, m) = x.shape, filters.shape
        y = x.new_empty(b, n, m)
        signal, columns, w, out = _flat(x), _flat(neighbors), _flat(weights, x), y.view(-1).numpy()
        packed = convolve.pack(_flat(filters), d * c, m)
        cuts = _cuts(b * _blocks(n, d * c))

        def work(part: int) -> None:
            convolve.forward(signal, columns, w, packed, n, d, c, m, cuts[part], cuts[part + 1], out)

        share(len(cuts) - 1, work)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, filters, start, edges = ctx.saved_tensors
        needs_x, _, needs_weights, needs_filters, *_ = ctx.needs_input_grad
        gx = gw = gf = None
        if needs_x or needs_weights:
            gx, gw = _pull(x, neighbors, weights, filters, (start, edges), g, needs_x, needs_weights)
        if needs_filters:
            gf = _filter_gradient(x, neighbors, weights, filters, g)
        return gx, None, gw, gf, None, None


class _SharedConv(Function):
    """`shared_conv` and its three gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor,
                start: Tensor, edges: Tensor) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, neighbors, weights, taps, start, edges)
        (b, n, c), d = x.shape, taps.shape[0]
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        signal, columns, w, h, out = _flat(x), _flat(neighbors), _flat(weights, x), _flat(taps), y.view(-1).numpy()
        cuts = _cuts(b * n)

        def work(part: int) -> None:
            rows.shared_forward(signal, columns, w, h, n, d, c, cuts[part], cuts[part + 1], out)

        share(len(cuts) - 1, work)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, taps, *reverse = ctx.saved_tensors
        needs_x, _, needs_weights, needs_taps, *_ = ctx.needs_input_grad
        gx = _gather_back(x, weights, taps, reverse, g) if needs_x else None
        gw = gt = None
        if needs_weights or needs_taps:
            products = _edge_products(x, neighbors, g, patches=False)
            gt = _tap_sums(products, weights) if needs_taps else None
            gw = products * taps if needs_weights else None
        return gx, None, gw, gt, None, None


class _Extract(Function):
    """`extract` and its two gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None,
                start: Tensor, edges: Tensor) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, neighbors, weights, start, edges)
        (b, n, c), d = x.shape, neighbors.shape[1]
        patches = x.new_empty(b, n, d, c)
        signal, columns, w, out = _flat(x), _flat(neighbors), _flat(weights, x), patches.view(b, -1).numpy()
        cuts = _cuts(n)

        def work(part: int) -> None:
            batch, piece = divmod(part, len(cuts) - 1)
            i0, i1 = cuts[piece], cuts[piece + 1]
            convolve.gather(signal, columns, w, d, c, i0, i1, batch * n * c, out[batch, i0 * d * c : i1 * d * c])

        share(b * (len(cuts) - 1), work)
        return patches

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, neighbors, weights, *reverse = ctx.saved_tensors
        needs_x, _, needs_weights, *_ = ctx.needs_input_grad
        gx = _gather_back(x, weights, None, reverse, g) if needs_x else None
        gw = _edge_products(x, neighbors, g, patches=True) if needs_weights else None
        return gx, None, gw, None, None


def _gather_back(x: Tensor, weights: Tensor | None, taps: Tensor | None, reverse: list[Tensor], g: Tensor) -> Tensor:
    b, n, c = x.shape
    start, edges = (_flat(part) for part in reverse)
    d, right, w, h = edges.size // n, _flat(g), _flat(weights, x), _flat(taps, x)
    gx = torch.empty_like(x, memory_format=torch.contiguous_format)
    out, cuts = gx.view(-1).numpy(), _cuts(b * n)

    def work(part: int) -> None:
        rows.gather_back(right, w, h, start, edges, n, d, c, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return gx


def _edge_products(x: Tensor, neighbors: Tensor, g: Tensor, *, patches: bool) -> Tensor:
    """Multiply for every edge the row of its target in x with its row of g, (n, d)."""
    (_, n, c), d = x.shape, neighbors.shape[1]
    products = x.new_empty(n, d)
    signal, right, columns, out, cuts = _flat(x), _flat(g), _flat(neighbors), products.view(-1).numpy(), _cuts(n)

    def work(part: int) -> None:
        rows.edge_products(signal, right, columns, n, d, c, int(patches), cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return products


def _tap_sums(products: Tensor, weights: Tensor | None) -> Tensor:
    n, d = products.shape
    values, w, cuts = _flat(products), _flat(weights, products), _cuts(n)
    sums = np.empty((len(cuts) - 1, d), values.dtype)

    def work(part: int) -> None:
        rows.tap_sums(values, w, d, cuts[part], cuts[part + 1], sums[part])

    share(len(cuts) - 1, work)
    return torch.from_numpy(sums.sum(axis=0))


def _filter_gradient(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, g: Tensor) -> Tensor:
    (b, n, c), (d, _, m) = x.shape, filters.shape
    chunks, _, width = convolve.chunking(m, x.element_size())
    size = chunks * (d * c + convolve.SPARE) * width
    cuts = _cuts(b * _blocks(n, d * c), max(1, min(PARTS, 2**22 // size)))
    sums = np.zeros((len(cuts) - 1, size), _flat(x).dtype)
    signal, columns, w, right = _flat(x), _flat(neighbors), _flat(weights, x), _flat(g)

    def work(part: int) -> None:
        first, last = cuts[part], cuts[part + 1]
        convolve.filter_gradient(signal, columns, w, right, n, d, c, m, first, last, sums[part])

    share(len(cuts) - 1, work)
    total = sums.sum(axis=0).reshape(chunks, -1, width)[:, : d * c].transpose(1, 0, 2).reshape(d * c, -1)
    return torch.from_numpy(np.ascontiguousarray(total[:, :m])).view(d, c, m)


def _pull(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, reverse: tuple[Tensor, Tensor],
          g: Tensor, needs_x: bool, needs_weights: bool) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Compute the gradients of x and of the weights, both from g pulled back through the filters."""
    (b, n, c), (d, _, m) = x.shape, filters.shape
    k = d * c
    signal, columns, w, left = _flat(x), _flat(neighbors), _flat(weights, x), _flat(g)
    cuts = _cuts(_blocks(n, k), max(1, PARTS // b))
    pieces = len(cuts) - 1
    lows, offsets = _spans(columns, n, d, c, cuts) if needs_x else (np.zeros(pieces, np.int64),) * 2
    copies = needs_x and b * offsets[-1] <= max(4 * b * n * c, 2**22)
    gx = None
    if needs_x and not copies:
        gx = _signal_gradient(x, weights, filters, reverse, g)
        if not needs_weights:
            return gx, None
    parts = np.empty((b, offsets[-1] if copies else 0), signal.dtype)
    edge = np.empty((b, n * d if needs_weights else 0), signal.dtype)
    packed = convolve.pack(_flat(filters.reshape(k, m).t()), m, k)

    def work(part: int) -> None:
        batch, piece = divmod(part, pieces)
        mine = parts[batch, offsets[piece] : offsets[piece + 1]] if copies else parts[batch]
        convolve.pull(signal, columns, w, packed, left, n, d, c, m, batch, cuts[piece], cuts[piece + 1], lows[piece],
                      mine, edge[batch])  # fmt: skip

    share(b * pieces, work)
    if copies:
        gx = torch.empty_like(x, memory_format=torch.contiguous_format)
        out, targets = gx.view(b, -1).numpy(), _cuts(n)

        def add(part: int) -> None:
            batch, piece = divmod(part, len(targets) - 1)
            convolve.add_spans(parts[batch], offsets, lows, targets[piece], targets[piece + 1], c, out[batch])

        share(b * (len(targets) - 1), add)
    return gx, torch.from_numpy(edge.sum(axis=0) if b > 1 else edge).view(n, d) if needs_weights else None


def _signal_gradient(
    x: Tensor, weights: Tensor | None, filters: Tensor, reverse: tuple[Tensor, Tensor], g: Tensor
) -> Tensor:
    (b, n, c), (d, _, m) = x.shape, filters.shape
    narrow = m < convolve.VECTOR_BYTES // x.element_size()
    packed = _flat(filters.transpose(1, 2)) if narrow else convolve.pack_overlapping(_flat(filters), d * c, m)
    start, edges, w, right = _flat(reverse[0]), _flat(reverse[1]), _flat(weights, x), _flat(g)
    gx = torch.zeros_like(x, memory_format=torch.contiguous_format)
    out, cuts = gx.view(-1).numpy(), _cuts(b * n)

    def work(part: int) -> None:
        convolve.signal_gradient(right, w, packed, start, edges, n, d, c, m, cuts[part], cuts[part + 1], out)

    share(len(cuts) - 1, work)
    return gx


def _spans(columns: Any, n: int, d: int, c: int, cuts: list[int]) -> tuple[Any, Any]:
    """Find for each part of the vertices its first target, and where its copy of the targets' rows starts."""
    block, pieces = convolve.block_size(d * c), len(cuts) - 1
    lows, offsets = np.zeros(pieces, np.int64), np.zeros(pieces + 1, np.int64)

    def work(part: int) -> None:
        low, high = convolve.span(columns, cuts[part] * block * d, min(n, cuts[part + 1] * block) * d)
        lows[part], offsets[part + 1] = low, (high + 1 - low) * c

    share(pieces, work)
    return lows, offsets.cumsum()


def _flat(tensor: Tensor | None, like: Tensor | None = None) -> Any:
    """View a tensor as a flat array; None is an empty array of the numbers of `like`."""
    if tensor is None:
        assert like is not None
        return np.empty(0, like.detach().numpy().dtype)
    return tensor.detach().contiguous().view(-1).numpy()


def _blocks(n: int, k: int) -> int:
    return -(-n // convolve.block_size(k))


def _cuts(count: int, parts: int = PARTS) -> list[int]:
    """Cut 0 ... count into at most `parts` parts of nearly equal length, none of them empty."""
    parts = min(parts, count)
    return [count * part // parts for part in range(parts + 1)]
