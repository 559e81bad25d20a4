"""Compress colours outside sRGB at constant hue and luminance, so that different colours stay different."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from glocal.color_space import rgb_from_lab
from glocal.kernels.cpu.threads import one_thread

KNEE = 0.8
"""Colours below this fraction of the largest chroma in sRGB are never changed."""

_HUES, _LEVELS = 360, 100  # one degree, one unit of L


@cache
def chroma_limits() -> Tensor:
    """Return the largest chroma in sRGB for each luminance (101 rows, 0 to 100) and hue (361 columns, -pi to pi).

    The table is computed once by bisection of `rgb_from_lab(L, C cos h, C sin h) in [0, 1]`, in about 0.1 s.
    """
    level = torch.linspace(0, 100, _LEVELS + 1, dtype=torch.float64).unsqueeze(1)
    hue = torch.linspace(-torch.pi, torch.pi, _HUES + 1, dtype=torch.float64).unsqueeze(0)
    low = torch.zeros(_LEVELS + 1, _HUES + 1, dtype=torch.float64)
    high = torch.full_like(low, 140.0)
    with one_thread():
        for _ in range(16):
            middle = (low + high) / 2
            lab = torch.stack([level.expand_as(low), middle * hue.cos(), middle * hue.sin()], -1)
            rgb = rgb_from_lab(lab)
            inside = ((rgb >= -1e-4) & (rgb <= 1 + 1e-4)).all(-1)
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return low.float()


def fullness(lab: Tensor) -> Tensor:
    """Return the ratio `C / C_max(L, hue)` to the largest chroma in sRGB, (...,). It is above 1 outside sRGB. Cost: O(size)."""
    row = (lab[..., 0] * (_LEVELS / 100)).clamp(0, _LEVELS)
    column = (torch.atan2(lab[..., 2], lab[..., 1]) + torch.pi) * (_HUES / (2 * torch.pi))
    place = torch.stack([column * (2 / _HUES) - 1, row * (2 / _LEVELS) - 1], -1)
    limit = torch.nn.functional.grid_sample(
        chroma_limits()[None, None], place.reshape(1, 1, -1, 2), padding_mode="border", align_corners=True
    ).reshape(place.shape[:-1])
    return torch.hypot(lab[..., 1], lab[..., 2]) / limit.clamp(min=0.5)


def compressed(lab: Tensor, before: Tensor) -> Tensor:
    """Scale the chroma of colours near and beyond the edge of sRGB, so that all fit and none coincide.

    With `r = C / C_max` and the knee `k = max(0.8, r of the colour before)`: `r' = r` up to `k`, above it
    `r' = k + (1 - k) t / (1 + t)` with `t = (r - k) / (1 - k)`, which rises towards 1 with slope 1 at the knee. A colour
    that did not change stays as it is, however vivid.

    Parameters
    ----------
    lab, before : Tensor, (..., 3) float32
        Colours after and before the change.

    Returns
    -------
    Tensor, (..., 3)
        The hue and luminance do not change. Cost: O(size).

    Examples
    --------
    >>> vivid = torch.tensor([[50.0, 100.0, 0.0]])
    >>> compressed(vivid, torch.tensor([[50.0, 0.0, 0.0]])).round()
    tensor([[50., 74.,  0.]])
    """
    flat = lab.reshape(-1, 3).clone()
    now = fullness(flat)
    near = (now > KNEE).nonzero().squeeze(1)  # few colours in most photos
    now = now[near]
    knee = fullness(before.reshape(-1, 3)[near]).clamp(min=KNEE)  # above 1 only by the rounding of the table
    room = (1 - knee).clamp(min=1e-3)
    beyond = ((now - knee) / room).clamp(min=0)
    scale = torch.where(beyond > 0, (knee + room * beyond / (1 + beyond)) / now, 1.0)
    flat[near, 1:] *= scale.unsqueeze(1)
    return flat.reshape(lab.shape)
