"""The operations of style transfer on a GPU: products by torch, what torch has no single call for by Triton.

What they compute is said in `reference`. Every run gives the same bits, where torch's own gradient of a gather, which
serves batches and signals of many channels, adds in an order that changes. Other operations are those of `reference`.
Signs near 0 are not decided in the precision of x, as they are on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from glocal.kernels import reference
from glocal.kernels.cuda import signal_kernels as triton_signals
from glocal.kernels.known import reverse

_NARROW = 4  # channels that the sums over in-edges go through one by one
_PIECE = 512  # vertices: so many are multiplied in the vectors' own precision, and the products are added in float64


def device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Where Triton shall launch, which takes the current device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None) -> Tensor:
    """`reference.extract`."""
    return reference.extract(x, neighbors, weights)


def extract_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """`reference.extract_backward`. The gradient of a single narrow signal is summed in a fixed order."""
    if x.shape[0] != 1 or x.shape[2] > _NARROW:
        return reference.extract_backward(g, x, neighbors, weights, mask)
    gx = in_edge_sums(g[0].flatten(1), weights, neighbors, x.shape[2], x.shape[1]).unsqueeze(0) if mask[0] else None
    return gx, reference.extract_backward(g, x, neighbors, weights, (False, mask[1]))[1]


def graph_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor) -> Tensor:
    """`reference.graph_conv`."""
    return reference.graph_conv(x, neighbors, weights, filters)


def graph_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """`reference.graph_conv_backward`, with the sums of `extract_backward`."""
    patches = torch.einsum("bnm,dcm->bndc", g, filters)
    gf = torch.einsum("bndc,bnm->dcm", extract(x, neighbors, weights), g) if mask[2] else None
    return *extract_backward(patches, x, neighbors, weights, mask[:2]), gf


def shared_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor) -> Tensor:
    """`reference.shared_conv`."""
    return reference.shared_conv(x, neighbors, weights, taps)


def shared_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """`reference.shared_conv_backward`, with the sums of `extract_backward`."""
    patches = torch.einsum("bnc,d->bndc", g, taps)
    gt = torch.einsum("bndc,bnc->d", extract(x, neighbors, weights), g) if mask[2] else None
    return *extract_backward(patches, x, neighbors, weights, mask[:2]), gt


def gram(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gram matrix in float64, and the maps (n, m), in the dtype of the filters.

    Cost: O(n m (d c + m)) time, O(n (d c + m)) memory.
    """
    (n, d), c, m = neighbors.shape, x.shape[1], filters.shape[2]
    patches = x.to(filters).index_select(0, neighbors.view(-1)).view(n, d, c)
    if weights is not None:
        patches.mul_(weights.unsqueeze(-1))
    maps = torch.addmm(bias, patches.view(n, d * c), filters.reshape(d * c, m)).relu_()
    return inner_products(maps.t()), maps


def gram_maps(x: Tensor, neighbors: Tensor, filters: Tensor) -> Tensor:
    """An empty tensor of the shape and dtype that `gram` returns its maps in."""
    return filters.new_empty(neighbors.shape[0], filters.shape[2])


def gram_backward(
    g: Tensor, maps: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor
) -> Tensor:
    """The gradient of x (s, c), in the dtype of the filters, from that of the Gram matrix, g (m, m)."""
    flat = filters.flatten(0, 1)
    slope = torch.ops.aten.threshold_backward(maps @ (g + g.t()).to(filters), maps, 0)
    return in_edge_sums(slope @ flat.t().contiguous(), weights, neighbors, *x.shape[::-1])


def inner_products(vectors: Tensor) -> Tensor:
    """All inner products of vectors (r, n), or of the columns of a matrix as `matrix.t()`: (r, r), in float64."""
    n = vectors.shape[1]
    whole = n // _PIECE * _PIECE
    rest = vectors[:, whole:]
    total = (rest @ rest.t()).double()
    if whole:  # many small products, so that the whole GPU has something to do
        parts = vectors[:, :whole].unflatten(1, (-1, _PIECE)).transpose(0, 1)
        total = total + torch.bmm(parts, parts.transpose(1, 2)).sum(0, dtype=torch.float64)
    return total


def in_edge_sums(q: Tensor, weights: Tensor | None, neighbors: Tensor, c: int, n: int) -> Tensor:
    """`sum_e w_e q[e]` over the edges e that point to each of n sources: q (vertices, d c) -> (n, c). Cost: O(n d c)."""
    start, edges = reverse(neighbors, n)
    q, out = q.contiguous(), q.new_empty(n, c)
    block = 16
    with device_of(q):
        triton_signals.in_edge_sums[(-(-n // block),)](
            q, q if weights is None else weights, start, edges, out, n,
            C=c, WEIGHTED=weights is not None, BLOCK=block, WIDE=32,
        )  # fmt: skip
    return out


def variation(image: Tensor) -> tuple[Tensor, Tensor]:
    """`reference.variation` of (h, w, c) and its gradient. Cost: O(h w c), one pass."""
    h, w, c = image.shape
    image, block = image.contiguous(), 1024
    blocks = -(-image.numel() // block)
    slope, totals = torch.empty_like(image), image.new_empty(blocks)
    with device_of(image):
        triton_signals.variation[(blocks,)](image, slope, totals, h, w * c, c, BLOCK=block)
    return totals.sum(), slope
