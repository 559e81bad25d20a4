"""Pictures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from glocal.apps.style.levels import resized
from glocal.files.images.colors import to_srgb
from glocal.files.images.image_like import ImageLike, as_picture
from glocal.files.images.picture import Picture


def compared(
    photo: Picture, paintings: Sequence[ImageLike], result: np.ndarray[Any, Any], labels: Sequence[str]
) -> np.ndarray[Any, Any]:
    """Join a photo, its paintings and the result (h, w, 3), each with a label below; see `side_by_side`."""
    read = [as_picture(one, call="stylize", name="painting") for one in paintings]
    return side_by_side([*(to_srgb(one) for one in (photo, *read)), result], labels=labels)


def side_by_side(
    images: Sequence[np.ndarray[Any, Any]], *, labels: Sequence[str] = (), gap: int = 8
) -> np.ndarray[Any, Any]:
    """Join float images (h, w, 3) in [0, 1] from left to right, scaled to the height of the last: uint8.

    Labels are written below the images, one for each.

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
    if not labels:
        return sheet
    return np.concatenate([sheet, _written(labels, [tile.shape[1] for tile in tiles[::2]], height, gap)])


def _written(labels: Sequence[str], widths: Sequence[int], height: int, gap: int) -> np.ndarray[Any, Any]:
    """Draw a white strip with a line of text below each image; a text that is too long is cut off."""
    from PIL import Image, ImageDraw, ImageFont

    size = max(12, height // 28)
    strip = Image.new("RGB", (sum(widths) + gap * (len(widths) - 1), size + size // 2), "white")
    left = 0
    for label, width in zip(labels, widths, strict=True):
        cell = Image.new("RGB", (width, strip.height), "white")
        ImageDraw.Draw(cell).text((2, size // 8), label, fill=(40, 40, 40), font=ImageFont.load_default(size))
        strip.paste(cell, (left, 0))
        left += width + gap
    return np.asarray(strip)
