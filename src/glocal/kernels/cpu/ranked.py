"""Similarities and the convolution over ranked neighbours on the CPU, without gathered copies of the signal.

The convolution makes the differences of a block of vertices, then one matrix product for it. Each thread works on blocks of its
own. For bfloat16 the differences are computed in float32 and rounded once.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glocal.kernels import reference_ranked
from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.parts import promised
from glocal.kernels.cpu.threads import share, undisturbed

_BLOCK = 1 << 10  # vertices of a thread at a time: 1 MiB of differences for 8 neighbours and 32 channels
_PARTS = 16


def similarities(x: Tensor, neighbors: Tensor) -> Tensor:
    """See `reference_ranked.similarities`; gradients and other dtypes than float32 are left to it."""
    if _left_to_the_reference(x):
        return reference_ranked.similarities(x, neighbors)
    found = torch.empty(neighbors.shape)
    signal, columns, out = x.detach().contiguous().numpy(), neighbors.contiguous().numpy(), found.numpy()
    cuts = np.linspace(0, len(columns), _PARTS + 1).astype(np.int64)

    def work(part: int) -> None:
        promised(columns.reshape(-1), 0, len(x), cuts[part], cuts[part + 1], *neighbors.shape)
        _products(signal, columns, cuts[part], cuts[part + 1], out)

    share(_PARTS, work)
    return found


def ranked_conv(x: Tensor, neighbors: Tensor, weights: Tensor, filters: Tensor) -> Tensor:
    """See `reference_ranked.ranked_conv`; gradients and other dtypes than float32 and bfloat16 are left to it.

    Memory in addition to the result: one block for each thread, O(k c), and for bfloat16 a copy of x in float32.
    """
    short = x.dtype == weights.dtype == filters.dtype == torch.bfloat16
    if _left_to_the_reference(x, weights, filters, short=short):
        return reference_ranked.ranked_conv(x, neighbors, weights, filters)
    (n, k), c = neighbors.shape, x.shape[1]
    matrix = filters.detach().flatten(0, 1)
    result = torch.empty(n, matrix.shape[1], dtype=x.dtype)
    signal, factors = (t.detach().float().contiguous().numpy() for t in (x, weights))
    columns = neighbors.contiguous().numpy()
    write = _short_differences if short else _differences
    blocks = -(-n // _BLOCK)
    cuts = np.linspace(0, blocks, min(_PARTS, blocks) + 1).astype(np.int64) * _BLOCK

    inference = torch.is_inference_mode_enabled()  # each thread has its own mode, and has to be in that of the result

    @torch.inference_mode(inference)
    def work(part: int) -> None:
        differences = torch.empty(_BLOCK, k * c, dtype=x.dtype)
        space = differences.view(torch.uint16).numpy() if short else differences.numpy()
        for start in range(cuts[part], min(n, cuts[part + 1]), _BLOCK):
            size = min(_BLOCK, n - start)
            promised(columns.reshape(-1), 0, len(x), start, start + size, n, k)
            write(signal, columns, factors, start, size, space)
            torch.mm(differences[:size], matrix, out=result[start : start + size])

    with undisturbed():
        share(len(cuts) - 1, work)
    return result


def _left_to_the_reference(*tensors: Tensor, short: bool = False) -> bool:
    learned = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return learned or not (short or all(t.dtype == torch.float32 for t in tensors))


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _products(x, neighbors, first, last, out):
    """Write `<x_i, x_j>` for the vertices `first` to `last - 1`."""
    for i in range(first, last):
        for rank in range(neighbors.shape[1]):
            j, total = neighbors[i, rank], np.float32(0)
            for channel in range(x.shape[1]):
                total += x[i, channel] * x[j, channel]
            out[i, rank] = total


@njit(nogil=True, cache=True)
def _differences(x, neighbors, weights, start, size, out):
    """Write `w_il (x_j - x_i)` for the vertices `start` to `start + size - 1`."""
    k, c = neighbors.shape[1], x.shape[1]
    for row in range(size):
        i = start + row
        for rank in range(k):
            j, w = neighbors[i, rank], weights[i, rank]
            for channel in range(c):
                out[row, rank * c + channel] = w * (x[j, channel] - x[i, channel])


@njit(nogil=True, cache=True)
def _short_differences(x, neighbors, weights, start, size, out):
    """Write the same as the bits of bfloat16, rounded to nearest even.

    x and the weights come from bfloat16: the lower bits of a NaN are 0, so that rounding leaves it a NaN.
    """
    k, c = neighbors.shape[1], x.shape[1]
    values = np.empty(c, np.float32)
    bits = values.view(np.uint32)
    for row in range(size):
        i = start + row
        for rank in range(k):
            j, w = neighbors[i, rank], weights[i, rank]
            for channel in range(c):
                values[channel] = w * (x[j, channel] - x[i, channel])
            for channel in range(c):
                b = bits[channel]
                out[row, rank * c + channel] = (
                    b + np.uint32(0x7FFF) + ((b >> np.uint32(16)) & np.uint32(1))
                ) >> np.uint32(16)
