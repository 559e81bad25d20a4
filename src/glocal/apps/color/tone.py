"""A moderate match of luminance: half of the way to the reference's distribution, with bounded slopes."""

from __future__ import annotations

import torch
from torch import Tensor

GENTLE = 0.5
"""The fraction of the way to the reference's tones."""

_SLOPES = (0.5, 2.0)


def tone_curve(photo: Tensor, reference: Tensor) -> Tensor:
    """Return the curve `L -> L'` as 101 values at L = 0, 1, ..., 100. It goes from 0 to 100 and increases everywhere.

    Quantiles of the photo's luminance move half of the way to the same quantiles of the reference. Then the slopes are
    limited to 0.5 to 2 (contrast is at most halved or doubled), and the curve is scaled to end at 100.

    Parameters
    ----------
    photo, reference : Tensor, (n,) and (k,)
        Luminances, 0 to 100.

    Returns
    -------
    Tensor, (101,) float32
        The curve. Cost: O(n log n).

    Examples
    --------
    >>> even = torch.linspace(0, 100, 1001)
    >>> bool((tone_curve(even, even) - torch.arange(101)).abs().max() < 0.2)
    True
    """
    at = torch.linspace(0, 1, 21, dtype=torch.float64)[1:-1]
    edge = torch.tensor([0.0, 100.0], dtype=torch.float64)
    old, goal = (_quantiles(x, at) for x in (photo, reference))
    new = old + GENTLE * (goal - old)
    knots = torch.cat([edge[:1], old, edge[1:]])
    values = torch.cat([edge[:1], new, edge[1:]])
    curve = _interpolated(torch.arange(101, dtype=torch.float64), knots, values)
    steps = curve.diff().clamp(*_SLOPES)
    box = torch.ones(1, 1, 9, dtype=torch.float64) / 9  # soften the corners between the quantiles
    steps = torch.nn.functional.conv1d(torch.nn.functional.pad(steps[None, None], (4, 4), "replicate"), box)[0, 0]
    curve = torch.cat([edge[:1], steps.cumsum(0)])
    return (curve * (100 / curve[-1])).float()


def toned(level: Tensor, curve: Tensor) -> Tensor:
    """Look up luminances in a curve of 101 values, with linear interpolation. Cost: O(size)."""
    place = level.clamp(0, 100)
    low = place.floor().clamp(max=99).long()
    return curve[low] + (curve[low + 1] - curve[low]) * (place - low)


def _quantiles(x: Tensor, at: Tensor) -> Tensor:
    ordered = x.double().reshape(-1).sort().values
    place = at * (len(ordered) - 1)
    low = place.floor().long().clamp(max=max(len(ordered) - 2, 0))
    high = (low + 1).clamp(max=len(ordered) - 1)
    return (ordered[low] + (ordered[high] - ordered[low]) * (place - low)).clamp(0, 100)


def _interpolated(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Interpolate linearly between (knots, values), both increasing. Of equal knots the last one counts."""
    right = torch.searchsorted(knots, x, right=True).clamp(1, len(knots) - 1)
    width = (knots[right] - knots[right - 1]).clamp(min=1e-9)
    share = ((x - knots[right - 1]) / width).clamp(0, 1)
    return values[right - 1] + (values[right] - values[right - 1]) * share
