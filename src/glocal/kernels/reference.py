"""The definition of every kernel, in plain torch and a page long. Slow, short, right; the fast backends equal it.

The searches are in `reference_search`.

Operations on signals have the names and arguments of the operators in `ops`. x has m rows where the graph has n
vertices; m = n unless the graph joins two signals. `reverse` is the reversed graph that fast backward passes gather
over.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glocal.lattice import Lattice


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None) -> Tensor:
    """Equation 5: `p_l(i, x) = g(w_i, j_l) x[j_l]`, from x (b, m, c) to patches (b, n, d, c). Differentiable."""
    patches = x.index_select(1, neighbors.reshape(-1)).unflatten(1, neighbors.shape)
    return patches if weights is None else patches * weights.unsqueeze(-1)


def extract_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x and weights, given that of the patches, g (b, n, d, c); None where `mask` is False."""
    gx = gw = None
    if mask[0]:
        q = g if weights is None else g * weights.unsqueeze(-1)
        gx = torch.zeros_like(x).index_add_(1, neighbors.reshape(-1), q.flatten(1, 2))
    if mask[1]:
        gw = (g * extract(x, neighbors, None)).sum((0, 3))
    return gx, gw


def graph_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, m, c), filters (d, c, maps), bias (maps,) -> (b, n, maps).

    Differentiable.
    """
    y = torch.einsum("bndc,dcm->bnm", extract(x, neighbors, weights), filters)
    return y if bias is None else y + bias


def graph_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, weights and filters, given g (b, n, maps) of the result; None where `mask` is False."""
    patches = torch.einsum("bnm,dcm->bndc", g, filters)
    found = extract_backward(patches, x, neighbors, weights, mask)
    gf = torch.einsum("bndc,bnm->dcm", extract(x, neighbors, weights), g) if mask[2] else None
    return *found, gf


def shared_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, m, c) -> (b, n, c). Differentiable."""
    return torch.einsum("bndc,d->bnc", extract(x, neighbors, weights), taps)


def shared_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, weights and taps, given g (b, n, c) of the result; None where `mask` is False."""
    found = extract_backward(torch.einsum("bnc,d->bndc", g, taps), x, neighbors, weights, mask)
    gt = torch.einsum("bndc,bnc->d", extract(x, neighbors, weights), g) if mask[2] else None
    return *found, gt


def lattice_conv(x: Tensor, filters: Tensor, lattice: Lattice, bias: Tensor | None = None) -> Tensor:
    """`graph_conv` on a lattice, by its neighbours. Differentiable."""
    return graph_conv(x, *_edges(lattice, x), filters, bias)


def lattice_conv_backward(
    g: Tensor, x: Tensor, filters: Tensor, lattice: Lattice, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x and filters; None where `mask` is False."""
    return graph_conv_backward(g, x, *_edges(lattice, x), filters, (mask[0], False, mask[1]))[::2]


def lattice_shared(x: Tensor, taps: Tensor, lattice: Lattice) -> Tensor:
    """`shared_conv` on a lattice, by its neighbours. Differentiable."""
    return shared_conv(x, *_edges(lattice, x), taps)


def lattice_shared_backward(
    g: Tensor, x: Tensor, taps: Tensor, lattice: Lattice, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x and taps; None where `mask` is False."""
    return shared_conv_backward(g, x, *_edges(lattice, x), taps, (mask[0], False, mask[1]))[::2]


def _edges(lattice: Lattice, x: Tensor) -> tuple[Tensor, Tensor | None]:
    weights = lattice.weights(x.device)
    return lattice.neighbors(x.device), None if weights is None else weights.to(x.dtype)


def gram(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gram matrix `F'F` of the maps `F = max(0, conv(x) + bias)`, x (m, c) -> (maps, maps) in float64, and the maps.

    With shares (r, n) it is `F' diag(shares[r]) F` for each region: (r, maps, maps). Computed in the dtype of x, which
    may be float64 where the others are float32.
    """
    w = None if weights is None else weights.to(x.dtype)
    maps = torch.relu(graph_conv(x.unsqueeze(0), neighbors, w, filters.to(x.dtype)).squeeze(0) + bias.to(x.dtype))
    if shares is None:
        return (maps.T @ maps).double(), maps
    return torch.stack([maps.T @ (maps * share.to(maps).unsqueeze(1)) for share in shares]).double(), maps


def gram_maps(x: Tensor, neighbors: Tensor, filters: Tensor) -> Tensor:
    """Return an empty tensor of the shape and dtype that `gram` returns its maps in."""
    return x.new_empty(neighbors.shape[0], filters.shape[2])


def gram_backward(
    g: Tensor,
    maps: Tensor,
    x: Tensor,
    neighbors: Tensor,
    weights: Tensor | None,
    filters: Tensor,
    shares: Tensor | None = None,
) -> Tensor:
    """Return the gradient of x (m, c), in the dtype of the filters, given that of the Gram matrix, of the same shape."""
    w, h = None if weights is None else weights.to(x.dtype), filters.to(x.dtype)
    slope = torch.where(maps > 0, gram_slopes(g, maps, shares), 0)
    gx = graph_conv_backward(slope.unsqueeze(0), x.unsqueeze(0), neighbors, w, h, (True, False, False))[0]
    assert gx is not None
    return gx.squeeze(0).to(filters.dtype)


def gram_slopes(g: Tensor, maps: Tensor, shares: Tensor | None) -> Tensor:
    """Return the gradient of the maps (n, m), given that of their Gram matrix, or of those of the regions."""
    sides = (g + g.mT).to(maps)
    if shares is None:
        return maps @ sides
    return torch.stack(
        [maps @ side * share.to(maps).unsqueeze(1) for side, share in zip(sides, shares, strict=True)]
    ).sum(0)


def variation(image: Tensor) -> tuple[Tensor, Tensor]:
    """Total variation `sum |x_i - x_j|` over adjacent pixels and all channels of an image (h, w, c), and its gradient.

    The gradient is the sum of the signs of `x_i - x_j`.
    """
    down, right = image[1:] - image[:-1], image[:, 1:] - image[:, :-1]
    slope = torch.zeros_like(image)
    slope[1:] += down.sign()
    slope[:-1] -= down.sign()
    slope[:, 1:] += right.sign()
    slope[:, :-1] -= right.sign()
    return down.abs().sum() + right.abs().sum(), slope


def products(vectors: Tensor, some: list[int]) -> Tensor:
    """Inner products of all vectors (r, n) with some of them: (r, len(some)), float64 on the CPU."""
    return torch.stack([vectors @ vectors[row] for row in some], 1).to("cpu", torch.float64)


def combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """`sum_r factors[r] vectors[r]`: (n,). The factors are float64 on the CPU."""
    return factors.to(vectors) @ vectors


def reverse(neighbors: Tensor, num_sources: int) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to: `edges[start[j] : start[j + 1]]` are those with target `j`.

    Edge `i * d + l` is column `l` of vertex `i`; the edges of one target come in increasing order.
    Returns start (m + 1,) int64 and edges (n d,) int64 for m sources. Cost: O(n d log(n d)).
    """
    targets = neighbors.reshape(-1).long()
    count = torch.bincount(targets, minlength=num_sources)
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return start, torch.argsort(targets, stable=True)


def squared_differences(x: Tensor, rows: Tensor, candidates: Tensor) -> Tensor:
    """Return `|rows[candidates[i, l]] - x[i]|^2`: x (n, p), rows (m, p), candidates (n, k) int64 -> (n, k)."""
    return (rows[candidates] - x.unsqueeze(1)).square().sum(2)
