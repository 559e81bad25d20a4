"""Sample pictures and other files as squares of one size."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glocal import samples
from glocal.files.images.picture import to_depth
from glocal.files.images.read import read_image
from glocal.paper.blocks import Array

PHOTOS = ("bridge", "citrus", "meadow", "mountains", "sunset", "temple")
PAINTING = "van_gogh_auvers"


def photo(name: str, size: int) -> Array:
    """Return the middle square of a shipped picture, `size` pixels wide: uint8 (size, size, 3)."""
    return square(samples.path(f"{name}.jpg"), size)


def square(path: Path, size: int) -> Array:
    """Return the middle square of a picture file, `size` pixels wide: uint8 (size, size, 3).

    Raises
    ------
    InputError
        The file cannot be read.

    Examples
    --------
    >>> square(samples.path("bridge.jpg"), 32).shape
    (32, 32, 3)
    """
    pixels = to_depth(read_image(path).pixels, "8")
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return resized(pixels[top : top + side, left : left + side], size)


def resized(pixels: Array, size: int) -> Array:
    """Return a picture scaled to `size` x `size`, smoothed as it shrinks."""
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.LANCZOS))
