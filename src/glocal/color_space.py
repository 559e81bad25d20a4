"""sRGB, its luma, and CIE Lab (D65): float32 or float64, any device, (..., 3)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# IEC 61966-2-1 primaries to XYZ; rows are divided by the D65 white point where Lab needs it.
_XYZ_FROM_RGB = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
_WHITE = (0.95047, 1.0, 1.08883)
_KNEE = 0.008856  # (6/29)^3, rounded as CIE prints it; scikit-image uses the same
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as JPEG has it

_Colors = TypeVar("_Colors", Tensor, NDArray[np.float32], NDArray[np.float64])


def luma(rgb: _Colors) -> _Colors:
    """Return the luma `0.299 R + 0.587 G + 0.114 B` of colours (..., 3) as (...), in their own range. Cost: O(size).

    Examples
    --------
    >>> luma(torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]))
    tensor([1.0000, 0.5870])
    """
    if isinstance(rgb, Tensor):
        return rgb @ rgb.new_tensor(LUMA)
    return rgb @ np.array(LUMA, dtype=rgb.dtype)


def lab_from_rgb(rgb: Tensor) -> Tensor:
    """Convert sRGB in [0, 1] to Lab: L in 0..100, a and b about -100..100. Cost: O(size), three temporaries.

    >>> lab_from_rgb(torch.ones(1, 3)).round().abs()
    tensor([[100.,   0.,   0.]])
    """
    linear = torch.where(rgb > 0.04045, ((rgb + 0.055) / 1.055).clamp(min=0).pow(2.4), rgb / 12.92)
    matrix = rgb.new_tensor(_XYZ_FROM_RGB) / rgb.new_tensor(_WHITE).unsqueeze(1)
    xyz = linear @ matrix.T
    f = torch.where(xyz > _KNEE, xyz.clamp(min=_KNEE).pow(1 / 3), 7.787 * xyz + 16 / 116)
    x, y, z = f.unbind(-1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def rgb_from_lab(lab: Tensor) -> Tensor:
    """Convert Lab to sRGB without clipping: colours outside sRGB give values outside [0, 1]. Cost: O(size).

    >>> rgb_from_lab(torch.tensor([[50.0, 0.0, 0.0]]))
    tensor([[0.4663, 0.4663, 0.4663]])
    """
    y = (lab[..., 0] + 16) / 116
    f = torch.stack([y + lab[..., 1] / 500, y, y - lab[..., 2] / 200], -1)
    xyz = torch.where(f > 0.2068966, f.pow(3), (f - 16 / 116) / 7.787)
    matrix = torch.linalg.inv(torch.tensor(_XYZ_FROM_RGB, dtype=torch.float64)).to(lab)
    linear = (xyz * lab.new_tensor(_WHITE)) @ matrix.T
    return torch.where(linear > 0.0031308, 1.055 * linear.clamp(min=0.0031308).pow(1 / 2.4) - 0.055, linear * 12.92)
