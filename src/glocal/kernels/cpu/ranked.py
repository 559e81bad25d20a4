"""Similarities and the convolution over ranked neighbours on the CPU, without gathered copies of the signal.

The convolution makes the differences of a block of vertices, then one matrix product for it.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glocal.kernels import reference_ranked
from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.threads import share

_BLOCK = 1 << 14  # vertices at a time: 16 MiB of differences for 8 neighbours and 32 channels
_PARTS = 16


def similarities(x: Tensor, neighbors: Tensor) -> Tensor:
    """See `reference_ranked.similarities`; gradients and other dtypes than float32 are left to it."""
    if _left_to_the_reference(x):
        return reference_ranked.similarities(x, neighbors)
    found = torch.empty(neighbors.shape)
    signal, columns, out = x.detach().contiguous().numpy(), neighbors.contiguous().numpy(), found.numpy()
    cuts = np.linspace(0, len(columns), _PARTS + 1).astype(np.int64)
    share(_PARTS, lambda part: _products(signal, columns, cuts[part], cuts[part + 1], out))
    return found


def ranked_conv(x: Tensor, neighbors: Tensor, weights: Tensor, filters: Tensor) -> Tensor:
    """See `reference_ranked.ranked_conv`; gradients and other dtypes than float32 are left to it.

    Memory in addition to the result: one block, O(k c).
    """
    if _left_to_the_reference(x, weights, filters):
        return reference_ranked.ranked_conv(x, neighbors, weights, filters)
    (n, k), c = neighbors.shape, x.shape[1]
    matrix = filters.flatten(0, 1)
    result = torch.empty(n, matrix.shape[1])
    differences = torch.empty(min(n, _BLOCK), k * c)
    signal, columns, factors = (t.detach().contiguous().numpy() for t in (x, neighbors, weights))
    space = differences.numpy()
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        cuts = np.linspace(0, size, _PARTS + 1).astype(np.int64)

        def work(part: int, start: int = start, cuts: np.ndarray = cuts) -> None:
            _differences(signal, columns, factors, start, cuts[part], cuts[part + 1], space)

        share(_PARTS, work)
        torch.mm(differences[:size], matrix, out=result[start : start + size])
    return result


def _left_to_the_reference(*tensors: Tensor) -> bool:
    learned = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return learned or any(t.dtype != torch.float32 for t in tensors)


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
def _differences(x, neighbors, weights, start, first, last, out):
    """Write `w_il (x_j - x_i)` for the vertices `start + first` to `start + last - 1`."""
    k, c = neighbors.shape[1], x.shape[1]
    for row in range(first, last):
        i = start + row
        for rank in range(k):
            j, w = neighbors[i, rank], weights[i, rank]
            for channel in range(c):
                out[row, rank * c + channel] = w * (x[j, channel] - x[i, channel])
