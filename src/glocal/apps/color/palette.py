"""Palettes: represent the chrominances of a picture by a small set of points in the `ab` plane (appendix A.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glocal.apps.color.kmeans import kmeans

CELL = 0.5
"""Chrominances closer than this, in units of Lab, count as one colour; a difference of 1 is just visible."""

_HALF = 128.0  # the ab values of every display profile are in [-128, 128)
_SIDE = int(2 * _HALF / CELL)


@dataclass(frozen=True, eq=False)
class Chroma:
    """The distribution of a picture's chrominances: points (m, 2) in units of Lab and their shares (m,), sum 1."""

    points: Tensor
    shares: Tensor


def chroma_of(ab: Tensor, weights: Tensor | None = None) -> Chroma:
    """Collect chrominances in cells of `CELL` x `CELL`. Each cell is represented by the mean of its chrominances.

    Parameters
    ----------
    ab : Tensor, (n, 2)
        Chrominances in units of Lab.
    weights : Tensor, (n,), or None
        The weight of each chrominance, for masks.

    Returns
    -------
    Chroma
        One point per occupied cell, in float64. Cost: O(n + 512^2).

    Examples
    --------
    >>> chroma_of(torch.tensor([[10.1, 0.1], [10.2, 0.1], [-30.0, 5.0]])).shares
    tensor([0.3333, 0.6667], dtype=torch.float64)
    """
    cells = ((ab + _HALF) / CELL).round().clamp(0, _SIDE - 1).long()  # gray is in the middle of a cell
    number = cells[:, 0] * _SIDE + cells[:, 1]
    ones = torch.ones(len(ab), dtype=torch.float64) if weights is None else weights.double()
    mass = torch.bincount(number, ones, minlength=_SIDE * _SIDE)
    sums = [torch.bincount(number, ones * ab[:, c].double(), minlength=_SIDE * _SIDE) for c in (0, 1)]
    full = mass > 0
    points = torch.stack([s[full] / mass[full] for s in sums], 1)
    return Chroma(points, mass[full] / mass[full].sum())


def joined(chromas: Sequence[Chroma]) -> Chroma:
    """Return the distribution of several pictures, each with the same total weight."""
    points = torch.cat([c.points for c in chromas])
    return Chroma(points, torch.cat([c.shares for c in chromas]) / len(chromas))


def palette_of(chroma: Chroma, *, colors: int, seed: int) -> Tensor:
    """Cluster chrominances into `colors` entries by k-means (`X_s`, `X_t`), sorted by hue and then by chroma.

    If the distribution has fewer points than `colors`, the palette is all of them. So it may be shorter.

    Returns
    -------
    Tensor, (n, 2) float64
        In units of Lab, n <= colors. Cost: O(m n) for each of some tens of rounds.

    Examples
    --------
    >>> chroma = chroma_of(torch.tensor([[40.0, 0.0], [0.0, 40.0], [0.0, 41.0]]))
    >>> palette_of(chroma, colors=2, seed=0)
    tensor([[40.0000,  0.0000],
            [ 0.0000, 40.5000]], dtype=torch.float64)
    """
    if len(chroma.points) <= colors:
        return by_hue(chroma.points)
    found = kmeans(chroma.points.numpy(), chroma.shares.numpy(), count=colors, seed=seed)
    return by_hue(torch.from_numpy(found))


def shares_of(palette: Tensor, chroma: Chroma) -> Tensor:
    """Return the share of the picture that is nearest to each entry of a palette (n, 2): (n,), sum 1. Cost: O(m n).

    The share of an entry that occurs several times is divided among its copies.

    >>> chroma = chroma_of(torch.tensor([[40.0, 0.0], [0.0, 40.0], [0.0, 41.0], [0.0, 42.0]]))
    >>> shares_of(torch.tensor([[40.0, 0.0], [0.0, 41.0], [40.0, 0.0]]).double(), chroma)
    tensor([0.1250, 0.7500, 0.1250], dtype=torch.float64)
    """
    near = torch.cdist(chroma.points, palette, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = (near == near.min(1, keepdim=True).values).double()
    shares = (chroma.shares.unsqueeze(1) * nearest / nearest.sum(1, keepdim=True)).sum(0)
    shares = shares.clamp(min=1e-9)  # an entry without pixels stays in the problem
    return shares / shares.sum()


def repeated(palette: Tensor, size: int) -> Tensor:
    """Return a palette of exactly `size` entries. A shorter one repeats its entries in turn, as k-means also may."""
    return palette[torch.arange(size) % len(palette)].clone()


def by_hue(palette: Tensor) -> Tensor:
    """Return the rows sorted by hue angle, and by chroma for equal hues."""
    hue = torch.atan2(palette[:, 1], palette[:, 0])
    order = np.lexsort((palette.norm(dim=1).numpy(), hue.numpy().round(9)))
    return palette[torch.from_numpy(order)].contiguous()
