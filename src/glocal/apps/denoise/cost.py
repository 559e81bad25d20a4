"""How much memory and time denoising takes, and in which parts it fits into a given memory. Does not import torch."""

from __future__ import annotations

from glocal.apps.denoise.options import DEEP_MODELS
from glocal.files.images.formats import coding_memory

_DEEP = ("auto", *DEEP_MODELS)  # auto chooses one of them

TILE_MEMORY = 1600 << 20  # of a deep network, for a tile and its surroundings
_LIBRARIES = 540 << 20  # torch, the kernels and the code
_BAND = 1 << 19  # pixels of a part of the other networks by default
_LEAST = {True: 512 * 512, False: 1 << 15}  # pixels of a part; below, most of it is what lies around it
_PIXEL = 24  # bytes: the file, its pixels, the result as float32 and as it is written


def tile_bytes(width: int, *, short: bool) -> int:
    """Return the bytes that a deep network needs for a pixel: `width` channels at full resolution, `short` for bfloat16.

    Measured for 1024 x 1024 pixels: 305 bytes for small, 329 for photo, 573 for large; 565 for small in float32.

    >>> tile_bytes(16, short=True)
    336
    """
    return (21 if short else 36) * width


def memory_for(size: tuple[int, int], model: str) -> int:
    """Return the bytes that denoising a picture of this height and width takes, from file to file."""
    pixels = size[0] * size[1]
    most = TILE_MEMORY if model in _DEEP else _BAND * _each(model)
    return _LIBRARIES + _PIXEL * pixels + min(pixels * _each(model), most)


def least_memory(size: tuple[int, int], model: str, decoding: int = 0) -> int:
    """Return the bytes that are enough if large arrays go to temporary files and the parts are small.

    `decoding` are the bytes that the decoder needs.
    """
    pixels = size[0] * size[1]
    return _LIBRARIES + max(coding_memory(pixels), decoding, _each(model) * min(pixels, _LEAST[model in _DEEP]))


def part_pixels(model: str, memory: int | None) -> int | None:
    """Return the pixels of a part that fits into this memory; None for the default."""
    if memory is None:
        return None
    most = TILE_MEMORY // _each(model) if model in _DEEP else _BAND
    return max(_LEAST[model in _DEEP], min(most, (memory - _LIBRARIES) // _each(model)))


def _each(model: str) -> int:
    """Return the bytes for each pixel of a part, in float32."""
    if model not in _DEEP:
        return 1600
    return tile_bytes(32 if model == "large" else 16, short=False)


def seconds_for(size: tuple[int, int], model: str) -> float:
    """Estimate the seconds for a picture of this height and width: a few seconds per megapixel."""
    return 3 + (1e-5 if model in _DEEP else 4e-6) * size[0] * size[1]


def parts_text(size: tuple[int, int], model: str) -> str:
    """Say in which parts a picture of this height and width is computed.

    >>> parts_text((512, 512), "small"), parts_text((4000, 6000), "small")
    ('1 tile', 'tiles of up to 5.0 megapixels')
    """
    height, width = size
    if model not in _DEEP:
        return f"{-(-height // max(32, _BAND // width))} band(s)"
    most = TILE_MEMORY // tile_bytes(32 if model == "large" else 16, short=True)
    return "1 tile" if height * width <= most else f"tiles of up to {most / 1e6:.1f} megapixels"
