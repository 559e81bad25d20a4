"""Vectors that occur many times, as in flat or repeated parts of a picture.

All copies of a vector are equally far from everything, and ties go to the smaller index: of more than k copies, those
after the first k are nobody's neighbours. Without this rule a large white area would have to be searched pixel by pixel.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.match_bounds import BLOCK, SAMPLE, Vectors
from glocal.kernels.cpu.neighbor_lists import Array
from glocal.kernels.cpu.threads import share

FEW = 4  # copies in a sample that are not worth the effort


class Some:
    """A part of other vectors."""

    def __init__(self, vectors: Vectors, names: Array):
        self.vectors, self.names = vectors, torch.from_numpy(names)
        self.count, self.length = len(names), vectors.length

    def take(self, places: Tensor) -> Tensor:
        """Return these vectors: (len(places), length) float64."""
        return self.vectors.take(self.names[places])


@njit(nogil=True, cache=True)
def _hash(bits: Array, out: Array) -> None:
    for i in range(len(bits)):
        value = np.uint64(0xCBF29CE484222325)
        for word in bits[i]:
            value = (value ^ word) * np.uint64(0x100000001B3)
            value ^= value >> np.uint64(29)
        out[i] = value


def _hashes(vectors: Vectors, places: Tensor) -> Array:
    out = np.empty(len(places), np.uint64)

    def work(block: int) -> None:
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        words = vectors.take(places[part]) + 0.0  # no negative zeros
        _hash(words.numpy().view(np.uint64), out[part])

    share(-(-len(places) // BLOCK), work)
    return out


def distinct(vectors: Vectors, k: int) -> Array:
    """List the vectors without those that have `k` copies before them. Cost: O(m f) where a sample shows copies.

    >>> class Rows:
    ...     count, length = 5, 1
    ...     def take(self, places):
    ...         return torch.tensor([[1.0], [2.0], [1.0], [1.0], [2.0]], dtype=torch.float64)[places]
    >>> distinct(Rows(), 2).tolist()
    [0, 1, 2, 4]
    """
    every = np.arange(vectors.count)
    sample = torch.linspace(0, vectors.count - 1, min(vectors.count, SAMPLE)).long()
    if vectors.count > SAMPLE and np.unique(_hashes(vectors, sample), return_counts=True)[1].max() <= FEW:
        return every
    hashes = _hashes(vectors, torch.from_numpy(every))
    order = np.argsort(hashes, kind="stable")
    new = np.concatenate([[True], hashes[order][1:] != hashes[order][:-1]])
    run, start = np.cumsum(new) - 1, np.flatnonzero(new)
    rank = every - start[run]
    late = np.flatnonzero(rank >= k)
    if len(late) == 0:
        return every
    long = np.flatnonzero(np.isin(run, run[late]))
    equal = np.ones(len(start), np.bool_)  # whether all of a run are copies indeed
    for first in range(0, len(long), BLOCK):
        part = long[first : first + BLOCK]
        these, models = (vectors.take(torch.from_numpy(order[at])) for at in (part, start[run[part]]))
        np.logical_and.at(equal, run[part], (these == models).all(1).numpy())
    keep = np.ones(vectors.count, np.bool_)
    keep[order[late[equal[run[late]]]]] = False
    return np.flatnonzero(keep)
