"""JPEG compression and decompression of batches of pictures in torch, without the coding: what it does to the pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from glocal.color_space import LUMA

# The tables of the JPEG standard (annex K) at quality 50.
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    (99,) * 8,
    (99,) * 8,
    (99,) * 8,
    (99,) * 8,
)
TO_YCC = torch.tensor([LUMA, [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
_DCT = torch.tensor(
    [
        [math.sqrt((1 if k == 0 else 2) / 8) * math.cos((2 * n + 1) * k * math.pi / 16) for n in range(8)]
        for k in range(8)
    ]
)


def through_jpeg(pictures: Tensor, quality: Tensor, halved: Tensor) -> Tensor:
    """Return pictures as they look after saving them as JPEG and reading them again.

    Parameters
    ----------
    pictures : Tensor, (b, 3, h, w)
        Values in [0, 1]; h and w are multiples of 16.
    quality : Tensor, (b,)
        From 1 to 100, as in the usual libraries.
    halved : Tensor, (b,) of bool
        Whether the colours are stored at half the resolution (4:2:0).

    Returns
    -------
    Tensor, (b, 3, h, w)
        Multiples of 1/255. Cost: O(b h w).

    >>> gray = torch.full((1, 3, 16, 16), 0.4)
    >>> torch.equal(through_jpeg(gray, torch.tensor([90.0]), torch.tensor([True])), gray)
    True
    """
    percent = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality).round().view(-1, 1, 1, 1)
    tables = [((percent * torch.tensor(t).to(percent) + 50) / 100).floor().clamp(1, 255) for t in (_LUMA, _CHROMA)]
    ycc = torch.einsum("ij,bjhw->bihw", TO_YCC.to(pictures), (pictures * 255).round()).round()
    light = _quantized(ycc[:, :1] - 128, tables[0])
    fine = _quantized(ycc[:, 1:], tables[1])
    coarse = _quantized(functional.avg_pool2d(ycc[:, 1:], 2).round(), tables[1])
    coarse = functional.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)
    colors = torch.where(halved.view(-1, 1, 1, 1), coarse, fine)
    found = torch.cat([light + 128, colors], 1).round()
    back = torch.linalg.inv(TO_YCC.double()).to(found)
    return torch.einsum("ij,bjhw->bihw", back, found).round().clamp(0, 255) / 255


def _quantized(planes: Tensor, table: Tensor) -> Tensor:
    """Round the cosine coefficients of the 8 x 8 blocks of (b, c, h, w) to multiples of `table` (b, 1, 8, 8)."""
    b, c, h, w = planes.shape
    dct = _DCT.to(planes)
    blocks = planes.view(b, c, h // 8, 8, w // 8, 8).transpose(3, 4).reshape(b, -1, 8, 8)
    steps = (dct @ blocks @ dct.T / table).round() * table
    return (dct.T @ steps @ dct).view(b, c, h // 8, w // 8, 8, 8).transpose(3, 4).reshape(b, c, h, w)
