"""Coarse to fine: the sizes of the levels, and the scaling of images."""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.apps.style.estimate import count_levels

_MOST_ON_GPU = 64  # the largest size for which torch can average on a GPU


def level_shapes(shape: tuple[int, int], coarsest: int) -> list[tuple[int, int]]:
    """Return shapes from coarse to fine, each half of the next. The longer side of the first is about `coarsest`.

    The last one is `shape`, whatever its aspect ratio.

    >>> level_shapes((192, 256), 32)
    [(24, 32), (48, 64), (96, 128), (192, 256)]
    """
    count = count_levels(shape, coarsest)
    return [fitted(shape, max(shape) / 2**k) for k in reversed(range(count))]


def fitted(shape: tuple[int, int], longer: float) -> tuple[int, int]:
    """Return the shape with a longer side of `longer` pixels and the same aspect ratio, at least 8 on each side.

    >>> fitted((300, 400), 256)
    (192, 256)
    """
    factor = longer / max(shape)
    h, w = (max(8, round(side * factor)) for side in shape)
    return h, w


def resized(image: Tensor, shape: tuple[int, int]) -> Tensor:
    """Scale (h, w, c) to another shape: by averaging if it is smaller, bicubic if it is larger. Cost: O(h w c)."""
    if tuple(image.shape[:2]) == tuple(shape):
        return image
    smaller = shape[0] * shape[1] < image.shape[0] * image.shape[1]
    if image.is_cuda and max(image.shape[0] / shape[0], image.shape[1] / shape[1]) > _MOST_ON_GPU:
        return resized(image.cpu(), shape).to(image)
    planes = image.permute(2, 0, 1).unsqueeze(0)
    mode = "bilinear" if smaller else "bicubic"
    scaled = torch.nn.functional.interpolate(planes, size=tuple(shape), mode=mode, antialias=smaller)
    return scaled[0].permute(1, 2, 0).contiguous()
