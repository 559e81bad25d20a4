"""Pixels for plates: signed arrays in colour, tiles of feature maps, vertices marked on a photo, palettes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.paper.blocks import Array

Floats = npt.NDArray[np.floating[Any]]

# Can be distinguished by people with any colour vision (Okabe and Ito), bright enough to stand out from a photo.
MARKS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
_NEGATIVE, _ZERO, _POSITIVE = (33, 102, 172), (247, 247, 247), (178, 24, 43)


def signed(values: Floats, *, top: float | None = None) -> Array:
    """Colour (h, w) values: blue below 0, white at 0, red above; `top` (default: the largest magnitude) is full colour.

    Examples
    --------
    >>> signed(np.array([[-1.0, 0.0, 1.0]])).tolist()
    [[[33, 102, 172], [247, 247, 247], [178, 24, 43]]]
    """
    scale = top or float(np.abs(values).max()) or 1.0
    t = np.clip(values / scale, -1, 1)[..., None]
    end = np.where(t < 0, np.array(_NEGATIVE, float), np.array(_POSITIVE, float))
    return np.round(np.array(_ZERO, float) * (1 - np.abs(t)) + end * np.abs(t)).astype(np.uint8)


def gray(values: Floats) -> Array:
    """Values in [0, 1], clipped, as (h, w) uint8."""
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)


def enlarged(pixels: Array, factor: int) -> Array:
    """Every pixel as a square of `factor` pixels."""
    return np.repeat(np.repeat(pixels, factor, axis=0), factor, axis=1)


def tiles(maps: Sequence[Array], columns: int, *, gap: int = 2) -> Array:
    """Pictures of one shape in a grid, on a middle gray that suits a light and a dark page."""
    height, width = maps[0].shape[:2]
    rows = -(-len(maps) // columns)
    sheet = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), 128, np.uint8)
    for i, tile in enumerate(maps):
        row, column = divmod(i, columns)
        top, left = row * (height + gap), column * (width + gap)
        sheet[top : top + height, left : left + width] = tile if tile.ndim == 3 else tile[..., None]
    return sheet


def marked(photo: Array, groups: Sequence[Sequence[int]], *, factor: int) -> Array:
    """Return a photo in gray, enlarged, with groups of vertices on it: a ring around the first of each, the others coloured.

    Vertices are numbered in raster order; each group has its own colour.
    """
    from PIL import Image, ImageDraw

    height, width = photo.shape[:2]
    sheet = Image.fromarray(photo).resize((width * factor, height * factor), Image.Resampling.BICUBIC)
    sheet = Image.blend(sheet, sheet.convert("L").convert("RGB"), 0.75)
    pen = ImageDraw.Draw(sheet)
    for color, group in zip(MARKS * len(groups), groups, strict=False):
        for vertex in group:
            y, x = (place * factor for place in divmod(int(vertex), width))
            pen.rectangle((x, y, x + factor - 1, y + factor - 1), fill=color)
        y, x = ((place + 0.5) * factor for place in divmod(int(group[0]), width))
        for radius, ink, thick in ((4.5, (0, 0, 0), 1.0), (4.2, color, 0.6)):
            r = radius * factor
            pen.ellipse((x - r, y - r, x + r, y + r), outline=ink, width=max(1, round(thick * factor)))
    return np.asarray(sheet)
