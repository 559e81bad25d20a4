"""Images in and out: what goes in comes out. Depth, alpha, profile, EXIF and XMP survive a round trip."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from glocal.atomic import check_free, write_whole
from glocal.errors import ArgumentError, GlocalError, InputError
from glocal.files import provenance as recipes
from glocal.files.images import heif, pillow_formats, png, streams, tiff
from glocal.files.images.formats import FORMATS, Format, Unreadable, format_of_name, sniff
from glocal.files.images.picture import Array, Picture, to_depth
from glocal.files.metadata import exif, xmp
from glocal.files.metadata.profiles import from_srgb, profile_space, to_srgb

MAX_PIXELS = 256_000_000
QUALITY = 95
_SLACK = 64 << 20  # bytes that a file may have beyond its pixels


def read_image(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read an image file with everything that belongs to it.

    Args:
        path: JPEG, PNG, TIFF, WebP, BMP, AVIF or HEIC; the content decides, not the name.
        max_pixels: Files that declare more pixels are refused before anything is decoded.

    Returns:
        The picture in its own depth, turned upright. Cost: one copy of the decoded pixels and of the file.

    Raises:
        InputError: The file is missing, not an image, cut short, damaged, or larger than `max_pixels`.
        MissingDependencyError: HEIC without pillow-heif.
    """
    path = Path(path)
    with _reading(path):
        data, name, (height, width) = _open(path, max_pixels)
        if name == "PNG":
            picture = png.decode(data)
        elif name == "TIFF":
            picture = tiff.decode(data)
        else:
            picture = pillow_formats.decode(data, name)
        if sorted(picture.size) != sorted((height, width)):
            raise Unreadable("its header and its content disagree about the size")
        upright = _upright(picture)
        if not picture.lossless and not picture.notes:
            turn = exif.orientation(picture.exif)
            upright = replace(upright, stream=streams.remembered(data, upright, turn=turn))
        return replace(upright, path=path, kind="file")


def image_size(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Height and width of an image file from its header alone, as `read_image` would return them before turning it."""
    path = Path(path)
    with _reading(path):
        return _open(path, max_pixels)[2]


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

    Args:
        path: The suffix decides the format.
        picture: What to write; `glocal.files.metadata.profiles.from_srgb` makes it from computed colours.
        depth: "keep", "8", "16" or "float". A depth that the format cannot hold becomes the nearest one it can.
        quality: 1 to 100 for JPEG, WebP, AVIF and HEIC; 100 is without loss for the last two. A file whose pixels are
            still those that were read is not coded again at the default quality: they stay the same to the bit.
        metadata: "keep", or "strip" to leave out EXIF, XMP, texts and the recipe. The colour profile always stays.
        recipe: How the picture was made (see `glocal.files.provenance`), embedded where the format has a place for it.
        overwrite: Replace an existing file.

    Returns:
        Notes on what the format could not hold, empty if everything was kept.

    Raises:
        ArgumentError: An unknown suffix, depth, or quality.
        OutputError: The output exists or cannot be written.
    """
    target = format_of_name(path)
    _check_options(depth, quality, metadata)
    check_free(path, overwrite=overwrite)
    picture, notes = _fitted(picture, target, depth)
    text = recipes.to_json(recipe) if recipe is not None else None
    if metadata == "strip":
        picture, text = replace(picture, exif=None, xmp=None, text={}), None
    if picture.exif:
        picture = replace(picture, exif=exif.settle(picture.exif))
    try:
        data, more = _encode(picture, target, text, quality)
    except GlocalError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"write image ({path}): {target.name} cannot hold this picture ({error}). Choose TIFF or PNG."
        ) from error
    with write_whole(path, overwrite=overwrite) as beside:
        beside.write_bytes(data)
    return notes + more


def read_recipe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The recipe that `write_image` embedded in a file.

    Raises:
        InputError: The file cannot be read, or carries no recipe.
    """
    path = Path(path)
    with _reading(path):
        data, name, _ = _open(path, MAX_PIXELS)
        if name == "PNG":
            text = png.recipe_in(data)
        elif name == "TIFF":
            text = tiff.recipe_in(data)
        else:
            packet = pillow_formats.open_header(data, name).info.get("xmp")
            text = xmp.recipe_in(packet.encode() if isinstance(packet, str) else packet)
        if text is None:
            raise Unreadable("it carries no recipe", "Use a file that glocal wrote with its metadata kept")
        return recipes.from_json(text, str(path))


def _open(path: Path, max_pixels: int) -> tuple[bytes, str, tuple[int, int]]:
    """The bytes of a file, its format and its declared size, after checking the limits."""
    if path.is_dir():
        raise Unreadable("it is a folder", "Name a file, or use a command that takes folders")
    with path.open("rb") as file:
        name = sniff(file.read(32), path)
        stored = os.fstat(file.fileno()).st_size
        if stored > 16 * max_pixels + _SLACK:
            raise Unreadable(f"the file has {stored:,} bytes, more than {max_pixels:,} pixels need", _smaller())
        file.seek(0)
        data = file.read()
    if name == "PNG":
        height, width = png.header(data)[:2]
    elif name == "TIFF":
        height, width = tiff.size_of(data)
    else:
        width, height = pillow_formats.open_header(data, name).size
    if width * height > max_pixels:
        raise Unreadable(f"it declares {width} x {height} pixels, more than the limit of {max_pixels:,}", _smaller())
    if not width or not height:
        raise Unreadable("it has no pixels")
    return data, name, (height, width)


def _smaller() -> str:
    return "Use a smaller picture or raise the limit"


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """The one place where errors of the system and of the decoders become `InputError`s."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except GlocalError:
        raise
    except Unreadable as error:
        raise InputError(f"read image ({path}): {error.why}. {error.remedy}.") from error
    except FileNotFoundError as error:
        raise InputError(f"read image ({path}): there is no such file. Check the name.") from error
    except PermissionError as error:
        raise InputError(f"read image ({path}): it may not be read. Change its permissions.") from error
    except MemoryError as error:
        raise InputError(f"read image ({path}): it needs more memory than there is. {_smaller()}.") from error
    except Exception as error:  # a decoder may raise anything at all for a damaged file
        raise InputError(
            f"read image ({path}): the file is damaged or cut short ({_short(error)}). "
            "Copy it again from its source or open it in an editor."
        ) from error


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 100 else text[:97] + "..."


def _upright(picture: Picture) -> Picture:
    """Apply the orientation once, and say in the metadata that it was applied."""
    turn = exif.orientation(picture.exif)
    turned = picture
    if turn != 1:
        alpha = picture.alpha
        turned = replace(
            picture, pixels=_turned(picture.pixels, turn), alpha=None if alpha is None else _turned(alpha, turn)
        )
        if picture.dpi and turn > 4:
            turned = replace(turned, dpi=(picture.dpi[1], picture.dpi[0]))
    return replace(
        turned,
        exif=exif.settle(picture.exif) if picture.exif else None,
        xmp=xmp.without_recipe(xmp.settle(picture.xmp)) if picture.xmp else None,
    )


def _turned(array: Array, turn: int) -> Array:
    """Undo one of the eight orientations of EXIF."""
    if turn > 4:
        array = np.swapaxes(array, 0, 1)
    if turn in (3, 4, 7, 8):
        array = array[::-1]
    if turn in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)


def _check_options(depth: str, quality: int, metadata: str) -> None:
    if depth not in ("keep", "8", "16", "float"):
        raise ArgumentError(f"write_image: `depth` (={depth!r}) is unknown. Use keep, 8, 16 or float.")
    if not 1 <= quality <= 100:
        raise ArgumentError(f"write_image: `quality` (={quality}) lies outside of 1 to 100. Use 95 for little loss.")
    if metadata not in ("keep", "strip"):
        raise ArgumentError(f"write_image: `metadata` (={metadata!r}) is unknown. Use keep or strip.")


def _fitted(picture: Picture, target: Format, depth: str) -> tuple[Picture, tuple[str, ...]]:
    """The picture reduced to what a format can hold, with notes on what had to go."""
    notes: list[str] = []
    wanted = picture.depth if depth == "keep" else depth
    goal = wanted if wanted in target.depths else target.depths[-1]
    if goal != wanted:
        notes.append(
            f"{target.name} holds no {wanted if wanted == 'float' else wanted + '-bit'} values: saved as {goal}"
        )
    alpha = picture.alpha
    if alpha is not None and not target.alpha:
        notes.append(f"{target.name} holds no transparency: alpha dropped")
        alpha = None
    if goal == "16" and target.name in heif.NAMES and picture.bits is None:
        notes.append(f"{target.name} holds no 16-bit values: saved as {heif.MOST_BITS[target.name]}")
    if not target.metadata and (picture.icc or picture.exif or picture.xmp):
        notes.append(f"{target.name} holds no metadata: profile, EXIF and XMP dropped")
    if target.name == "WEBP" and picture.gray and profile_space(picture.icc) == "gray":
        notes.append("WEBP holds no gray profile: converted to sRGB")
        picture = from_srgb(replace(picture, icc=None), to_srgb(picture))
    lossless = picture.lossless if picture.format == target.name else target.name != "WEBP"
    pixels = to_depth(picture.pixels, goal)
    return replace(
        picture, pixels=pixels, alpha=None if alpha is None else to_depth(alpha, goal), lossless=lossless
    ), tuple(notes)


def _encode(picture: Picture, target: Format, recipe: str | None, quality: int) -> tuple[bytes, tuple[str, ...]]:
    if target.name == "PNG":
        return png.encode(picture, recipe=recipe), ()
    if target.name == "TIFF":
        return tiff.encode(picture, recipe=recipe), ()
    if recipe is not None and target.metadata:
        picture = replace(picture, xmp=xmp.with_recipe(picture.xmp, recipe))
    if picture.stream is not None and picture.format == target.name and quality == QUALITY:
        data = streams.reused(picture.stream, picture)
        if data is not None:
            return data, ()
    if target.name in heif.NAMES:
        return heif.encode(picture, target.name, quality=quality), ()
    return pillow_formats.encode(picture, target.name, quality=quality)


SUPPORTED = tuple(FORMATS)
