"""Colour profiles (ICC): what one describes, the profile behind numbered colours, and pixels through Little CMS."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.files.reading import Unreadable

Array = npt.NDArray[Any]
_HDR = {16: "PQ", 18: "HLG"}
# Red, green and blue (x, y) of the primaries of ITU-T H.273 that are in use, except those of sRGB.
_PRIMARIES = {9: (0.708, 0.292, 0.170, 0.797, 0.131, 0.046), 12: (0.680, 0.320, 0.265, 0.690, 0.150, 0.060)}
_ROWS = 1 << 18  # pixels transformed at a time, so that the float copies stay small


@functools.lru_cache(maxsize=8)
def numbered_profile(primaries: int, transfer: int) -> bytes | None:
    """Return the profile of colours named by the numbers of ITU-T H.273; None for sRGB and unknown numbers.

    Raises
    ------
    Unreadable
        The colours are HDR, which nothing here can compute with.
    """
    import imagecodecs

    if transfer in _HDR:
        raise Unreadable(f"its colours are HDR ({_HDR[transfer]}), which is not supported", "Save it again without HDR")
    if primaries not in _PRIMARIES:
        return None
    value = np.linspace(0, 1, 1024)
    light = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    points = [part for x, y in np.reshape(_PRIMARIES[primaries], (3, 2)) for part in (x, y, 1.0)]
    curve = np.rint(light * 65535).astype(np.uint16)
    return bytes(
        imagecodecs.cms_profile("rgb", whitepoint=(0.3127, 0.3290, 1.0), primaries=points, transferfunction=curve)
    )


def profile_space(icc: bytes | None) -> str | None:
    """Return what a colour profile describes, "rgb", "gray" or "cmyk"; None if it is missing or unusable."""
    if icc is None or len(icc) < 132 or icc[36:40] != b"acsp":
        return None
    return {b"RGB ": "rgb", b"GRAY": "gray", b"CMYK": "cmyk"}.get(icc[16:20])


@functools.lru_cache(maxsize=16)
def is_srgb(icc: bytes, space: str) -> bool:
    """Whether a profile does nothing that could be seen in 8 bits; one that cannot be used counts as sRGB."""
    import imagecodecs

    steps = np.linspace(0, 1, 9, dtype=np.float32)
    cube = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 1, 3)
    colors = steps[:, None, None] if space == "gray" else cube
    try:
        seen = transform(np.ascontiguousarray(colors), icc, srgb_profile(), space, "rgb")
    except (imagecodecs.CmsError, ValueError):
        return True
    return not np.isfinite(seen).all() or bool(np.abs(seen - colors).max() < 2e-3)


@functools.lru_cache(maxsize=1)
def srgb_profile() -> bytes:
    """Return the bytes of an sRGB profile."""
    import imagecodecs

    return bytes(imagecodecs.cms_profile("srgb"))


def transform(pixels: Array, source: bytes, target: bytes, space: str, out_space: str) -> Array:
    """Take pixels `(h, w, c)` from one profile to another by Little CMS, a few rows at a time: float32. Cost: O(h w)."""
    import imagecodecs

    h, w = pixels.shape[:2]
    out = np.empty((h, w, 1 if out_space == "gray" else 3), np.float32)
    step = max(1, _ROWS // max(w, 1))
    for row in range(0, h, step):
        part = pixels[row : row + step]
        part = np.ascontiguousarray(part[:, :, 0] if space == "gray" else part)
        part = part.astype(np.float32) if part.dtype == np.float64 else part
        done = imagecodecs.cms_transform(
            part, source, target, colorspace=space, outcolorspace=out_space, outdtype="float32"
        )
        out[row : row + step] = done.reshape(out[row : row + step].shape)
    return out
