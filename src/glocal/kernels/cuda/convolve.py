"""The operations on signals on a GPU, each with its gradients: launches of the kernels in Triton.

What they compute is said in `reference`. x is (b, sources, c), neighbors (n, d) int32, weights (n, d) or None, filters
(d, c, m), taps (d,); float64, float32, float16 or bfloat16, all of one dtype. Sums are in float32 (float64 for float64).
Products of float32 go through the matrix unit in three pieces, nearly as exact as float32; in one piece where torch is
told so: `torch.backends.cuda.matmul.allow_tf32`. Gradients of the signal are gathered over the reversed graph, so that
every run gives the same bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from glocal.kernels.cuda import conv_kernels, signal_kernels
from glocal.kernels.cuda.launching import Launch

Reverse = tuple[Tensor, Tensor]

_TILE = 2048  # numbers that a program holds at a time, where nothing is multiplied by a matrix
_BYTES = 8192  # the same for rows that are added
_PROGRAMS = 1024  # so many fill the GPU: rows are cut until there are as many
_ROWS_AT_ONCE = 4  # rows of wide signals that are read before they are added
# Tiles, warps and stages, by kernel, bytes of a number, and if a tile lies in one tap. Those of 4 and 2 bytes were the
# fastest of a few on an H200 for 3->50 and 64->64, d = 25, n = 65,536; nothing else was tried.
_LAUNCHES = {
    ("forward", 8, True): (64, 32, 4, 2),
    ("forward", 8, False): (64, 32, 4, 2),
    ("forward", 4, True): (128, 64, 4, 2),
    ("forward", 4, False): (128, 16, 4, 1),
    ("forward", 2, True): (128, 64, 4, 3),
    ("forward", 2, False): (64, 128, 4, 1),
    ("filter_slopes", 8, True): (32, 32, 4, 2),
    ("filter_slopes", 8, False): (32, 64, 4, 2),
    ("filter_slopes", 4, True): (32, 64, 4, 1),
    ("filter_slopes", 4, False): (64, 32, 4, 1),
    ("filter_slopes", 2, True): (128, 64, 4, 3),
    ("filter_slopes", 2, False): (32, 64, 4, 2),
}
_PRODUCT = 64, 128, 64, 4, 1  # rows, columns, summed, warps and stages of a plain product
_PARTS = 32, 128  # numbers of a result and parts that are added at a time
_PATCHES = 1 << 28  # numbers of patches' gradients at a time: 1 GiB of float32


_plan = lru_cache(maxsize=512)  # one for each shape of a layer


def graph_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Compute `reference.graph_conv`: (b, n, m). Cost: O(b n d c m) time, no memory beyond the result."""
    (b, sources, c), (n, d), m = x.shape, neighbors.shape, filters.shape[2]
    x, out, given = x.contiguous(), x.new_empty(b, n, m), (weights is not None, bias is not None)
    launch, turned = _forward_plan(b, n, sources, d, c, m, given, x.dtype, product_precision(x.dtype))
    filters = (filters.reshape(-1, m).t() if turned else filters).contiguous()
    w, shift = (x if t is None else t.contiguous() for t in (weights, bias))
    launch(x, neighbors, w, filters, shift, out)
    return out


@_plan
def _forward_plan(
    b: int, n: int, sources: int, d: int, c: int, m: int, given: tuple[bool, bool], dtype: torch.dtype, precision: str
) -> tuple[Launch, bool]:
    block_n, block_k, warps, stages = _tile("forward", dtype, c)
    block_m, turned = _power(m, 16, 128), _turned(dtype, c)
    if block_m > 64:
        block_n //= 2
    constants = {
        "D": d, "C": c, "M": m, "WEIGHTED": given[0], "BIAS": given[1], "TURNED": turned, "SUM": sum_dtype(dtype), "PRECISION": precision,
        "BLOCK_N": block_n, "BLOCK_K": block_k, "BLOCK_M": block_m,
    }  # fmt: skip
    grid = -(-b * n // block_n), -(-m // block_m)
    launch = Launch(conv_kernels.forward, grid, (b * n, n, sources), constants, num_warps=warps, num_stages=stages)
    return launch, turned


def filter_slopes(x: Tensor, neighbors: Tensor, weights: Tensor | None, g: Tensor) -> Tensor:
    """Compute the gradient of the filters of `graph_conv` from that of its result, g (b, n, m): (d, c, m)."""
    (b, sources, c), (n, d), m = x.shape, neighbors.shape, g.shape[2]
    x, weighted = x.contiguous(), weights is not None
    launch, turned, parts = _filters_plan(b, n, sources, d, c, m, weighted, x.dtype, product_precision(x.dtype))
    g = (g.reshape(-1, m).t() if turned else g).contiguous()
    out = x.new_empty(parts, d, c, m, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
    launch(x, neighbors, weights.contiguous() if weights is not None else x, g, out)
    if parts == 1:
        return out[0].to(x.dtype)
    total = x.new_empty(d, c, m)
    _parts_plan(parts, d * c * m, out.dtype)(out, total)
    return total


@_plan
def _parts_plan(parts: int, size: int, dtype: torch.dtype) -> Launch:
    block, wide = _PARTS
    constants = {"SUM": sum_dtype(dtype), "BLOCK": block, "WIDE": wide}
    return Launch(conv_kernels.part_sums, (-(-size // block),), (parts, size), constants)


@_plan
def _filters_plan(
    b: int, n: int, sources: int, d: int, c: int, m: int, weighted: bool, dtype: torch.dtype, precision: str
) -> tuple[Launch, bool, int]:
    block_n, block_k, warps, stages = _tile("filter_slopes", dtype, c)
    block_m, turned = _power(m, 16, 64), _turned(dtype, c)
    across, along = -(-d * c // block_k), -(-m // block_m)
    blocks = -(-b * n // block_n)
    span = -(-blocks // max(1, min(blocks, -(-_PROGRAMS // (across * along))))) * block_n
    parts = -(-b * n // span)
    constants = {
        "D": d, "C": c, "M": m, "WEIGHTED": weighted, "TURNED": turned, "SUM": sum_dtype(dtype), "PRECISION": precision,
        "BLOCK_N": block_n, "BLOCK_K": block_k, "BLOCK_M": block_m,
    }  # fmt: skip
    numbers = b * n, n, sources, span
    kernel = conv_kernels.filter_slopes
    launch = Launch(kernel, (across, along, parts), numbers, constants, num_warps=warps, num_stages=stages)
    return launch, turned, parts


def patch_slopes(g: Tensor, filters: Tensor) -> Tensor:
    """Compute the gradient of the patches of `graph_conv`, before the weights: `g F'`, (b, n, d, c)."""
    (b, n, m), (d, c, _) = g.shape, filters.shape
    precision = product_precision(g.dtype)
    if precision != "tf32x3":
        return (g.reshape(-1, m) @ filters.reshape(-1, m).t()).view(b, n, d, c)
    out = g.new_empty(b, n, d, c)
    _patches_plan(b * n, d * c, m, g.dtype, precision)(g.contiguous(), filters.contiguous(), out)
    return out


@_plan
def _patches_plan(rows: int, k: int, m: int, dtype: torch.dtype, precision: str) -> Launch:
    block_n, block_k, block_m, warps, stages = _PRODUCT
    constants = {
        "K": k, "M": m, "SUM": sum_dtype(dtype), "PRECISION": precision,
        "BLOCK_N": block_n, "BLOCK_K": block_k, "BLOCK_M": block_m,
    }  # fmt: skip
    grid = -(-k // block_k), -(-rows // block_n)
    return Launch(conv_kernels.patch_slopes, grid, (rows,), constants, num_warps=warps, num_stages=stages)


def signal_slopes(
    g: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, reverse: Reverse, sources: int
) -> Tensor:
    """Compute the gradient of x of `graph_conv`, (b, sources, c).

    Cost: O(b n d c m) time; memory for the patches' gradient of as many channels as fit into `_PATCHES` numbers.
    """
    b, (n, d), c = g.shape[0], neighbors.shape, filters.shape[1]
    width = max(1, min(c, _PATCHES // (b * n * d)))
    if width == c:
        return in_edge_sums(patch_slopes(g, filters), weights, None, reverse, sources, d)
    pieces = [
        in_edge_sums(patch_slopes(g, filters[:, first : first + width]), weights, None, reverse, sources, d)
        for first in range(0, c, width)
    ]
    return torch.cat(pieces, 2)


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
    q, out = q.contiguous(), q.new_empty(b, sources, c)
    given = tuple(t is not None for t in (weights, taps, base))
    start, edges = reverse
    _sums_plan(b, n, sources, d, c, q.ndim == 4, given, q.dtype)(
        q, *(q if t is None else t.contiguous() for t in (weights, taps, base)), start, edges, out
    )
    return out


@_plan
def _sums_plan(
    b: int, n: int, sources: int, d: int, c: int, by_edge: bool, given: tuple[bool, bool, bool], dtype: torch.dtype
) -> Launch:
    block_c = _power(c, 1, 64)
    wide = _ROWS_AT_ONCE if block_c >= 16 else 32
    block = max(1, _BYTES // (dtype.itemsize * wide * block_c))
    constants = {
        "C": c, "WEIGHTED": given[0], "TAPS": given[1], "BASE": given[2], "BY_EDGE": by_edge, "SUM": sum_dtype(dtype),
        "BLOCK": block, "WIDE": wide, "BLOCK_C": block_c,
    }  # fmt: skip
    grid = -(-sources // block), b, -(-c // block_c)
    return Launch(signal_kernels.in_edge_sums, grid, (n, sources, d), constants)


def shared_conv(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, taps: Tensor, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Compute `reference.shared_conv`: (b, n, c) in `dtype`, by default that of x.

    Cost: O(b n d c) time, no memory beyond the result.
    """
    (b, sources, c), (n, d) = x.shape, neighbors.shape
    x, out = x.contiguous(), x.new_empty(b, n, c, dtype=dtype)
    launch = _taps_plan(b, n, sources, d, c, weights is not None, x.dtype)
    launch(x, neighbors, x if weights is None else weights.contiguous(), taps.contiguous(), out)
    return out


@_plan
def _taps_plan(b: int, n: int, sources: int, d: int, c: int, weighted: bool, dtype: torch.dtype) -> Launch:
    block_c = _power(c, 1, 64)
    block = max(1, _TILE // (2 * block_c))
    constants = {"C": c, "WEIGHTED": weighted, "SUM": sum_dtype(dtype), "BLOCK": block, "BLOCK_C": block_c}
    return Launch(signal_kernels.tap_sums, (-(-n // block), b, -(-c // block_c)), (n, sources, d), constants)


def edge_products(x: Tensor, neighbors: Tensor, q: Tensor) -> Tensor:
    """Compute `<x[j_e], q[e]>` for every edge, summed over signals and channels: (n, d). q is (b, n, d, c) or (b, n, c)."""
    (b, sources, c), (n, d) = x.shape, neighbors.shape
    out = x.new_empty(n, d)
    _products_plan(b, n, sources, d, c, q.ndim == 4, x.dtype)(x.contiguous(), neighbors, q.contiguous(), out)
    return out


@_plan
def _products_plan(b: int, n: int, sources: int, d: int, c: int, by_edge: bool, dtype: torch.dtype) -> Launch:
    block_c = _power(c, 1, 64)
    block = max(1, _TILE // block_c)
    constants = {"C": c, "BY_EDGE": by_edge, "SUM": sum_dtype(dtype), "BLOCK": block, "BLOCK_C": block_c}
    return Launch(signal_kernels.edge_products, (-(-n * d // block),), (b, n * d, sources, d), constants)


def sum_dtype(dtype: torch.dtype) -> Any:
    """Return the dtype in which sums of numbers of `dtype` are kept."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def _power(size: int, least: int, most: int) -> int:
    """Return the next power of two from `size` on, between two bounds."""
    return max(least, min(most, 1 << max(0, size - 1).bit_length()))


def _tile(kernel: str, dtype: torch.dtype, c: int) -> tuple[int, int, int, int]:
    """Return rows and columns of a tile of patches, warps and pipeline stages.

    A tile lies in one tap where c is divisible by 32.
    """
    one_tap = c % 32 == 0
    rows, columns, warps, stages = _LAUNCHES[kernel, dtype.itemsize, one_tap]
    return rows, min(columns, c & -c) if one_tap else columns, warps, stages


def _turned(dtype: torch.dtype, c: int) -> bool:
    """Whether an operand is transposed before the product. For narrow signals that costs more than it brings."""
    return dtype == torch.float32 and c % 32 == 0


def product_precision(dtype: torch.dtype) -> str:
    """Return how the tensor cores multiply a dtype; for float32 it follows torch's own setting."""
    if dtype != torch.float32:
        return "ieee"
    settings = torch.backends.cuda.matmul
    # Newer versions of torch have `fp32_precision`, and refuse to read the old switch once the new one was set.
    short = settings.fp32_precision == "tf32" if hasattr(settings, "fp32_precision") else settings.allow_tf32
    return "tf32" if short else "tf32x3"
