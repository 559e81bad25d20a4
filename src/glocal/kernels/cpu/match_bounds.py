"""Short vectors whose distances are never larger than those of the long vectors that they replace.

A long vector x is replaced by its coordinates in a few orthonormal directions, those in which the data vary most, and
by the length of what is left: `|x - z|^2 >= |Px - Pz|^2 + (|x - P'Px| - |z - P'Pz|)^2`. Natural patches of 147 numbers
keep all but a few hundredths of their variance in 15 directions.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from glocal.kernels.cpu.neighbor_lists import Array
from glocal.kernels.cpu.threads import share

FEW = 20  # numbers up to which vectors are taken as they are
LONGER = 48  # numbers of the vectors for a second look
SAMPLE = 2048  # vectors that the directions are found from
ROUNDS = 3  # of the power iteration
BLOCK = 1024  # vectors shortened at a time


class Vectors(Protocol):
    """Vectors that are made when they are asked for."""

    count: int
    length: int

    def take(self, places: Tensor) -> Tensor:
        """Return these vectors: (len(places), length) float64."""
        ...


class Short(NamedTuple):
    """Short vectors, and how far a distance between two of them may exceed the true one by rounding."""

    query: Array  # (n, dims) float32
    source: Array  # (m, dims)
    longer_query: Array  # (n, LONGER) for a second look, or (n, 0)
    longer_source: Array
    scale: float  # short vectors are this many times the long ones: a power of 2
    slack: float  # what the square root of a distance may be too large by


def shorten(query: Vectors, source: Vectors, directions: int) -> Short:
    """Shorten all vectors to `directions` coordinates and one length, or to themselves where they are short.

    Cost: O((n + m) f (directions + LONGER)) time, O((n + m) (directions + LONGER)) memory.
    """
    sample = torch.cat([_sample(query), _sample(source)])
    centre = sample.mean(0)
    cuts = [cut for cut in (directions, LONGER - 1) if cut < query.length]
    if directions >= LONGER - 1:
        cuts = cuts[:1]
    basis = _directions(sample - centre, cuts[-1]) if directions < query.length else None
    parts = [_project(query, centre, basis, cuts)]
    parts.append(parts[0] if source is query else _project(source, centre, basis, cuts))
    peak = max(float(values[-1].max()) for values in parts)
    scale = 2.0 ** -(torch.frexp(torch.tensor(max(peak, 1e-30), dtype=torch.float64)).exponent.item())
    short = [[(values * scale).to(torch.float32).numpy() for values in part[:-1]] for part in parts]
    # Squares of lengths are off by some f 2^-53, the root of a small one by the root of that, and float32 by 2^-24; all
    # of it twice, for two vectors of length 1 at most.
    slack = 2.0**-22 + 4 * math.sqrt((4 * query.length + 64) * 2.0**-53)
    longer = [part[1] if len(part) > 1 else part[0][:, :0] for part in short]
    return Short(short[0][0], short[1][0], longer[0], longer[1], scale, slack)


def _sample(vectors: Vectors) -> Tensor:
    return vectors.take(torch.linspace(0, vectors.count - 1, min(vectors.count, SAMPLE)).long())


def _directions(sample: Tensor, count: int) -> Tensor:
    """Find `count` orthonormal directions of large variance, the largest first: (f, count)."""
    start = torch.randn(sample.shape[1], count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(start).Q
    for _ in range(ROUNDS):
        basis = torch.linalg.qr(sample.T @ (sample @ basis)).Q
    inside = sample @ basis
    turn = torch.linalg.eigh(inside.T @ inside).eigenvectors
    return torch.linalg.qr(basis @ turn.flip(1)).Q


def _project(vectors: Vectors, centre: Tensor, basis: Tensor | None, cuts: list[int]) -> list[Tensor]:
    """Make short vectors for each of the `cuts`, and the lengths of the long ones."""
    if basis is None:
        cuts = [vectors.length]
    values = [torch.empty(vectors.count, cut + (basis is not None), dtype=torch.float64) for cut in cuts]
    lengths = torch.empty(vectors.count, dtype=torch.float64)

    def work(block: int) -> None:
        first, end = block * BLOCK, min((block + 1) * BLOCK, vectors.count)
        x = vectors.take(torch.arange(first, end)) - centre
        squared = x.square().sum(1)
        lengths[first:end] = squared.sqrt()
        if basis is None:
            values[0][first:end] = x
            return
        inside = x @ basis
        for value, cut in zip(values, cuts, strict=True):
            value[first:end, :-1] = inside[:, :cut]
            value[first:end, -1] = (squared - inside[:, :cut].square().sum(1)).clamp_(min=0).sqrt_()

    share(-(-vectors.count // BLOCK), work)
    return [*values, lengths]
