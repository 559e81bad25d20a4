"""The operators on a GPU: how each is put together from launches (`convolve`) and torch's own products.

What they compute is said in `reference`. Every run gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from glocal.kernels import known as facts
from glocal.kernels import reference
from glocal.kernels.cuda import convolve, signal_kernels
from glocal.kernels.cuda.convolve import edge_products, graph_conv, in_edge_sums, shared_conv
from glocal.kernels.cuda.launching import Launch

_PIECE = 512  # vertices: so many are multiplied in the vectors' own precision, and the products are added in float64
_WIDEST = 512  # maps whose signs near 0 are decided in a higher precision
NEAR = 1e-6  # of a map's usual size: what is nearer to 0 counts as near, as on the CPU
TRACE = 1e-18  # of what is near 0: what a map becomes that is positive, but not in the precision of the maps

__all__ = [
    "extract",
    "extract_backward",
    "gram",
    "gram_backward",
    "gram_maps",
    "graph_conv",
    "graph_conv_backward",
    "reverse",
    "shared_conv",
    "shared_conv_backward",
    "variation",
]


def graph_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `graph_conv`. That of the weights needs memory for all patches."""
    sources, gx, gw = x.shape[1], None, None
    if mask[0]:
        gx = convolve.signal_slopes(g, neighbors, weights, filters, facts.reverse(neighbors, sources), sources)
    if mask[1]:
        gw = edge_products(x, neighbors, convolve.patch_slopes(g, filters))
    return gx, gw, convolve.filter_slopes(x, neighbors, weights, g) if mask[2] else None


def shared_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `shared_conv`. Cost: O(b n d c) time, O(n d) memory."""
    gx = gw = gt = None
    if mask[0]:
        gx = in_edge_sums(g, weights, taps, facts.reverse(neighbors, x.shape[1]), x.shape[1], len(taps))
    if mask[1] or mask[2]:
        products = edge_products(x, neighbors, g)
        gt = (products if weights is None else products * weights).sum(0) if mask[2] else None
        gw = products * taps if mask[1] else None
    return gx, gw, gt


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None) -> Tensor:
    """`reference.extract`: (b, n, d, c)."""
    patches = x.index_select(1, neighbors.view(-1)).unflatten(1, neighbors.shape)
    return patches if weights is None else patches.mul_(weights.unsqueeze(-1))


def extract_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `extract`. Cost: O(b n d c)."""
    sources, d = x.shape[1], neighbors.shape[1]
    gx = in_edge_sums(g, weights, None, facts.reverse(neighbors, sources), sources, d) if mask[0] else None
    return gx, edge_products(x, neighbors, g) if mask[1] else None


def reverse(neighbors: Tensor, num_sources: int) -> tuple[Tensor, Tensor]:
    """Compute `reference.reverse`, in int32 where that can count the edges. The host does not wait for the GPU."""
    targets, edges = torch.sort(neighbors.reshape(-1), stable=True)
    sources = torch.arange(num_sources + 1, dtype=targets.dtype, device=targets.device)
    short = len(targets) < 2**31
    start = torch.searchsorted(targets, sources, out_int32=short)
    return start, edges.int() if short else edges


def gram(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gram matrix in float64, or one for each region of shares (r, n), and the maps (n, m), in the dtype of the filters.

    Where x has a higher precision than the filters, it decides which maps are positive, as on the CPU.
    Cost: O(n m (d c + m)) time, O(n (d c + m)) memory.
    """
    d, c, m = filters.shape
    patches = extract(x.to(filters).unsqueeze(0), neighbors, weights).view(-1, d * c)
    maps = torch.addmm(bias, patches, filters.reshape(d * c, m))
    if x.dtype == filters.dtype or m > _WIDEST:
        maps.relu_()
    else:
        _rectify(maps, x, neighbors, weights, filters, bias)
    if shares is None:
        return inner_products(maps.t()), maps
    return torch.stack([inner_products(maps.t(), (maps * share.unsqueeze(1)).t()) for share in shares]), maps


def gram_maps(x: Tensor, neighbors: Tensor, filters: Tensor) -> Tensor:
    """Return an empty tensor of the shape and dtype that `gram` returns its maps in."""
    return filters.new_empty(neighbors.shape[0], filters.shape[2])


def gram_backward(
    g: Tensor,
    maps: Tensor,
    x: Tensor,
    neighbors: Tensor,
    weights: Tensor | None,
    filters: Tensor,
    shares: Tensor | None = None,
) -> Tensor:
    """Return the gradient of x (s, c), in the dtype of the filters, given that of the Gram matrix, of the same shape."""
    slope = torch.ops.aten.threshold_backward(reference.gram_slopes(g, maps, shares), maps, 0)
    patches, sources = convolve.patch_slopes(slope.unsqueeze(0), filters), len(x)
    return in_edge_sums(patches, weights, None, facts.reverse(neighbors, sources), sources, len(filters))[0]


def _rectify(maps: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor) -> None:
    """Set negative maps (n, m) to 0, in place; x, in a higher precision, decides the signs near 0."""
    (n, d), (_, c, m) = neighbors.shape, filters.shape
    largest = torch.linalg.vector_norm(x, torch.inf)
    if weights is not None:
        largest = largest * facts.known(weights, "largest sum", lambda: weights.abs().sum(1).max() / d)
    usual = facts.known(filters, "usual size", lambda: (d * c * filters.square().sum((0, 1))).sqrt())
    block_m = max(16, 1 << (m - 1).bit_length())
    block = max(1, 1024 // block_m)
    _rectify_plan(n, d, c, m, weights is not None, block, block_m)(
        maps, largest, usual, x.contiguous(), neighbors, maps if weights is None else weights.contiguous(),
        filters.contiguous(), bias.contiguous(),
    )  # fmt: skip


@lru_cache(maxsize=64)
def _rectify_plan(n: int, d: int, c: int, m: int, weighted: bool, block: int, block_m: int) -> Launch:
    constants = {"C": c, "M": m, "WEIGHTED": weighted, "NEAR": NEAR, "TRACE": TRACE}
    constants |= {"BLOCK": block, "BLOCK_M": block_m}
    return Launch(signal_kernels.rectify, (-(-n // block),), (n, d), constants)


def inner_products(vectors: Tensor, others: Tensor | None = None) -> Tensor:
    """All inner products of vectors (r, n) with `others`, or with themselves: (r, r), in float64.

    The columns of a matrix are given as `matrix.t()`.
    """
    others = vectors if others is None else others
    n = vectors.shape[1]
    whole = n // _PIECE * _PIECE
    total = (vectors[:, whole:] @ others[:, whole:].t()).double()
    if whole:  # many small products, so that the whole GPU has something to do
        left, right = (each[:, :whole].unflatten(1, (-1, _PIECE)).transpose(0, 1) for each in (vectors, others))
        total = total + torch.bmm(left, right.transpose(1, 2)).sum(0, dtype=torch.float64)
    return total


def variation(image: Tensor) -> tuple[Tensor, Tensor]:
    """`reference.variation` of (h, w, c) and its gradient. Cost: O(h w c), one pass."""
    h, w, c = image.shape
    image, block = image.contiguous(), 1024
    blocks = -(-image.numel() // block)
    slope, totals = torch.empty_like(image), image.new_empty(blocks)
    Launch(signal_kernels.variation, (blocks,), (h, w * c, c), {"BLOCK": block})(image, slope, totals)
    return totals.sum(), slope
