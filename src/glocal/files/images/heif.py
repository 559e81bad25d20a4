"""Pixels of AVIF (imagecodecs) and HEIC (pillow-heif) files of 8, 10 and 12 bit, and the colours that they mean."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from glocal.errors import MissingDependencyError
from glocal.files.images import bmff
from glocal.files.images.formats import FORMATS
from glocal.files.images.picture import Array, Empty, Picture, row_bands, split_alpha, unmultiplied, with_alpha
from glocal.files.metadata.profiles import numbered_profile

NAMES = ("AVIF", "HEIF")
LOSSLESS = 100
_FULL_COLOR = 90  # from this quality on AVIF keeps the full resolution of the colours
_SPEED = 6  # of 10, as in Pillow; 0 takes a hundred times longer for files that are a tenth smaller


def read_pixels(data: bytes, name: str, empty: Empty = np.empty) -> tuple[Array, Array | None, int]:
    """Colours and alpha of the main picture, and how many bits a channel has in the file.

    The decoders have no place for a given array. Values of 10 and 12 bits are scaled into one that `empty` makes.

    Returns
    -------
    tuple[Array, Array | None, int]
        uint8 for 8 bits, else uint16, with the full range of that type.
    """
    if name == "AVIF":
        array, bits = codec("AVIF").avif_decode(data), bmff.depth_of(data)
        array = array[0] if array.ndim == 4 else array  # of a sequence, the first
        pixels, alpha = split_alpha(array)
    else:
        # Here 10 bits come as 0 to 1023, not shifted to the upper bits.
        file = codec("HEIF").open_heif(io.BytesIO(data), convert_hdr_to_8bit=False, hdr_to_16bit=False)
        array, bits = np.asarray(file), int(file.info["bit_depth"])
        pixels, alpha = split_alpha(array)
        if alpha is not None and file.premultiplied_alpha:
            pixels = unmultiplied(pixels, alpha, top=2**bits - 1)
    if array.dtype == np.uint8:
        return pixels, alpha, 8
    return _scaled(pixels, bits, 16, empty), None if alpha is None else _scaled(alpha, bits, 16, empty), bits


def encode(picture: Picture, name: str, *, quality: int) -> bytes:
    """Encode a file of format `name` with the picture's metadata; quality 100 is lossless."""
    bits = 8 if picture.depth == "8" else picture.bits or FORMATS[name].most_bits
    array = np.ascontiguousarray(with_alpha(picture.pixels, picture.alpha))
    array = array if bits == 8 else _scaled(array, 16, bits)
    if name == "AVIF":
        chroma = "yuv444" if quality >= _FULL_COLOR else "yuv420"
        array = array[:, :, 0] if array.shape[2] == 1 else array
        # One thread, since the number of threads shows in the result, and a result must come again on any machine.
        plain = codec(name).avif_encode(
            array,
            level=quality,
            speed=_SPEED,
            bitspersample=bits,
            pixelformat=chroma,
            primaries=1,
            transfer=13,
            numthreads=1,
        )
    else:
        plain = _heic(array, bits, quality)
    return bmff.with_metadata(bytes(plain), exif=picture.exif, xmp=picture.xmp, icc=picture.icc)


def _heic(array: Array, bits: int, quality: int) -> bytes:
    """Encode a HEIC file without metadata."""
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[array.shape[2]] + (f";{bits}" if bits > 8 else "")
    file = codec("HEIF").from_bytes(mode=mode, size=array.shape[1::-1], data=array.tobytes())
    options: dict[str, Any] = {"quality": quality, "bit_depth": bits}
    if quality == LOSSLESS:
        options |= {"quality": -1, "chroma": 444} | ({} if array.shape[2] < 3 else {"matrix_coefficients": 0})
    stream = io.BytesIO()
    file.save(stream, **options)
    return stream.getvalue()


def profile_of(data: bytes) -> bytes | None:
    """Return the profile of a file that names its colours by numbers instead; None for sRGB.

    Raises
    ------
    Unreadable
        The colours are HDR.
    """
    return numbered_profile(*(bmff.colors_of(data) or (1, 13)))


def _scaled(array: Array, bits: int, goal: int, empty: Empty = np.empty) -> Array:
    """Values of so many bits spread over the range of `goal` bits; there and back is the same."""
    top, full = 2**bits - 1, 2**goal - 1
    out = empty(array.shape, np.uint16)
    for rows in row_bands(len(array)):
        values = np.minimum(array[rows], top).astype(np.uint32)
        out[rows] = (values * full + top // 2) // top
    return out


def codec(name: str) -> Any:
    """Return the library that codes a format.

    Raises
    ------
    MissingDependencyError
        It is not installed, or was built without the format.
    """
    if name == "AVIF":
        import imagecodecs

        if not imagecodecs.AVIF.available:
            raise MissingDependencyError(
                "AVIF files need an imagecodecs that was built with AVIF. Run `pip install --upgrade imagecodecs`."
            )
        return imagecodecs
    try:
        import pillow_heif
    except ImportError as error:
        raise MissingDependencyError(
            "HEIC files need pillow-heif, which is not installed. Run `pip install glocal[formats]`."
        ) from error
    return pillow_heif
