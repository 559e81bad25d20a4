"""Picture: the pixels of an image and everything that must not be lost between reading and writing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.errors import ArgumentError, InputError

Array = npt.NDArray[Any]
Empty = Callable[[tuple[int, ...], Any], Array]
"""Makes an array of a shape and a dtype, such as `numpy.empty`."""

BAND_ROWS = 256
LARGEST = 1e38  # of a float pixel: float32 holds three times as much, so differences and rounding fit too


@dataclass(frozen=True)
class Stream:
    """A file as it was read, with the sum of the upright pixels it stands for, its profile and its orientation."""

    data: bytes
    digest: bytes
    icc: bytes | None
    turn: int


@dataclass(frozen=True, eq=False)
class Picture:
    """An image with its transparency, colour profile and metadata.

    Attributes
    ----------
    pixels
        `(h, w, c)` with `c` 1 (gray) or 3 (RGB), of type uint8, uint16, float32 or float64, upright.
    alpha
        `(h, w)` of the same type, or None. Colours are not multiplied by it.
    format
        One of `glocal.files.images.formats.FORMATS`, or "" if the picture does not come from a file.
    icc
        The colour profile, or None for sRGB.
    exif
        The EXIF block without its prefix, its orientation already applied and reset to 1.
    xmp
        The XMP packet.
    dpi
        Resolution in dots per inch, across and down.
    lossless
        The file was coded without loss (matters for WebP, which has both).
    notes
        What was changed while reading, in words for people ("palette converted to RGB").
    path
        Where it was read.
    text
        Texts of a PNG file by keyword.
    iptc
        The IPTC records, without what a format wraps around them.
    comments
        The comments of a JPEG file.
    bits
        Of a channel, if the file had neither 8 nor 16 of them but 10 or 12; the pixels are uint16 then, with
        their full range.
    stream
        What `glocal.files.images.streams` needs to write a lossy file without coding it again.
    sha256
        Of the bytes that were read, for recipes: the file itself may change meanwhile.
    """

    pixels: Array
    alpha: Array | None = None
    format: str = ""
    icc: bytes | None = None
    exif: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None
    lossless: bool = True
    notes: tuple[str, ...] = ()
    path: Path | None = None
    text: dict[str, str] = field(default_factory=dict)
    iptc: bytes | None = None
    comments: tuple[bytes, ...] = ()
    bits: int | None = None
    stream: Stream | None = field(default=None, repr=False)
    sha256: str | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return int(self.pixels.shape[0]), int(self.pixels.shape[1])

    @property
    def gray(self) -> bool:
        """Whether there is one channel only."""
        return self.pixels.shape[2] == 1

    @property
    def depth(self) -> str:
        """What a channel is stored in: "8", "16" or "float"."""
        return {1: "8", 2: "16"}.get(self.pixels.dtype.itemsize, "float")


def row_bands(height: int) -> list[slice]:
    """Cut a picture of this height into bands of at most `BAND_ROWS` rows: what is read or converted at a time.

    >>> row_bands(300)
    [slice(0, 256, None), slice(256, 300, None)]
    """
    return [slice(top, min(height, top + BAND_ROWS)) for top in range(0, height, BAND_ROWS)]


def with_alpha(pixels: Array, alpha: Array | None) -> Array:
    """`(h, w, c)` pixels with `(h, w)` alpha as one more channel, if there is one.

    If both are views of one array with c + 1 channels, no copy is made.
    """
    if alpha is None:
        return pixels
    c, size = pixels.shape[2], pixels.itemsize
    apart = pixels.strides == (pixels.shape[1] * (c + 1) * size, (c + 1) * size, size)
    if apart and alpha.strides == pixels.strides[:2] and alpha.ctypes.data == pixels.ctypes.data + c * size:
        return np.lib.stride_tricks.as_strided(pixels, (*pixels.shape[:2], c + 1), pixels.strides)
    return np.concatenate([pixels, alpha[:, :, None]], axis=2)


def split_alpha(array: Array, empty: Empty = np.empty) -> tuple[Array, Array | None]:
    """Undo `with_alpha`: an array of 1 to 4 channels (or `(h, w)`) becomes colour and alpha."""
    if array.ndim == 2:
        array = array[:, :, None]
    if array.shape[2] in (2, 4):
        return copied(array[:, :, :-1], empty), copied(array[:, :, -1], empty)
    return array, None


def copied(array: Array, empty: Empty) -> Array:
    """Copy an array to a place that `empty` makes; a contiguous array is returned as it is."""
    if array.flags.c_contiguous:
        return array
    copy = empty(array.shape, array.dtype)
    copy[:] = array
    return copy


def unmultiplied(pixels: Array, alpha: Array, *, top: float) -> Array:
    """Colours divided by their alpha, whose full value is `top`; integers are rounded."""
    ratio = np.where(alpha > 0, top / np.maximum(alpha, 1e-6), 0.0)[:, :, None]
    if pixels.dtype.kind == "f":
        return (pixels * ratio).astype(pixels.dtype)
    return np.clip(np.rint(pixels * ratio), 0, top).astype(pixels.dtype)


def to_depth(array: Array, depth: str) -> Array:
    """Bring pixels to "8", "16" or "float" (float32); integers stand for the whole of [0, 1].

    Examples
    --------
    >>> to_depth(np.array([[0, 128, 255]], np.uint8), "16")
    array([[    0, 32896, 65535]], dtype=uint16)
    """
    return to_type(array, type_of(depth))


def type_of(depth: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a depth.

    Raises
    ------
    ArgumentError
        The depth is none of "8", "16" and "float".
    """
    dtypes: dict[str, Any] = {"8": np.uint8, "16": np.uint16, "float": np.float32}
    if depth not in dtypes:
        raise ArgumentError(f"to_depth: `depth` (={depth!r}) is unknown. Use one of {', '.join(dtypes)}.")
    return np.dtype(dtypes[depth])


def to_type(array: Array, dtype: np.dtype[Any]) -> Array:
    """`to_depth` for a NumPy type: uint8, uint16 or a float type; floats outside of [0, 1] are clipped for integers."""
    if array.dtype == dtype:
        return array
    top = np.iinfo(array.dtype).max if array.dtype.kind == "u" else 1
    if dtype.kind == "f":
        return array.astype(dtype) / dtype.type(top) if top > 1 else array.astype(dtype)
    goal = np.iinfo(dtype).max
    if array.dtype.kind == "u":
        if goal > top:
            return array.astype(dtype) * dtype.type(goal // top)
        return ((array.astype(np.uint32) * goal + top // 2) // top).astype(dtype)
    scaled = array * array.dtype.type(goal)
    np.rint(scaled, out=scaled)
    return np.clip(scaled, 0, goal, out=scaled).astype(dtype)


def check_finite(array: Array, where: str) -> None:
    """Raise an `InputError` if there is a NaN, an infinity or a number beyond `LARGEST` among the values."""
    kind = np.result_type(array.dtype, np.float32)  # LARGEST is infinite in float16
    parts = (array[rows].astype(kind, copy=False) for rows in row_bands(len(array)))
    bad = sum(int(part.size - np.count_nonzero(np.abs(part) <= LARGEST)) for part in parts)
    if bad:
        message = f"{where}: {bad} values are NaN, infinite or beyond {LARGEST:g}. Replace or scale them first."
        raise InputError(message)
