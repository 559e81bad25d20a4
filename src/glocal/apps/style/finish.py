"""The last step of `patches`: contrast and colours of the picture move towards the painting's.

Averages of overlapping pieces are paler and softer than the painting. So each band of a Laplacian pyramid moves towards
the histogram of the painting's band (Heeger and Bergen 1995), and then the colours towards the painting's colours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glocal.apps.style.levels import resized
from glocal.apps.style.palette import histogram_matched, transported

_BANDS = 6
_LEAST = 8  # pixels: the shorter side of the smallest band
_FEW = 64  # pixels: a region with fewer has no histogram
_CONTRAST, _COLOR = 0.5, 0.25  # how far bands and colours move, of the whole way

Shares = Sequence[tuple[Tensor, Sequence[Tensor]]]


def finished(
    picture: Tensor,
    paintings: Sequence[Tensor],
    weights: Sequence[float],
    shares: Shares,
    generator: torch.Generator,
) -> Tensor:
    """Move the bands of `picture` (h, w, 3) in Lab half the way to the paintings', and its colours a quarter: (h, w, 3).

    With `shares` (see `Task`), each region moves towards its own part of the paintings. Cost: O(n log n).

    >>> picture = torch.rand(16, 16, 3, generator=torch.Generator().manual_seed(0))
    >>> new = finished(0.2 * picture, [picture], [1.0], (), torch.Generator().manual_seed(0))
    >>> bool(new.std() > 2 * (0.2 * picture).std())
    True
    """
    count = 0
    while count < _BANDS and min(min(p.shape[:2]) for p in (picture, *paintings)) >> count >= _LEAST:
        count += 1
    (mine, rest), theirs = bands(picture, count), [bands(p, count)[0] for p in paintings]
    for k, band in enumerate(mine):
        goals = [each[k] for each in theirs]
        for cells, parts in _regions(band, goals, shares):
            flat = band.reshape(-1, 3)
            new = histogram_matched(flat[cells], parts, weights)
            band = flat.index_copy(0, cells, torch.lerp(flat[cells], new, _CONTRAST)).view_as(band)
        mine[k] = band
    result = joined(mine, rest)
    for cells, parts in _regions(result, list(paintings), shares):
        flat = result.reshape(-1, 3)
        new = transported(flat[cells], parts, weights, generator)
        result = flat.index_copy(0, cells, torch.lerp(flat[cells], new, _COLOR)).view_as(result)
    return result


def bands(image: Tensor, count: int) -> tuple[list[Tensor], Tensor]:
    """Return `count` bands of (h, w, c), from fine to coarse, each half the size of the one before, and the rest."""
    found = []
    for _ in range(count):
        small = resized(image, (-(-image.shape[0] // 2), -(-image.shape[1] // 2)))
        found.append(image - resized(small, (image.shape[0], image.shape[1])))
        image = small
    return found, image


def joined(found: Sequence[Tensor], rest: Tensor) -> Tensor:
    """Return the image of these bands: the inverse of `bands`."""
    for band in reversed(found):
        rest = resized(rest, (band.shape[0], band.shape[1])) + band
    return rest


def _regions(image: Tensor, goals: list[Tensor], shares: Shares) -> list[tuple[Tensor, list[Tensor]]]:
    """Return for each region its pixels in `image` (as indices) and the pixels (m, 3) of the goals that belong to it."""
    if not shares:
        every = torch.arange(image.shape[0] * image.shape[1], device=image.device)
        return [(every, [goal.reshape(-1, 3) for goal in goals])]
    found = []
    for mine, others in shares:
        cells = _inside(mine, image).nonzero().squeeze(1)
        parts = [goal.reshape(-1, 3)[_inside(share, goal)] for share, goal in zip(others, goals, strict=True)]
        if min(len(cells), *map(len, parts)) >= _FEW:
            found.append((cells, parts))
    return found


def _inside(share: Tensor, image: Tensor) -> Tensor:
    return resized(share.unsqueeze(-1), (image.shape[0], image.shape[1])).reshape(-1) > 0.5
