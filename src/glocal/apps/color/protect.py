"""Protection of colours: a smooth factor in [0, 1] says how much each colour of the photo may change."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _rise(x: Tensor, low: float, high: float) -> Tensor:
    """Return 0 below `low`, 1 above `high`, and a smooth cubic between them."""
    t = ((x - low) / (high - low)).clamp(0, 1)
    return t * t * (3 - 2 * t)


def keep_neutrals(lab: Tensor) -> Tensor:
    """Return 0 for chroma below 3, which looks gray, rising to 1 at chroma 12."""
    return _rise(torch.hypot(lab[..., 1], lab[..., 2]), 3.0, 12.0)


def keep_skin(lab: Tensor) -> Tensor:
    """Return 0 for the colours of human skin (hue 32 to 68 degrees, chroma 14 to 42, L 25 to 88), 1 far from them.

    Human skin of every tone has nearly the same hue in Lab and differs mostly in L. The rule uses only the colour: wood
    and sand of the same colour are protected too, and skin in coloured light is not recognised.
    """
    hue = torch.rad2deg(torch.atan2(lab[..., 2], lab[..., 1]))
    chroma = torch.hypot(lab[..., 1], lab[..., 2])
    inside = _rise(hue, 5, 32) * (1 - _rise(hue, 68, 95))
    inside = inside * _rise(chroma, 3, 14) * (1 - _rise(chroma, 42, 58))
    inside = inside * _rise(lab[..., 0], 10, 25) * (1 - _rise(lab[..., 0], 88, 98))
    return 1 - inside


RULES: dict[str, Callable[[Tensor], Tensor]] = {"neutrals": keep_neutrals, "skin": keep_skin}


def freedom(lab: Tensor, protect: tuple[str, ...]) -> Tensor:
    """Return how much each colour (..., 3) may change: the product of the rules in `protect`, (...,). Cost: O(size).

    >>> freedom(torch.tensor([[60.0, 0.0, 1.0], [60.0, -40.0, 20.0]]), ("neutrals",))
    tensor([0., 1.])
    """
    factor = torch.ones_like(lab[..., 0])
    for name in protect:
        factor = factor * RULES[name](lab)
    return factor
