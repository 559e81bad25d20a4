"""Open a large picture for reading by windows: TIFF (tiled, pyramid, BigTIFF, OME-TIFF) or Zarr."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from glocal.cluster.options import ZARR
from glocal.cluster.stores import ZarrPixels
from glocal.errors import InputError
from glocal.files.images.formats import SUFFIXES
from glocal.files.images.image_like import LargeMask
from glocal.files.images.windows import TiffPixels
from glocal.files.reading import reading
from glocal.jobs.tiles import Source

_COLORS = {1: 1, 2: 3, 6: 3}  # by photometric interpretation: gray, RGB, and YCbCr, which is decoded as RGB
_DTYPES = ("uint8", "uint16", "float32")


def is_tiff(path: Path) -> bool:
    """Whether the name is that of a TIFF file."""
    return SUFFIXES.get(path.suffix.lower()) == "TIFF"


def open_source(path: Path, mask: str | None = None) -> Source:
    """Open a picture and its mask. Nothing but their headers is read.

    Raises
    ------
    InputError
        It cannot be read, is not gray or RGB, or has values of a type that is not supported.
    """
    source = _open_zarr(path) if path.suffix.lower() == ZARR else _open_tiff(path)
    if source.pixels.dtype.name not in _DTYPES:
        raise InputError(
            f"read image ({path}): its values are {source.pixels.dtype}. Convert it to one of {', '.join(_DTYPES)}."
        )
    return source if mask is None else replace(source, mask=_open_mask(Path(mask), source))


def _open_mask(path: Path, source: Source) -> LargeMask:
    if path.suffix.lower() != ZARR and not is_tiff(path):
        raise InputError(
            f"read mask ({path}): the mask of a picture in tiles is read by windows. Convert it to .tif or {ZARR}."
        )
    mask = open_source(path)
    size, wanted = mask.pixels.shape[:2], source.pixels.shape[:2]
    if size != wanted or mask.pixels.dtype.kind == "f":
        raise InputError(
            f"read mask ({path}): it is {size[1]} x {size[0]} of {mask.pixels.dtype}, and the picture {wanted[1]} x {wanted[0]}. "
            "In tiles it must have the size of the picture, and 8 or 16 bits. Scale it first."
        )
    return LargeMask(mask.pixels, mask.icc)


def _open_zarr(path: Path) -> Source:
    if not path.exists():
        raise InputError(f"read image ({path}): there is no such folder. Check the name.")
    count = ZarrPixels(path).shape[2]
    if count > 4:
        raise InputError(
            f"read image ({path}): it has {count} channels. Store 1 (gray) or 3 (RGB) of them by themselves."
        )
    colors = 1 if count < 3 else 3
    alpha = ZarrPixels(path, channels=slice(colors, colors + 1)) if count in (2, 4) else None
    return Source(path, ZarrPixels(path, channels=slice(0, colors)), alpha)


def _open_tiff(path: Path) -> Source:
    import tifffile

    with reading("image", path), tifffile.TiffFile(path) as file:
        series = file.series[0]
        page: Any = series.levels[0].keyframe
        pages, photometric, orientation = len(series.levels[0].pages), int(page.photometric), page.tags.get(274)
        count, extra, icc = page.samplesperpixel, [int(one) for one in page.extrasamples], page.iccprofile
    if pages > 1:
        raise InputError(f"read image ({path}): it has {pages} pages or channels. Save one picture by itself.")
    if photometric not in _COLORS or (orientation is not None and orientation.value != 1):
        raise InputError(
            f"read image ({path}): only upright gray and RGB pictures can be cut into tiles. Convert it first."
        )
    colors = _COLORS[photometric]
    place = next((colors + i for i, meaning in enumerate(extra) if meaning == 2), None)
    if any(meaning == 1 for meaning in extra) or count - colors > 1 or (count > colors and place is None):
        raise InputError(
            f"read image ({path}): it has {count - colors} more channel(s) that are not plain alpha. Remove them first."
        )
    alpha = TiffPixels(path, channels=slice(place, place + 1)) if place is not None else None
    return Source(path, TiffPixels(path, channels=slice(0, colors)), alpha, icc)
