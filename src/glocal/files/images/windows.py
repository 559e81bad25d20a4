"""Read windows of TIFF files that are too large for memory: only the strips or tiles that a window touches are decoded."""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from glocal.files.images.picture import Array
from glocal.files.reading import CUT_SHORT, Unreadable, reading

_CACHE = 64 << 20  # bytes of decoded strips or tiles that are kept
_LARGEST = 1 << 30  # bytes of one strip or tile


class TiffPixels:
    """The pixels of one page of a TIFF file as an array-like (h, w, samples): `pixels[top:bottom, left:right]` is an array.

    It works for strips and tiles, classic and BigTIFF, and every compression that tifffile can decode. It can be pickled:
    another process opens the file again. Values are those that are stored; palettes and inverted gray are not converted.

    Parameters
    ----------
    path : path
    level : int
        0 for the picture itself, 1 and on for the smaller versions that a pyramid holds.
    channels : slice
        Which samples of a pixel to read, such as `slice(0, 3)` for the colours of RGB with alpha.

    Raises
    ------
    InputError
        The file cannot be read, or it is a volume.

    Examples
    --------
    >>> import tempfile, tifffile
    >>> path = Path(tempfile.mkdtemp()) / "a.tif"
    >>> tifffile.imwrite(path, np.arange(256 * 256, dtype=np.uint16).reshape(256, 256), tile=(64, 64))
    >>> pixels = TiffPixels(path)
    >>> pixels.shape, pixels[100:102, 7:9, 0].tolist()
    ((256, 256, 1), [[25607, 25608], [25863, 25864]])
    """

    def __init__(self, path: str | os.PathLike[str], *, level: int = 0, channels: slice = slice(None)) -> None:
        self.path, self.level, self.channels = Path(path), level, channels
        self._open()

    def _open(self) -> None:
        import tifffile

        self._lock = threading.Lock()
        self.decoded: OrderedDict[int, tuple[Array, tuple[int, ...]]] = OrderedDict()
        with reading("image", self.path):
            self._file = tifffile.TiffFile(self.path)
            levels = self._file.series[0].levels
            if not 0 <= self.level < len(levels):
                raise Unreadable(f"it has {len(levels)} level(s), and level {self.level} was asked for")
            page: Any = levels[self.level].keyframe
            if page.imagedepth != 1 or page.dtype is None:
                raise Unreadable("it is a TIFF volume or of an unknown sample type", "Save it again as a flat picture")
            if math.prod(page.chunks) * page.dtype.itemsize > _LARGEST:
                raise Unreadable("its strips or tiles are larger than 1 GiB", "Save it again with smaller tiles")
            self._page = page
            samples = len(range(*self.channels.indices(page.samplesperpixel)))
            self.shape: tuple[int, int, int] = (page.imagelength, page.imagewidth, samples)
            self.dtype: np.dtype[Any] = page.dtype.newbyteorder("=")

    def __getitem__(self, place: Any) -> Array:
        place = place if isinstance(place, tuple) else (place,)
        rows, columns = (part.indices(n) for part, n in zip((*place, slice(None))[:2], self.shape, strict=False))
        window = self._read(rows[0], max(rows[0], rows[1]), columns[0], max(columns[0], columns[1]))
        return window[:: rows[2], :: columns[2]][(slice(None), slice(None), *place[2:])]

    def _read(self, top: int, bottom: int, left: int, right: int) -> Array:
        page = self._page
        out = np.zeros((bottom - top, right - left, page.samplesperpixel), self.dtype)
        with reading("image", self.path), self._lock:
            for index in self._touched(top, bottom, left, right):
                found, (_, _, row, column, sample) = self._segment(index)
                part = found[0]
                h, w = min(bottom, row + part.shape[0]) - top, min(right, column + part.shape[1]) - left
                y, x = max(0, row - top), max(0, column - left)
                kept = part[max(0, top - row) :, max(0, left - column) :][: h - y, : w - x]
                out[y:h, x:w, sample : sample + part.shape[2]] = kept
        return out[:, :, self.channels]

    def _touched(self, top: int, bottom: int, left: int, right: int) -> list[int]:
        """Return the numbers of the strips or tiles that a window touches."""
        page = self._page
        height, width = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, page.imagewidth)
        down, across = -(-page.imagelength // height), -(-page.imagewidth // width)
        planes = page.samplesperpixel if page.planarconfig == 2 else 1
        return [
            (plane * down + i) * across + j
            for plane in range(planes)
            for i in range(top // height, -(-bottom // height))
            for j in range(left // width, -(-right // width))
        ]

    def _segment(self, index: int) -> tuple[Array, tuple[int, ...]]:
        if index in self.decoded:
            self.decoded.move_to_end(index)
            return self.decoded[index]
        page = self._page
        if index >= len(page.dataoffsets):
            raise Unreadable(CUT_SHORT)
        handle = self._file.filehandle
        handle.seek(page.dataoffsets[index])
        data = handle.read(page.databytecounts[index])
        if len(data) < page.databytecounts[index]:
            raise Unreadable(CUT_SHORT)
        found, position, shape = page.decode(data or None, index, jpegtables=page.jpegtables)
        array = np.zeros(shape, self.dtype) if found is None else np.asarray(found, self.dtype)
        # Plane, depth, row, column, sample; the first counts planes that are stored one after the other.
        _, depth, row, column, sample = position
        place = (0, depth, row, column, position[0] if page.planarconfig == 2 else sample)
        self.decoded[index] = array, place
        while len(self.decoded) > 1 and sum(one.nbytes for one, _ in self.decoded.values()) > _CACHE:
            self.decoded.popitem(last=False)
        return array, place

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "level": self.level, "channels": self.channels}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()
