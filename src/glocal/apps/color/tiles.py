"""Colour transfer for pictures that are read by windows: the palette from a sample of the whole, then any part of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from glocal.apps.color.fit import SAMPLE, fit
from glocal.apps.color.options import LIBRARIES, PIXEL, ColorOptions
from glocal.apps.color.recolor import Look, applied, loaded, weighed
from glocal.errors import InputError
from glocal.files.images.colors import from_srgb, to_srgb
from glocal.files.images.image_like import ImageLike, LargeMask, as_picture
from glocal.files.images.picture import Array, Picture, row_bands


def look_for(
    pixels: Any,
    references: Sequence[ImageLike],
    options: ColorOptions,
    *,
    alpha: Any = None,
    icc: bytes | None = None,
    map: str | os.PathLike[str] | None = None,
    mask: LargeMask | None = None,
) -> tuple[Look, tuple[str, ...]]:
    """Return the function that `recolor` applies to a picture, and notes.

    Parameters
    ----------
    pixels : array-like (h, w, 3) of uint8 or uint16
        Anything that gives an array for `pixels[top:bottom]`. At most `SAMPLE` pixels are used, the same ones as by
        `recolor`. Cost: one pass over the picture, and two over its alpha and mask.
    alpha : array-like (h, w, 1), or None
        Transparent pixels do not count.
    icc : bytes or None
        The colour profile of the picture.
    map : path or None
        A file with the map, instead of references.
    mask : LargeMask or None
        Which part of the picture changes, and counts.

    Raises
    ------
    InputError
        The picture is gray or float, or no pixel counts.
    """
    if pixels.shape[2] != 3 or pixels.dtype.kind == "f":
        message = (
            f"recolor: a picture in tiles must be RGB with 8 or 16 bits, and this one is {pixels.shape[2]} x {pixels.dtype}. "
            "Convert it first."
        )
        raise InputError(message)
    if map is not None:
        return loaded(map, options.strength), ()
    sample, weights = sample_of(pixels, alpha=alpha, icc=icc, mask=mask)
    found = fit(
        sample, [weighed(as_picture(one, call="recolor", name="reference")) for one in references], options, weights
    )
    return found.map, found.notes


def sample_of(
    pixels: Any, *, alpha: Any = None, icc: bytes | None = None, mask: LargeMask | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return colours (m, 1, 3) of at most `SAMPLE` pixels in sRGB, evenly chosen, and their weights (m, 1) if they differ.

    The arguments are those of `look_for`.
    """
    some, counts = _sampled(pixels, _weights(alpha, mask))
    colors = torch.from_numpy(to_srgb(Picture(some[:, None], icc=icc)))
    return colors, None if counts is None else torch.from_numpy(counts[:, None])


@dataclass(frozen=True)
class ColorPlan:
    """How one large picture is recoloured: a function of colours, the picture's profile, and the depth of the result."""

    look: Look
    icc: bytes | None = None
    depth: str = "keep"
    mask: LargeMask | None = None
    halo: ClassVar[int] = 0

    def most_pixels(self, memory: int) -> int:
        """Return the size of the largest part that fits into this memory, or 1."""
        return max(1, (memory - LIBRARIES) // PIXEL)

    def part(self, pixels: Any, place: tuple[int, int, int, int]) -> Array:
        """Recolour a part (h', w', 3) of the picture, in its own profile."""
        top, bottom, left, right = place
        part = Picture(pixels[top:bottom, left:right], icc=self.icc)
        cover = None if self.mask is None else torch.from_numpy(self.mask[top:bottom, left:right])
        changed = applied(self.look, torch.from_numpy(to_srgb(part)), cover)
        return from_srgb(part, changed.numpy(), depth=self.depth).pixels


def _weights(alpha: Any, mask: LargeMask | None) -> Callable[[slice], Array] | None:
    """Return the function that gives the weights of the pixels in some rows, as `recolor` counts them; None if all are equal."""
    if alpha is None and mask is None:
        return None
    most = 1.0
    if alpha is not None:
        most = max(float(alpha[rows].max()) for rows in row_bands(alpha.shape[0]))

    def weights(rows: slice) -> Array:
        every = slice(None)
        opaque = None if alpha is None else alpha[rows, every][:, :, 0].astype(np.float32) / np.float32(max(most, 1e-6))
        cover = None if mask is None else mask[rows, every]
        found: Array = opaque if cover is None else cover if opaque is None else cover * opaque  # type: ignore[assignment]
        return found.reshape(-1)

    return weights


def _sampled(pixels: Any, weights: Callable[[slice], Array] | None) -> tuple[Array, Array | None]:
    """Return at most `SAMPLE` pixels (m, 3) with a weight, evenly chosen, and their weights (m,)."""
    height, width, _ = pixels.shape
    bands = row_bands(height)
    sizes = [(rows.stop - rows.start) * width if weights is None else np.count_nonzero(weights(rows)) for rows in bands]
    ends = np.cumsum(sizes, dtype=np.int64)
    count = int(ends[-1])
    if count == 0:
        message = "recolor: no pixel is left, the mask or the alpha is 0 everywhere. Use another picture or mask."
        raise InputError(message)
    chosen = np.arange(min(count, SAMPLE), dtype=np.int64) * count // min(count, SAMPLE)
    parts, counts = [], []
    for rows, size, end in zip(bands, sizes, ends, strict=True):
        first, last = np.searchsorted(chosen, (end - size, end))
        if first == last:
            continue
        places = chosen[first:last] - (end - size)
        if weights is not None:
            found = weights(rows)
            places = np.flatnonzero(found)[places]
            counts.append(found[places])
        parts.append(pixels[rows].reshape(-1, 3)[places])
    return np.concatenate(parts), np.concatenate(counts) if weights is not None else None
