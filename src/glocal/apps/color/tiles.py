"""Colour transfer for pictures that are read by windows: the palette from a sample of the whole, then any part of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from glocal.apps.color.options import LIBRARIES, PIXEL, ColorOptions
from glocal.apps.color.recolor import SAMPLE, Look, applied, fit, loaded, weighed
from glocal.errors import InputError
from glocal.files.images.colors import from_srgb, to_srgb
from glocal.files.images.kinds import ImageLike, as_picture
from glocal.files.images.picture import Array, Picture

_ROWS = 256  # read at a time


def look_for(
    pixels: Any,
    references: Sequence[ImageLike],
    options: ColorOptions,
    *,
    icc: bytes | None = None,
    map: str | os.PathLike[str] | None = None,
) -> tuple[Look, tuple[str, ...]]:
    """Return the function that `recolor` applies to a picture, and notes.

    Parameters
    ----------
    pixels : array-like (h, w, 3) of uint8 or uint16
        Anything that gives an array for `pixels[top:bottom]`. At most `SAMPLE` pixels are used, the same ones as by
        `recolor`. Cost: one pass over the picture.
    icc : bytes or None
        The colour profile of the picture.
    map : path or None
        A file with the map, instead of references.

    Raises
    ------
    InputError
        The picture is gray or float.
    """
    if pixels.shape[2] != 3 or pixels.dtype.kind == "f":
        message = (
            f"recolor: a picture in tiles must be RGB with 8 or 16 bits, and this one is {pixels.shape[2]} x {pixels.dtype}. "
            "Convert it first."
        )
        raise InputError(message)
    if map is not None:
        return loaded(map, options.strength), ()
    sample = torch.from_numpy(to_srgb(Picture(_sampled(pixels)[:, None], icc=icc)))
    found = fit(sample, [weighed(as_picture(one, call="recolor", name="reference")) for one in references], options)
    return found.map, found.notes


@dataclass(frozen=True)
class ColorPlan:
    """How one large picture is recoloured: a function of colours, the picture's profile, and the depth of the result."""

    look: Look
    icc: bytes | None = None
    depth: str = "keep"
    halo: ClassVar[int] = 0

    def most_pixels(self, memory: int) -> int:
        """Return the size of the largest part that fits into this memory, or 1."""
        return max(1, (memory - LIBRARIES) // PIXEL)

    def part(self, pixels: Any, place: tuple[int, int, int, int]) -> Array:
        """Recolour a part (h', w', 3) of the picture, in its own profile."""
        top, bottom, left, right = place
        part = Picture(pixels[top:bottom, left:right], icc=self.icc)
        return from_srgb(part, applied(self.look, torch.from_numpy(to_srgb(part))).numpy(), depth=self.depth).pixels


def _sampled(pixels: Any) -> Array:
    """Return at most `SAMPLE` pixels (m, 3), evenly chosen."""
    height, width, _ = pixels.shape
    count = height * width
    chosen = np.arange(min(count, SAMPLE), dtype=np.int64) * count // min(count, SAMPLE)
    parts = []
    for top in range(0, height, _ROWS):
        bottom = min(height, top + _ROWS)
        first, last = np.searchsorted(chosen, (top * width, bottom * width))
        if first < last:
            parts.append(pixels[top:bottom].reshape(-1, 3)[chosen[first:last] - top * width])
    return np.concatenate(parts)
