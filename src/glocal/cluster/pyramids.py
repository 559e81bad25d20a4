"""Write a finished store as a TIFF file: tiles, all levels of the pyramid, BigTIFF, in the memory of one row of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glocal.atomic import write_whole
from glocal.cluster.stores import ZarrPixels
from glocal.files.images.picture import Array

_TILE = 512
_PLAIN = 1 << 31  # bytes; larger files are BigTIFF


def write_pyramid(
    path: Path, store: Path, levels: int, *, icc: bytes | None, xmp: bytes | None, overwrite: bool
) -> None:
    """Write the levels of a store into one TIFF file, which appears whole.

    A name that ends with .ome.tif gets the description of OME-TIFF. The smaller levels are sub-files, as viewers expect.

    Raises
    ------
    OutputError
        The file exists or cannot be written.
    """
    import tifffile

    first = ZarrPixels(store)
    height, width, channels = first.shape
    big = height * width * channels * first.dtype.itemsize > _PLAIN
    ome = path.name.lower().endswith((".ome.tif", ".ome.tiff"))
    settings: dict[str, Any] = {
        "dtype": first.dtype,
        "tile": (_TILE, _TILE),
        "photometric": "rgb" if channels >= 3 else "minisblack",
        "planarconfig": "contig" if channels > 1 else None,
        "extrasamples": ["unassalpha"] if channels in (2, 4) else None,
        "compression": "zlib",
        "predictor": first.dtype.kind == "u",
        "iccprofile": icc,
    }
    with (
        write_whole(path, overwrite=overwrite) as temporary,
        tifffile.TiffWriter(temporary, bigtiff=big, ome=ome) as file,
    ):
        for level in range(levels):
            pixels = ZarrPixels(store, level=level)
            shape = pixels.shape if channels > 1 else pixels.shape[:2]
            first_page = level == 0
            file.write(
                _tiles(pixels),
                shape=shape,
                subifds=levels - 1 if first_page else None,
                subfiletype=0 if first_page else 1,
                metadata={"axes": "YXS" if channels > 1 else "YX"} if ome and first_page else None,
                extratags=[(700, 1, len(xmp), xmp, True)] if xmp and first_page else [],
                **settings,
            )


def _tiles(pixels: ZarrPixels) -> Iterator[Array]:
    """Yield the tiles (512, 512, c) of a level, row by row; the last ones are filled with zeros."""
    height, width, channels = pixels.shape
    for top in range(0, height, _TILE):
        band = pixels[top : top + _TILE, 0:width]
        for left in range(0, width, _TILE):
            part = band[:, left : left + _TILE]
            whole = np.zeros((_TILE, _TILE, channels), pixels.dtype)
            whole[: part.shape[0], : part.shape[1]] = part
            yield whole if channels > 1 else whole[:, :, 0]
