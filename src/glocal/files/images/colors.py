"""Colours for computing: from a picture's own colour profile and depth to sRGB in [0, 1], and back without loss.

Going back adds the *change* to the original pixels: `result = original + P(new) - P(old)`, where `P` takes sRGB to the
picture's own colours and `old` is what was handed out. Where nothing changed the original comes back to the bit, even
colours outside of sRGB. Profiles of three curves and a matrix are applied by tables, others by Little CMS in floating
point, for every depth.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glocal.errors import InputError
from glocal.files.images.picture import Array, Picture, check_finite, row_bands, to_type, type_of, with_alpha
from glocal.files.images.scratch import Scratch
from glocal.files.metadata.matrix_profiles import matrix_profile
from glocal.files.metadata.profiles import is_srgb, profile_space, srgb_profile, transform

_SAMPLE = 1 << 20  # values from which the white of a float picture is found


def white_of(pixels: Any) -> float:
    """Return the pixel value that stands for white.

    It is 1 for integers, which stand for [0, 1], and for floats up to 1. Float pictures may hold more, such as renderings
    and scans with a larger range. Their white is the value that 99.9 % of the pixels stay below, so that a few very
    bright ones do not make all others black. The pixels are read by bands of rows. Cost: O(h w).

    >>> white_of(np.array([[[0.5], [4.0]]], np.float32))
    4.0
    """
    if pixels.dtype.kind != "f" or 0 in pixels.shape:
        return 1.0
    bands = row_bands(pixels.shape[0])
    if not max(float(pixels[rows].max()) for rows in bands) > 1:
        return 1.0
    row = math.prod(pixels.shape[1:])
    step = max(1, row * pixels.shape[0] // _SAMPLE)
    some = [pixels[rows].reshape(-1)[-(rows.start * row) % step :: step] for rows in bands]
    return max(1.0, float(np.quantile(np.concatenate(some), 0.999, method="higher")))


def to_srgb(picture: Picture) -> Array:
    """Compute the picture as sRGB values.

    Parameters
    ----------
    picture : Picture
        Integers stand for [0, 1], floats for [0, `white_of`]; its profile (if any) is applied.

    Returns
    -------
    array (h, w, 3) of float32 in [0, 1]
        Gray pictures have three equal channels. Colours that sRGB cannot hold are clipped. Cost: O(h w).

    Raises
    ------
    InputError
        Float pixels that are NaN, infinite or beyond 1e38.

    Examples
    --------
    >>> to_srgb(Picture(np.full((1, 1, 1), 255, np.uint8)))
    array([[[1., 1., 1.]]], dtype=float32)
    """
    return _to_srgb(picture, white_of(picture.pixels))


def srgb_in(scratch: Scratch, picture: Picture) -> Array:
    """Compute `to_srgb` into a temporary file, by bands of rows. The values are the same."""
    white = white_of(picture.pixels)
    values = scratch.empty((*picture.size, 3), np.float32)
    for rows in row_bands(picture.size[0]):
        values[rows] = _to_srgb(replace(picture, pixels=picture.pixels[rows]), white)
        scratch.release()
    return values


def _to_srgb(picture: Picture, white: float) -> Array:
    """Compute sRGB values of a picture, or of a part of it, whose white is known."""
    pixels = picture.pixels
    if pixels.dtype.kind == "f":
        check_finite(pixels, f"read image ({picture.path})" if picture.path else "to_srgb")
        pixels = pixels / pixels.dtype.type(white) if white != 1 else pixels
    space = _space(picture)
    if space == "srgb":
        values = to_type(pixels, np.dtype(np.float32))
        if pixels.dtype.kind == "f":
            values = np.clip(values, 0, 1)
        return np.repeat(values, 3, axis=2) if picture.gray else values
    assert picture.icc is not None
    model = matrix_profile(picture.icc) if space == "rgb" else None
    if model is not None:
        return model.to_srgb(pixels)
    rgb = transform(pixels, picture.icc, srgb_profile(), space, "rgb")
    if space == "gray":
        rgb[:] = rgb.mean(axis=2, keepdims=True)  # the white point of the profile tints gray by its rounding
    return np.clip(rgb, 0, 1, out=rgb)


def from_srgb(picture: Picture, image: Array, *, depth: str = "keep") -> Picture:
    """Give `picture` new colours, in its own depth, range and profile, with its alpha and metadata.

    Parameters
    ----------
    picture : Picture
        The original.
    image : array (h, w, 3), or (h, w, 1) for gray
        New sRGB values. With another height or width, the alpha is resized.
    depth : "keep", "8", "16" or "float"
        Round `image` to that depth instead of the picture's own.

    Returns
    -------
    Picture
        A gray picture stays gray when the three new channels are equal; otherwise it becomes a colour picture in sRGB.
        Cost: O(h w).

    Raises
    ------
    InputError
        `image` has another number of channels or holds NaNs.
    """
    image = _checked(image)
    dtype = picture.pixels.dtype if depth == "keep" else type_of(depth)
    same_size = image.shape[:2] == picture.size
    facts = _Facts(
        white_of(picture.pixels),
        picture.gray and (image.shape[2] == 1 or _neutral(image)),
        same_size and _beyond_unit(picture.pixels),
    )
    return _from_srgb(picture, image, dtype, facts)


def from_srgb_in(scratch: Scratch, picture: Picture, image: Array, *, depth: str = "keep") -> Picture:
    """Do what `from_srgb` does for an image of the same size, into temporary files, by bands of rows."""
    dtype = picture.pixels.dtype if depth == "keep" else type_of(depth)
    bands = row_bands(picture.size[0])
    facts = _Facts(
        white_of(picture.pixels),
        picture.gray and all(_neutral(image[rows]) for rows in bands),
        any(_beyond_unit(picture.pixels[rows]) for rows in bands),
    )
    out: Array | None = None
    for rows in bands:
        alpha = None if picture.alpha is None else picture.alpha[rows]
        part = replace(picture, pixels=picture.pixels[rows], alpha=alpha)
        done = _from_srgb(part, _checked(image[rows]), dtype, facts)
        values = with_alpha(done.pixels, done.alpha)
        if out is None:
            out = scratch.empty((*picture.size, values.shape[2]), dtype)
        out[rows] = values
        scratch.release()
    assert out is not None
    # Colours and alpha are views of one array, so that an encoder needs no copy of them.
    colors = done.pixels.shape[2]
    return replace(done, pixels=out[:, :, :colors], alpha=None if picture.alpha is None else out[:, :, colors])


@dataclass(frozen=True)
class _Facts:
    """What depends on the whole picture: its white, whether it stays gray, and whether it has values outside of [0, 1]."""

    white: float
    gray: bool
    beyond: bool


def _from_srgb(picture: Picture, image: Array, dtype: np.dtype[Any], facts: _Facts) -> Picture:
    """Give a picture, or a part of it, new colours."""
    white = image.dtype.type(facts.white)
    alpha = _resized(picture.alpha, image.shape[:2])
    new = replace(picture, alpha=None if alpha is None else to_type(alpha, dtype))
    if picture.gray and image.shape[2] == 3:
        if not facts.gray:
            return replace(new, pixels=_quantised(_times(image, white), dtype), icc=None)
        image = image[:, :, :1]
    space = _space(picture)
    same_size = image.shape[:2] == picture.size
    if space == "srgb" and not facts.beyond:
        if not picture.gray and image.shape[2] == 1:
            image = np.repeat(image, 3, axis=2)
        return replace(new, pixels=_quantised(_times(image, white), dtype))
    rgb = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image
    own = _to_own(picture, rgb, space)
    if same_size:
        wide = np.dtype(np.float64 if picture.pixels.dtype == np.float64 else np.float32)
        own = to_type(picture.pixels, wide) + _times(
            own - _to_own(picture, _to_srgb(picture, facts.white), space), white
        )
    else:
        own = _times(own, white)
    return replace(new, pixels=_quantised(own, dtype))


def cmyk_to_rgb(array: Array, icc: bytes | None) -> Array:
    """CMYK `(h, w, 4)`, where full ink is the largest value, as sRGB of the same type: by its profile if it has one.

    Without a profile that can be used, `(1 - c) (1 - k)` for each ink. Cost: O(h w).
    """
    import imagecodecs

    if icc is not None and profile_space(icc) == "cmyk":
        inks = to_type(array, np.dtype(np.uint16)) if array.dtype.kind == "f" else array
        with contextlib.suppress(imagecodecs.CmsError, ValueError):
            return _quantised(np.clip(transform(inks, icc, srgb_profile(), "cmyk", "rgb"), 0, 1), array.dtype)
    light = 1 - to_type(array, np.dtype(np.float32))
    return _quantised(light[:, :, :3] * light[:, :, 3:], array.dtype)


def _to_own(picture: Picture, rgb: Array, space: str) -> Array:
    """Convert sRGB values to the colour space of `picture`."""
    if space == "srgb":
        return rgb[:, :, : picture.pixels.shape[2]]
    assert picture.icc is not None
    model = matrix_profile(picture.icc) if space == "rgb" else None
    if model is not None:
        return model.from_srgb(rgb)
    return transform(rgb, srgb_profile(), picture.icc, "rgb", space)


def _checked(image: Array) -> Array:
    image = np.asarray(image)
    if image.ndim == 2:
        image = image[:, :, None]
    if image.ndim != 3 or image.shape[2] not in (1, 3):
        raise InputError(f"from_srgb: `image` has shape {image.shape}. Pass (h, w, 3) or (h, w, 1).")
    if image.dtype.kind != "f":
        image = to_type(image, np.dtype(np.float32))
    check_finite(image, "from_srgb")
    return image


def _neutral(image: Array) -> bool:
    """Whether the three channels are equal up to rounding."""
    return all(bool(np.abs(image[:, :, 0] - image[:, :, i]).max(initial=0) < 1e-4) for i in (1, 2))


def _beyond_unit(pixels: Array) -> bool:
    """Whether sRGB in [0, 1] and float32 does not hold the pixels as they are."""
    return pixels.dtype == np.float64 or (pixels.dtype.kind == "f" and bool(pixels.min() < 0 or pixels.max() > 1))


def _times(values: Array, white: Any) -> Array:
    return values if white == 1 else values * white


def _quantised(image: Array, dtype: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(to_type(image, dtype))


def _space(picture: Picture) -> str:
    """How the pixels are coded: "srgb", or "rgb"/"gray" with a profile that has to be applied."""
    space = profile_space(picture.icc)
    if space is None or space != ("gray" if picture.gray else "rgb") or picture.icc is None:
        return "srgb"
    return "srgb" if is_srgb(picture.icc, space) else space


def _resized(alpha: Array | None, size: tuple[int, ...]) -> Array | None:
    """Alpha brought to another size with a filter that does not ring."""
    if alpha is None or alpha.shape == tuple(size):
        return alpha
    from PIL import Image

    flat = Image.fromarray(to_type(alpha, np.dtype(np.float32)))
    return to_type(np.asarray(flat.resize((size[1], size[0]), Image.Resampling.BOX)), alpha.dtype)
