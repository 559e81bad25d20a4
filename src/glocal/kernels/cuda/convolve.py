"""The operations on signals on a GPU, each with its gradients: launches of the kernels in Triton.

What they compute is said in `reference`. x is (b, sources, c), neighbors (n, d) int32, weights (n, d) or None, filters
(d, c, m), taps (d,); float64, float32, float16 or bfloat16, all of one dtype. Sums are in float32 (float64 for float64).
Products of float32 go through the matrix unit in three pieces, nearly as exact as float32; in one piece where torch is
told so: `torch.backends.cuda.matmul.allow_tf32`. Gradients of the signal are gathered over the reversed graph, so that
every run gives the same bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from glocal.kernels.cuda import conv_kernels, signal_kernels

Reverse = tuple[Tensor, Tensor]

_TILE = 2048  # numbers that a program holds at a time, where nothing is multiplied by a matrix
_PROGRAMS = 1024  # so many fill the GPU: rows are cut until there are as many
_ROWS_AT_ONCE = 4  # rows of wide signals that are read before they are added
# Tiles, warps and stages, by kernel, bytes of a number, and if a tile lies in one tap. Those of 4 and 2 bytes were the
# fastest of a few on an H200 for 3->50 and 64->64, d = 25, n = 65,536; nothing else was tried.
_LAUNCHES = {
    ("forward", 8, True): (64, 32, 4, 2),
    ("forward", 8, False): (64, 32, 4, 2),
    ("forward", 4, True): (128, 32, 4, 3),
    ("forward", 4, False): (128, 32, 8, 1),
    ("forward", 2, True): (128, 64, 4, 3),
    ("forward", 2, False): (64, 128, 4, 1),
    ("filter_slopes", 8, True): (32, 32, 4, 2),
    ("filter_slopes", 8, False): (32, 64, 4, 2),
    ("filter_slopes", 4, True): (32, 64, 4, 1),
    ("filter_slopes", 4, False): (64, 64, 4, 1),
    ("filter_slopes", 2, True): (128, 64, 4, 3),
    ("filter_slopes", 2, False): (32, 64, 4, 4),
}
_PRODUCT = 128, 64, 64, 4, 1  # rows, columns, summed, warps and stages of a plain product
_PATCHES = 1 << 28  # numbers of patches' gradients at a time: 1 GiB of float32


def device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Where Triton shall launch, which takes the current device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def graph_conv(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor) -> Tensor:
    """`reference.graph_conv`: (b, n, m). Cost: O(b n d c m) time, no memory beyond the result."""
    (b, sources, c), (n, d), m = x.shape, neighbors.shape, filters.shape[2]
    turned = x.dtype == torch.float32
    filters = (filters.flatten(0, 1).t() if turned else filters).contiguous()
    x, out = x.contiguous(), x.new_empty(b, n, m)
    block_m = _power(m, 16, 128)
    block_n, block_k, warps, stages = _launch("forward", x, c)
    if block_m > 64:
        block_n //= 2
    with device_of(x):
        conv_kernels.forward[(-(-b * n // block_n), -(-m // block_m))](
            x, neighbors, _contiguous(weights, x), filters, out, b * n, n, sources,
            D=d, C=c, M=m, WEIGHTED=weights is not None, TURNED=turned, SUM=sum_dtype(x), PRECISION=_precision(x),
            BLOCK_N=block_n, BLOCK_K=block_k, BLOCK_M=block_m, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out


def filter_slopes(x: Tensor, neighbors: Tensor, weights: Tensor | None, g: Tensor) -> Tensor:
    """Return the gradient (d, c, m) of the filters of `graph_conv`, given that of its result, g (b, n, m)."""
    (b, sources, c), (n, d), m = x.shape, neighbors.shape, g.shape[2]
    block_n, block_k, warps, stages = _launch("filter_slopes", x, c)
    block_m = _power(m, 16, 64)
    tiles = -(-d * c // block_k) * -(-m // block_m)
    blocks = -(-b * n // block_n)
    span = -(-blocks // max(1, min(blocks, -(-_PROGRAMS // tiles)))) * block_n
    parts = -(-b * n // span)
    turned = x.dtype == torch.float32
    x, g = x.contiguous(), (g.flatten(0, 1).t() if turned else g).contiguous()
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    out = torch.empty(parts, d, c, m, dtype=wide, device=x.device)
    with device_of(x):
        conv_kernels.filter_slopes[(-(-d * c // block_k), -(-m // block_m), parts)](
            x, neighbors, _contiguous(weights, x), g, out, b * n, n, sources, span,
            D=d, C=c, M=m, WEIGHTED=weights is not None, TURNED=turned, SUM=sum_dtype(x), PRECISION=_precision(x),
            BLOCK_N=block_n, BLOCK_K=block_k, BLOCK_M=block_m, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return (out[0] if parts == 1 else out.sum(0)).to(x.dtype)


def patch_slopes(g: Tensor, filters: Tensor) -> Tensor:
    """Return the gradient of the patches of `graph_conv`, before the weights: `g F'`, (b, n, d, c)."""
    (b, n, m), (d, c, _) = g.shape, filters.shape
    if g.dtype != torch.float32 or _precision(g) == "tf32":
        return (g.flatten(0, 1) @ filters.flatten(0, 1).t()).view(b, n, d, c)
    g, out = g.contiguous(), g.new_empty(b, n, d, c)
    block_n, block_k, block_m, warps, stages = _PRODUCT
    with device_of(g):
        conv_kernels.patch_slopes[(-(-d * c // block_k), -(-b * n // block_n))](
            g, filters.contiguous(), out, b * n, K=d * c, M=m, SUM=sum_dtype(g), PRECISION=_precision(g),
            BLOCK_N=block_n, BLOCK_K=block_k, BLOCK_M=block_m, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out


def signal_slopes(
    g: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, reverse: Reverse, sources: int
) -> Tensor:
    """Return the gradient (b, sources, c) of x of `graph_conv`. Cost: O(b n d c m); stores some channels of patches."""
    b, (n, d), c = g.shape[0], neighbors.shape, filters.shape[1]
    width = max(1, min(c, _PATCHES // (b * n * d)))
    pieces = [
        in_edge_sums(patch_slopes(g, filters[:, first : first + width]), weights, None, reverse, sources, d)
        for first in range(0, c, width)
    ]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


def in_edge_sums(
    q: Tensor,
    weights: Tensor | None,
    taps: Tensor | None,
    reverse: Reverse,
    sources: int,
    d: int,
    base: Tensor | None = None,
) -> Tensor:
    """Sum `w_e t_l q[e]` over the edges e = (i, l) that point to each source: (b, sources, c). Cost: O(b n d c).

    q is (b, n, d, c), one row for each edge, or (b, n, c), one row for each vertex. `base` (b, sources, c) is added.
    """
    b, n, c = q.shape[0], q.shape[1], q.shape[-1]
    start, edges = reverse
    q, out = q.contiguous(), q.new_empty(b, sources, c)
    block_c = _power(c, 1, 64)
    wide = _ROWS_AT_ONCE if block_c >= 16 else 32
    block = max(1, (2 if block_c >= 16 else 1) * _TILE // (wide * block_c))
    with device_of(q):
        signal_kernels.in_edge_sums[(-(-sources // block), b, -(-c // block_c))](
            q, _contiguous(weights, q), _contiguous(taps, q), _contiguous(base, q), start, edges, out, n, sources, d,
            C=c, WEIGHTED=weights is not None, TAPS=taps is not None, BASE=base is not None, BY_EDGE=q.ndim == 4,
            SUM=sum_dtype(q), BLOCK=block, WIDE=wide, BLOCK_C=block_c,
        )  # fmt: skip
    return out


def shared_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Compute `reference.shared_conv`: (b, n, c) in `dtype`, by default that of x.

    Cost: O(b n d c) time, no memory beyond the result.
    """
    (b, sources, c), (n, d) = x.shape, neighbors.shape
    x, out, block_c = x.contiguous(), x.new_empty(b, n, c, dtype=dtype), _power(c, 1, 64)
    block = max(1, _TILE // (2 * block_c))
    with device_of(x):
        signal_kernels.tap_sums[(-(-n // block), b, -(-c // block_c))](
            x, neighbors, _contiguous(weights, x), taps.contiguous(), out, n, sources, d,
            C=c, WEIGHTED=weights is not None, SUM=sum_dtype(x), BLOCK=block, BLOCK_C=block_c,
        )  # fmt: skip
    return out


def edge_products(x: Tensor, neighbors: Tensor, q: Tensor) -> Tensor:
    """`<x[j_e], q[e]>` for every edge, summed over signals and channels: (n, d). q is (b, n, d, c) or (b, n, c)."""
    (b, sources, c), (n, d) = x.shape, neighbors.shape
    x, q, out, block_c = x.contiguous(), q.contiguous(), x.new_empty(n, d), _power(c, 1, 64)
    block = max(1, _TILE // block_c)
    with device_of(x):
        signal_kernels.edge_products[(-(-n * d // block),)](
            x, neighbors, q, out, b, n * d, sources, d,
            C=c, BY_EDGE=q.ndim == 4, SUM=sum_dtype(x), BLOCK=block, BLOCK_C=block_c,
        )  # fmt: skip
    return out


def _contiguous(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Return what is passed to a kernel for a tensor that may be missing."""
    return other if tensor is None else tensor.contiguous()


def _power(size: int, least: int, most: int) -> int:
    """Return the next power of two from `size` on, between two bounds."""
    return max(least, min(most, 1 << max(0, size - 1).bit_length()))


def _launch(kernel: str, x: Tensor, c: int) -> tuple[int, int, int, int]:
    """Rows and columns of a tile of patches, warps and pipeline stages. A tile lies in one tap where c is divisible by 32."""
    one_tap = c % 32 == 0
    rows, columns, warps, stages = _LAUNCHES[kernel, x.element_size(), one_tap]
    return rows, min(columns, c & -c) if one_tap else columns, warps, stages


def sum_dtype(x: Tensor) -> Any:
    """Return the dtype in which sums of x are kept."""
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _precision(x: Tensor) -> str:
    if x.dtype != torch.float32:
        return "ieee"
    told = torch.backends.cuda.matmul
    # Newer versions of torch have `fp32_precision`, and refuse to read the old switch once the new one was set.
    short = told.fp32_precision == "tf32" if hasattr(told, "fp32_precision") else told.allow_tf32
    return "tf32" if short else "tf32x3"
