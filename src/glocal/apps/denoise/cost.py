"""How much memory and time denoising takes, and in which parts it fits into a given memory. Does not import torch."""

from __future__ import annotations

from glocal.apps.denoise.options import DEEP_MODELS
from glocal.files.images.formats import coding_memory

_DEEP = ("auto", *DEEP_MODELS)  # auto chooses one of them

_LIBRARIES = 540 << 20  # torch, the kernels and the code
_PART = {True: (1 << 21, 800), False: (1 << 19, 1600)}  # pixels of a part by default, and bytes that each needs
_LEAST = {True: 512 * 512, False: 1 << 15}  # below, most of a part is what lies around it
_PIXEL = 24  # bytes: the file, its pixels, the result as float32 and as it is written


def memory_for(size: tuple[int, int], model: str) -> int:
    """Return the bytes that denoising a picture of this height and width takes, from file to file."""
    pixels = size[0] * size[1]
    most, each = _PART[model in _DEEP]
    return _LIBRARIES + _PIXEL * pixels + each * min(pixels, most)


def least_memory(size: tuple[int, int], model: str, decoding: int = 0) -> int:
    """Return the bytes that are enough if large arrays go to temporary files and the parts are small.

    `decoding` are the bytes that the decoder needs.
    """
    deep = model in _DEEP
    pixels = size[0] * size[1]
    return _LIBRARIES + max(coding_memory(pixels), decoding, _PART[deep][1] * min(pixels, _LEAST[deep]))


def part_pixels(model: str, memory: int | None) -> int | None:
    """Return the pixels of a part that fits into this memory; None for the default."""
    if memory is None:
        return None
    deep = model in _DEEP
    most, each = _PART[deep]
    return max(_LEAST[deep], min(most, (memory - _LIBRARIES) // each))


def seconds_for(size: tuple[int, int], model: str) -> float:
    """Estimate the seconds for a picture of this height and width: a few seconds per megapixel."""
    return 3 + (1e-5 if model in _DEEP else 4e-6) * size[0] * size[1]


def parts_text(size: tuple[int, int], model: str) -> str:
    """Say in how many parts a picture of this height and width is computed."""
    height, width = size
    if model in _DEEP:
        return f"{1 if height * width <= 1 << 21 else -(-height // 1160) * -(-width // 1160)} tile(s)"
    return f"{-(-height // max(32, (1 << 19) // width))} band(s)"
