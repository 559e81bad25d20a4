"""Write image files: what was read comes out again, with depth, alpha, profile, EXIF and XMP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from glocal.atomic import check_free, write_whole
from glocal.errors import ArgumentError, GlocalError
from glocal.files import provenance
from glocal.files.images import heif, streams
from glocal.files.images.codecs import CODECS
from glocal.files.images.colors import from_srgb, to_srgb
from glocal.files.images.formats import Format, format_of_name
from glocal.files.images.picture import Picture, to_depth
from glocal.files.metadata import exif, xmp
from glocal.files.metadata.profiles import profile_space

QUALITY = 95
_PLACES = {"IPTC": ("JPEG", "PNG", "TIFF"), "comments": ("JPEG", "PNG"), "PNG texts": ("PNG",)}


def write_image(
    path: str | os.PathLike[str],
    picture: Picture,
    *,
    depth: str = "keep",
    quality: int = QUALITY,
    metadata: str = "keep",
    recipe: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write an image file, whole or not at all.

    Parameters
    ----------
    path : str or path
        The suffix decides the format.
    picture : Picture
        What to write; `glocal.files.images.colors.from_srgb` makes it from computed colours.
    depth : "keep", "8", "16" or "float"
        A depth that the format cannot hold becomes the nearest one it can.
    quality : int
        1 to 100 for JPEG, WebP, AVIF and HEIC; 100 is without loss for the last two. A file whose pixels are still those
        that were read is not coded again at the default quality: they stay the same to the bit.
    metadata : "keep" or "strip"
        Strip leaves out EXIF, XMP, texts and the recipe. The colour profile always stays.
    recipe : mapping
        How the picture was made (see `glocal.files.provenance`), embedded where the format has a place for it.
    overwrite : bool
        Replace an existing file.

    Returns
    -------
    tuple of str
        Notes on what the format could not hold, empty if everything was kept.

    Raises
    ------
    ArgumentError
        An unknown suffix, depth, or quality.
    OutputError
        The output exists or cannot be written.
    """
    target = format_of_name(path)
    _check_options(depth, quality, metadata)
    check_free(path, overwrite=overwrite)
    text = provenance.to_json(recipe) if recipe is not None else None
    if metadata == "strip":
        picture, text = replace(picture, exif=None, xmp=None, iptc=None, comments=(), text={}), None
    picture, notes = _fitted(picture, target, depth)
    if text is not None and not target.metadata:
        notes += (f"{target.name} has no place for the recipe: dropped",)
    if picture.exif:
        picture = replace(picture, exif=exif.settle(picture.exif))
    with write_whole(path, overwrite=overwrite) as temporary, temporary.open("wb+") as file:
        try:
            more = _write(file, picture, target, text, quality, strip=metadata == "strip")
        except (GlocalError, MemoryError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk, not the picture
            raise ArgumentError(
                f"write image ({path}): {target.name} cannot hold this picture ({error}). Choose TIFF or PNG."
            ) from error
    return notes + more


def check_format(path: str | os.PathLike[str]) -> None:
    """Refuse an output whose format cannot be written on this computer, before the work.

    Raises
    ------
    ArgumentError
        The suffix names no image format.
    MissingDependencyError
        The library of the format is not installed.
    """
    name = format_of_name(path).name
    if name in heif.NAMES:
        heif.codec(name)


def _check_options(depth: str, quality: int, metadata: str) -> None:
    if depth not in ("keep", "8", "16", "float"):
        raise ArgumentError(f"write_image: `depth` (={depth!r}) is unknown. Use keep, 8, 16 or float.")
    if not 1 <= quality <= 100:
        raise ArgumentError(f"write_image: `quality` (={quality}) is outside of 1 to 100. Use 95 for little loss.")
    if metadata not in ("keep", "strip"):
        raise ArgumentError(f"write_image: `metadata` (={metadata!r}) is unknown. Use keep or strip.")


def _fitted(picture: Picture, target: Format, depth: str) -> tuple[Picture, tuple[str, ...]]:
    """Reduce a picture to what a format can hold, with notes on what is lost."""
    notes: list[str] = []
    wanted = picture.depth if depth == "keep" else depth
    goal = wanted if wanted in target.depths else target.depths[-1]
    if goal != wanted:
        notes.append(
            f"{target.name} holds no {wanted if wanted == 'float' else wanted + '-bit'} values: saved as {goal}"
        )
    if goal != "float" and picture.depth == "float" and (picture.pixels.max() > 1 or picture.pixels.min() < 0):
        notes.append(f"values outside of [0, 1] clipped: {goal} bits hold no others")
    alpha = picture.alpha
    if alpha is not None and not target.alpha:
        notes.append(f"{target.name} holds no transparency: alpha dropped")
        alpha = None
    if goal == "16" and target.most_bits < 16 and picture.bits is None:
        notes.append(f"{target.name} holds no 16-bit values: saved as {target.most_bits}")
    if not target.metadata and (picture.icc or picture.exif or picture.xmp):
        notes.append(f"{target.name} holds no metadata: profile, EXIF and XMP dropped")
    there = {"IPTC": picture.iptc, "comments": picture.comments, "PNG texts": picture.text}
    lost = [name for name, value in there.items() if value and target.name not in _PLACES[name]]
    if lost:
        notes.append(f"{target.name} has no place for {' and '.join(lost)}: dropped")
    if target.name == "WEBP" and picture.gray and profile_space(picture.icc) == "gray":
        notes.append("WEBP holds no gray profile: converted to sRGB")
        picture = from_srgb(replace(picture, icc=None), to_srgb(picture))
    lossless = picture.lossless if picture.format == target.name else target.name != "WEBP"
    pixels = to_depth(picture.pixels, goal)
    return replace(
        picture, pixels=pixels, alpha=None if alpha is None else to_depth(alpha, goal), lossless=lossless
    ), tuple(notes)


def _write(
    file: BinaryIO, picture: Picture, target: Format, recipe: str | None, quality: int, *, strip: bool
) -> tuple[str, ...]:
    codec = CODECS[target.name]
    if recipe is not None and target.metadata and not codec.own_place:
        picture, recipe = replace(picture, xmp=xmp.with_recipe(picture.xmp, recipe)), None
    if picture.stream is not None and picture.format == target.name and quality == QUALITY:
        data = streams.reused(picture.stream, picture, strip=strip)
        if data is not None:
            file.write(data)
            return ()
    return codec.write(file, picture, recipe, quality)
