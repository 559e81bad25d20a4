"""Pictures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from glocal.apps.style.levels import resized


def side_by_side(images: Sequence[np.ndarray[Any, Any]], *, gap: int = 8) -> np.ndarray[Any, Any]:
    """Join float images (h, w, 3) in [0, 1] from left to right, scaled to the height of the last: uint8.

    >>> side_by_side([np.zeros((4, 8, 3)), np.ones((8, 8, 3))], gap=2).shape
    (8, 26, 3)
    """
    height = images[-1].shape[0]
    tiles = []
    for image in images:
        width = max(1, round(image.shape[1] * height / image.shape[0]))
        scaled = resized(torch.from_numpy(np.ascontiguousarray(image)), (height, width)).clamp(0, 1)
        tiles += [(scaled * 255).round().to(torch.uint8), torch.full((height, gap, 3), 255, dtype=torch.uint8)]
    sheet: np.ndarray[Any, Any] = torch.cat(tiles[:-1], 1).numpy()
    return sheet
