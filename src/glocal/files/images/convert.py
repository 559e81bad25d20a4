"""Pictures from whatever a person would call an image, and results in the form of the input."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from glocal.errors import InputError
from glocal.files.images.colors import from_srgb
from glocal.files.images.picture import Array, Picture, check_finite, split_alpha, with_alpha
from glocal.files.images.pillow_formats import picture_from_pil, to_pil
from glocal.files.images.read import MAX_PIXELS, read_image


def picture_from(value: object, *, max_pixels: int | None = None) -> Picture:
    """A `Picture` from whatever a person would call an image.

    Args:
        value: An array `(h, w)`, `(h, w, 1)`, `(h, w, 2)` (gray and alpha), `(h, w, 3)` or `(h, w, 4)` of type uint8,
            uint16 or float in [0, 1]; a `PIL.Image`; a path; or a `Picture`, which is returned as it is.
        max_pixels: Limit for files, see `glocal.files.images.read.read_image`.

    Raises:
        InputError: The array has another shape or type, holds values that are not finite, or the file cannot be read.

    Example:
        >>> picture_from(np.zeros((4, 5, 3), np.uint8)).size
        (4, 5)
    """
    if isinstance(value, Picture):
        return value
    if isinstance(value, (str, os.PathLike)):
        return read_image(value, max_pixels=max_pixels or MAX_PIXELS)
    if hasattr(value, "getbands"):
        return replace(picture_from_pil(value), kind="pil")
    if not hasattr(value, "__array__"):
        raise InputError(
            f"picture_from: `value` is a {type(value).__name__}, not an image. Pass an array, a PIL.Image or a path."
        )
    return _from_array(np.asarray(value))


def like(picture: Picture, image: Array) -> Any:
    """Give `image` the kind of thing that `picture` was made from: the result of a call looks like its input.

    Args:
        picture: From `picture_from`.
        image: sRGB values in [0, 1], `(h, w, 3)` or `(h, w, 1)`.

    Returns:
        A `PIL.Image` for a `PIL.Image`, else an array of the input's type (and with its alpha as a last channel).

    Example:
        >>> photo = np.full((2, 2, 3), 51, np.uint8)
        >>> like(picture_from(photo), np.full((2, 2, 3), 0.2, np.float32))[0, 0]
        array([51, 51, 51], dtype=uint8)
    """
    result = from_srgb(picture, image)
    if picture.kind == "pil":
        return to_pil(result)
    return with_alpha(result.pixels, result.alpha)


def _from_array(array: Array) -> Picture:
    """Check a bare array and wrap it."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4)) or 0 in array.shape:
        raise InputError(
            f"picture_from: the array has shape {array.shape}, not (h, w) or (h, w, 1 to 4). "
            "Put the channels last and leave out batch axes."
        )
    if array.dtype == np.float16 or array.dtype == bool:
        array = array.astype(np.float32)
    if array.dtype not in (np.uint8, np.uint16, np.float32, np.float64):
        raise InputError(
            f"picture_from: the array has type {array.dtype}. Convert it to uint8, uint16 or float in [0, 1]."
        )
    if array.dtype.kind == "f":
        check_finite(array, "picture_from")
    pixels, alpha = split_alpha(array)
    return Picture(pixels=pixels, alpha=alpha, kind="array")
