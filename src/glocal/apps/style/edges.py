"""The edges of the photo. The anchor preserves single pixels there; the areas between are free for strokes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

_MOST = 8.0  # times the mean, so that one strong edge does not take all the weight


def edge_share(lab: Tensor) -> Tensor:
    """Return the strength of luminance edges at each pixel of (h, w, 3): (n,), blurred by one pixel, with mean 1.

    An image without edges gives 1 everywhere. Cost: O(n).

    >>> share = edge_share(torch.tensor([0.0, 0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0]).view(1, 8, 1).expand(8, 8, 3))
    >>> int(share.view(8, 8)[4].argmax()), round(float(share.mean()), 4)
    (3, 1.0)
    """
    light = lab[None, None, :, :, 0]
    slopes = pad(light.diff(dim=2), (0, 0, 0, 1)).square() + pad(light.diff(dim=3), (0, 1)).square()
    line = lab.new_tensor([1, 4, 6, 4, 1]) / 16  # a Gaussian of one pixel
    strength = conv2d(pad(slopes.sqrt(), (2, 2, 2, 2), mode="replicate"), line.outer(line)[None, None]).flatten()
    mean = strength.mean()
    if not float(mean) > 0:
        return torch.ones_like(strength)
    share = (strength / mean).clamp(max=_MOST)
    return share / share.mean()
