"""The codec of each format: how to read its header, decode it, encode it and find a recipe in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

from glocal.files.images import heif, pillow_formats, png, tiff
from glocal.files.images.picture import Empty, Picture


@dataclass(frozen=True)
class Codec:
    """The functions of one format.

    Attributes
    ----------
    size_of : bytes -> (height, width)
        From the header alone; nothing is decoded.
    decode : (bytes, empty) -> Picture
        For a file whose size was checked. `empty` makes the arrays of pixels, where the decoder can fill a given array.
    write : (file, picture, recipe, quality) -> notes
        The file can be read and written at any place. The notes say what did not fit into the format.
    recipe_in : bytes -> str or None
        The text of the recipe in a file.
    own_place : bool
        The format has its own place for the recipe; otherwise the recipe is in the XMP of the picture.
    """

    size_of: Callable[[bytes], tuple[int, int]]
    decode: Callable[[bytes, Empty], Picture]
    write: Callable[[BinaryIO, Picture, str | None, int], tuple[str, ...]]
    recipe_in: Callable[[bytes], str | None]
    own_place: bool = False


def _written(file: BinaryIO, data: bytes, notes: tuple[str, ...] = ()) -> tuple[str, ...]:
    file.write(data)
    return notes


def _by_heif(name: str) -> Codec:
    """Read the header and the metadata with Pillow; the pixels have their own codecs."""
    return replace(
        _by_pillow(name),
        write=lambda file, picture, recipe, quality: _written(file, heif.encode(picture, name, quality=quality)),
    )


def _by_pillow(name: str) -> Codec:
    return Codec(
        size_of=partial(pillow_formats.size_of, name=name),
        decode=partial(pillow_formats.decode, name=name),
        write=lambda file, picture, recipe, quality: _written(
            file, *pillow_formats.encode(picture, name, quality=quality)
        ),
        recipe_in=partial(pillow_formats.recipe_in, name=name),
    )


CODECS = {
    "PNG": Codec(
        size_of=png.size_of,
        decode=png.decode,
        write=lambda file, picture, recipe, quality: png.write(file, picture, recipe=recipe),
        recipe_in=png.recipe_in,
        own_place=True,
    ),
    "TIFF": Codec(
        size_of=tiff.size_of,
        decode=partial(tiff.decode, fallback=lambda data: pillow_formats.decode(data, name="TIFF")),
        write=lambda file, picture, recipe, quality: tiff.write(file, picture),
        recipe_in=tiff.recipe_in,
    ),
    **{name: _by_pillow(name) for name in ("JPEG", "WEBP", "BMP")},
    **{name: _by_heif(name) for name in heif.NAMES},
}
