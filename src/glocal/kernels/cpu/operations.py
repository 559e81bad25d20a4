"""The operations on signals on the CPU, compiled by Numba. What they compute is said in `reference`, the names in `ops`.

Patches are gathered block by block into the cache and never stored; the backward pass gathers them again. Gradients of
the signal are sums over in-edges: over the reversed graph, or block by block into copies that are then added in a fixed
order. No cut of the work depends on the number of threads, so every run gives the same bits on any number of threads.

All functions take float32 or float64 tensors of one dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glocal.kernels.cpu import gram_launch, grams, launch

Gradients = tuple[Tensor | None, ...]


def graph_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Equations 6 and 7 without the non-linearity: x (b, m, c), filters (d, c, maps), bias (maps,) -> (b, n, maps).

    `y[i, :] = bias + sum_l w_il x[j_l, :] filters[l]`. Cost: O(b n d c maps) time; memory beyond the result O(d c maps).

    >>> x, neighbors = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> graph_conv(x, neighbors, None, torch.tensor([[[2.0]], [[1.0]]]))
    tensor([[[12.],
             [21.]]])
    """
    return launch.forward(x, neighbors, weights, filters, bias)


def graph_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, mask: Sequence[bool]
) -> Gradients:
    """Return the gradients of x, weights and filters that `mask` selects. Memory: at most O(b m c) for that of x."""
    return launch.backward(x, neighbors, weights, filters, g, mask)


def shared_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor) -> Tensor:
    """Equation 6 with one filter `taps` (d,) for all channels: x (b, m, c) -> (b, n, c).

    `y[i, :] = sum_l taps[l] w_il x[j_l, :]`. Cost: O(b n d c) time.

    >>> x, neighbors = torch.tensor([[[1.0, 2.0], [10.0, 20.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> shared_conv(x, neighbors, None, torch.tensor([2.0, 1.0]))
    tensor([[[12., 24.],
             [21., 42.]]])
    """
    return launch.shared_forward(x, neighbors, weights, taps)


def shared_conv_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, mask: Sequence[bool]
) -> Gradients:
    """Return the gradients of x, weights and taps that `mask` selects. Memory: O(n d), the reversed graph."""
    gx = launch.gather_back(x, neighbors, weights, taps, g) if mask[0] else None
    gw = gt = None
    if mask[1] or mask[2]:
        products = launch.edge_products(x, neighbors, g, patches=False)
        gt = launch.tap_sums(products, weights) if mask[2] else None
        gw = products * taps if mask[1] else None
    return gx, gw, gt


def extract(x: Tensor, neighbors: Tensor, weights: Tensor | None) -> Tensor:
    """Equation 5: `p_l(i, x) = w_il x[j_l]`, from x (b, m, c) to patches (b, n, d, c).

    Cost: O(b n d c) time and memory: the patches are what is asked for. `graph_conv` does without them.

    >>> x, neighbors = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> extract(x, neighbors, None).tolist()
    [[[[1.0], [10.0]], [[10.0], [1.0]]]]
    """
    return launch.extract(x, neighbors, weights)


def extract_backward(
    g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, mask: Sequence[bool]
) -> Gradients:
    """Return the gradients of x and weights that `mask` selects."""
    gx = launch.gather_back(x, neighbors, weights, None, g) if mask[0] else None
    gw = launch.edge_products(x, neighbors, g, patches=True) if mask[1] else None
    return gx, gw


def gram(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gram matrix `F'F` of the maps `F = max(0, conv(x) + bias)`: x (m, c) -> (maps, maps) in float64, and the maps.

    With shares (r, n) it is `F' diag(shares[r]) F` for each region: (r, maps, maps).
    For x in float64 and the rest in float32 it is computed in float32, except for what decides whether a map is
    positive: a rounding error there changes the gradient by a jump. The maps lie as `grams` says.
    Cost: O(n maps (d c + maps)) time; memory O(n maps).

    >>> x, neighbors = torch.tensor([[1.0], [10.0]]), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    >>> gram(x, neighbors, None, torch.tensor([[[2.0]], [[1.0]]]), torch.tensor([-20.0]))[0]
    tensor([[1.]], dtype=torch.float64)
    """
    total, maps = gram_launch.gram_forward(x, neighbors, weights, filters, bias, shares)
    return total, torch.from_numpy(maps)


def gram_maps(x: Tensor, neighbors: Tensor, filters: Tensor) -> Tensor:
    """Return an empty tensor of the shape and dtype that `gram` returns its maps in."""
    n, m = neighbors.shape[0], filters.shape[2]  # may be symbols: `grams.map_rows` takes numbers only
    rows = torch.sym_max(*(-(-m // height) * height for height in (grams.HEIGHT, grams.ACROSS)))
    return filters.new_empty(-(-n // grams.BLOCK) * rows * grams.BLOCK)


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
    return gram_launch.gram_backward(x, neighbors, weights, filters, maps.numpy(), g, shares)


def variation(image: Tensor) -> tuple[Tensor, Tensor]:
    """Total variation of an image (h, w, c) and its gradient, in one pass. Cost: O(h w c).

    >>> float(variation(torch.tensor([[[0.0], [2.0]]]))[0])
    2.0
    """
    return launch.variation(image)


def squared_differences(x: Tensor, rows: Tensor, candidates: Tensor) -> Tensor:
    """Squared distances of rows x (n, p) to their candidates (n, k) among rows (m, p): (n, k). Cost: O(n k p), no copies.

    >>> squared_differences(torch.zeros(1, 2), torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[1, 0]]))
    tensor([[9., 5.]])
    """
    return launch.squared_differences(x, rows, candidates)


def products(vectors: Tensor, some: list[int]) -> Tensor:
    """Inner products of all vectors (r, n) with some of them: (r, len(some)), float64. Cost: one pass over the vectors."""
    return launch.products(vectors, some)


def combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """`sum_r factors[r] vectors[r]`: (n,). Cost: one pass over the vectors whose factor is not 0."""
    return launch.combine(factors, vectors)


def reverse(neighbors: Tensor, num_sources: int) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to: `edges[start[j] : start[j + 1]]` are those with target `j`.

    Edge `i * d + l` is column `l` of vertex `i`; the edges of one target come in increasing order.
    Returns start (m + 1,) int64 and edges (n d,), int32 where n d allows. Cost: O(n d), a counting sort.

    >>> start, edges = reverse(torch.tensor([[0, 1], [1, 1]], dtype=torch.int32), 2)
    >>> start.tolist(), edges.tolist()
    ([0, 1, 4], [0, 1, 2, 3])
    """
    return launch.reverse(neighbors, num_sources)
