"""Measures of a colour transfer: the distance of its colours to the reference, and the artefacts in the photo.

All functions take Lab pictures (h, w, 3) or chrominances (n, 2) in float, before any rounding to 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from glocal.color_space import lab_from_rgb

Map = Callable[[Tensor], Tensor]

SMALL, LARGE = 2.0, 6.0
"""Two adjacent pixels look alike below `SMALL` units of `ab` and form an edge above `LARGE`."""

_DIRECTIONS, _QUANTILES, _POINTS = 64, 2048, 32768


def sliced_wasserstein(x: Tensor, y: Tensor) -> float:
    """Return the sliced 1-Wasserstein distance of two sets of chrominances (n, 2), (k, 2), in units of Lab.

    This is the mean over 64 evenly spaced directions of the mean distance between the sorted projections, at 2,048
    quantiles. At most 32,768 evenly chosen points of each set are used. Deterministic. Cost: O(64 n log n).

    >>> round(sliced_wasserstein(torch.zeros(5, 2), torch.tensor([[3.0, 0.0]])), 2)
    1.91
    """
    x, y = _some(x), _some(y)
    angle = torch.arange(_DIRECTIONS) * (torch.pi / _DIRECTIONS)
    total = torch.zeros(())
    for direction in torch.stack([angle.cos(), angle.sin()], 1):
        total = total + (_quantiles(x @ direction.to(x)) - _quantiles(y @ direction.to(y))).abs().mean()
    return float(total / _DIRECTIONS)


def _some(points: Tensor) -> Tensor:
    m = min(len(points), _POINTS)
    return points[torch.arange(m) * len(points) // m]


def _quantiles(x: Tensor) -> Tensor:
    ordered = x.sort().values
    return ordered[((torch.arange(_QUANTILES) + 0.5) * (len(x) / _QUANTILES)).long().clamp(max=len(x) - 1)]


def steps(lab: Tensor) -> Tensor:
    """Return the differences of `ab` between neighbouring pixels, across and down, (m, 2), from a picture (h, w, 3)."""
    ab = lab[..., 1:]
    return torch.cat([(ab[:, 1:] - ab[:, :-1]).reshape(-1, 2), (ab[1:] - ab[:-1]).reshape(-1, 2)])


@dataclass(frozen=True)
class Quality:
    """The distance to the reference's colours and three artefacts. Lower is better.

    `distance`: the sliced Wasserstein distance to the reference's colours, in units of Lab. `torn`: the percentage of
    adjacent pixels that looked alike (difference of `ab` below 2) and now form an edge (above 6). `flat`: the percentage
    of adjacent pixels with a small difference (0.25 to 2) that lost 95 % of it or more. Banding increases both: flat
    steps with jumps between them. `distortion`: `sum | |g'| - s |g| | / sum |g'|`, where `g` and `g'` are the differences
    before and after, and `s = sum |g'| / sum |g|`. So a global change of saturation is not counted.
    """

    distance: float
    torn: float
    flat: float
    distortion: float

    def as_dict(self) -> dict[str, float]:
        """Return the four numbers by name."""
        return asdict(self)


def quality(photo: Tensor, result: Tensor, reference: Tensor) -> Quality:
    """Measure a result (h, w, 3) against its photo (h, w, 3) and its reference (h', w', 3), all in Lab. Cost: O(size)."""
    before, after = steps(photo).norm(dim=1), steps(result).norm(dim=1)
    alike = before < SMALL
    slight = alike & (before > 0.25)
    scale = after.sum() / before.sum().clamp(min=1e-12)
    lost = after < 0.05 * scale * before
    distance = sliced_wasserstein(result[..., 1:].reshape(-1, 2), reference[..., 1:].reshape(-1, 2))
    return Quality(
        distance=distance,
        torn=100 * _share(after > LARGE, alike),
        flat=100 * _share(lost, slight),
        distortion=float((after - scale * before).abs().sum() / after.sum().clamp(min=1e-12)),
    )


def _share(what: Tensor, among: Tensor) -> float:
    return float((what & among).sum() / among.sum().clamp(min=1))


def difference_of_maps(first: Map, second: Map, rgb: Tensor) -> tuple[float, float]:
    """Return the mean and the largest colour difference between the results of two maps on a picture (h, w, 3).

    It is the Euclidean distance in Lab (CIE 1976); about 2 is just visible. Cost: O(size) time, constant memory.
    """
    total, largest, flat = 0.0, 0.0, rgb.reshape(-1, 3)
    for part in flat.split(1 << 18):
        distance = (lab_from_rgb(first(part)) - lab_from_rgb(second(part))).norm(dim=1)
        total, largest = total + float(distance.double().sum()), max(largest, float(distance.max()))
    return total / len(flat), largest
