"""Read image files with everything that belongs to them: depth, alpha, profile, EXIF and XMP."""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from glocal.files import provenance
from glocal.files.images import streams
from glocal.files.images.codecs import CODECS
from glocal.files.images.formats import sniff
from glocal.files.images.picture import Array, Empty, Picture, copied
from glocal.files.images.scratch import Scratch
from glocal.files.metadata import exif, xmp
from glocal.files.reading import Unreadable, reading

MAX_PIXELS = 256_000_000
_SLACK = 64 << 20  # bytes that a file may have beyond its pixels
_SMALLER = "Use a smaller picture or raise the limit"


def read_image(
    path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS, scratch: Scratch | None = None
) -> Picture:
    """Read an image file.

    Parameters
    ----------
    path : str or path
        JPEG, PNG, TIFF, WebP, BMP, AVIF or HEIC; the content decides, not the name.
    max_pixels : int
        Files that declare more pixels are refused before anything is decoded.
    scratch : Scratch or None
        Decode into temporary files instead of memory, where the decoder can.

    Returns
    -------
    Picture
        In its own depth, turned upright. Cost: one copy of the decoded pixels and of the file.

    Raises
    ------
    InputError
        The file is missing, not an image, cut short, damaged, or larger than `max_pixels`.
    MissingDependencyError
        HEIC without pillow-heif.
    """
    path = Path(path)
    with reading("image", path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what decoders find odd in a file does not help users
        data, name, (height, width) = _open(path, max_pixels)
        empty = np.empty if scratch is None else scratch.empty
        picture = CODECS[name].decode(data, empty)
        if sorted(picture.size) != sorted((height, width)):
            raise Unreadable("its header and its content disagree about the size")
        upright = _upright(picture, empty)
        if not picture.lossless and not picture.notes:
            turn = exif.orientation(picture.exif)
            upright = replace(upright, stream=streams.remembered(data, upright, turn=turn))
        if scratch is not None:
            scratch.release()
        return replace(upright, path=path, sha256=hashlib.sha256(data).hexdigest())


def image_size(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Read height and width of an image file from its header alone, as `read_image` would before turning it.

    Raises
    ------
    InputError
        As in `read_image`, except for damage behind the header.
    """
    path = Path(path)
    with reading("image", path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _open(path, max_pixels)[2]


def read_recipe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the recipe that `write_image` embedded in a file.

    Raises
    ------
    InputError
        The file cannot be read, or carries no recipe.
    """
    path = Path(path)
    with reading("image", path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data, name, _ = _open(path, MAX_PIXELS)
        text = CODECS[name].recipe_in(data)
        if text is None:
            raise Unreadable("it carries no recipe", "Use a file that glocal wrote with its metadata kept")
        return provenance.from_json(text, str(path))


def _open(path: Path, max_pixels: int) -> tuple[bytes, str, tuple[int, int]]:
    """Return the bytes of a file, its format and its declared size, after checking the limits."""
    if path.is_dir():
        raise Unreadable("it is a folder", "Name a file, or use a command that takes folders")
    with path.open("rb") as file:
        name = sniff(file.read(32), path)
        stored = os.fstat(file.fileno()).st_size
        if stored > 16 * max_pixels + _SLACK:
            raise Unreadable(f"the file has {stored:,} bytes, more than {max_pixels:,} pixels need", _SMALLER)
        file.seek(0)
        data = file.read()
    height, width = CODECS[name].size_of(data)
    if width * height > max_pixels:
        raise Unreadable(f"it declares {width} x {height} pixels, more than the limit of {max_pixels:,}", _SMALLER)
    if not width or not height:
        raise Unreadable("it has no pixels")
    return data, name, (height, width)


def _upright(picture: Picture, empty: Empty) -> Picture:
    """Apply the orientation once, and say in the metadata that it was applied."""
    turn = exif.orientation(picture.exif)
    turned = picture
    if turn != 1:
        alpha = picture.alpha
        turned = replace(
            picture,
            pixels=_turned(picture.pixels, turn, empty),
            alpha=None if alpha is None else _turned(alpha, turn, empty),
        )
        if picture.dpi and turn > 4:
            turned = replace(turned, dpi=(picture.dpi[1], picture.dpi[0]))
    return replace(
        turned,
        exif=exif.settle(picture.exif) if picture.exif else None,
        xmp=xmp.without_recipe(xmp.settle(picture.xmp)) if picture.xmp else None,
    )


def _turned(array: Array, turn: int, empty: Empty) -> Array:
    """Undo one of the eight orientations of EXIF."""
    if turn > 4:
        array = np.swapaxes(array, 0, 1)
    if turn in (3, 4, 7, 8):
        array = array[::-1]
    if turn in (2, 3, 6, 7):
        array = array[:, ::-1]
    return copied(array, empty)
