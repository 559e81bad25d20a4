"""Zarr stores of pictures that are too large for memory: one chunk is one tile, and a chunk that exists is done.

A store follows OME-Zarr 0.5: a group with the levels 0, 1, ... of a pyramid, each an array (c, h, w). Its chunks are files
that appear whole, so several processes can write different chunks at the same time. The description of the group is
written last: a store without it is not finished.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from glocal.errors import InputError, needed
from glocal.files.images.picture import Array

_STATE = "glocal.json"  # what the store is made from, as long as it is not finished


def zarr_library() -> Any:
    """Import zarr.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    return needed("zarr", "a picture in a .zarr store", "cluster")


class ZarrPixels:
    """A level of an OME-Zarr picture, or a plain Zarr array, as an array-like (h, w, c): `pixels[a:b, c:d]` is an array.

    It can be pickled: another process opens the store again.

    Parameters
    ----------
    path : path
        The store: a group with `multiscales` (versions 0.4 and 0.5), or an array (h, w) or (c, h, w).
    level : int
        0 for the picture itself.
    channels : slice
        Which channels to read.

    Raises
    ------
    InputError
        The store cannot be read, or it is a volume or a series of pictures.
    """

    def __init__(self, path: str | Path, *, level: int = 0, channels: slice = slice(None)) -> None:
        self.path, self.level, self.channels = Path(path), level, channels
        self._open()

    def _open(self) -> None:
        zarr = zarr_library()
        try:
            found: Any = zarr.open(self.path, mode="r")
            axes = ["t", "c", "z", "y", "x"]
            if isinstance(found, zarr.Group):
                scales = dict(found.attrs).get("ome", dict(found.attrs))["multiscales"][0]
                axes = [str(axis["name"]).lower() for axis in scales["axes"]]
                found = found[scales["datasets"][self.level]["path"]]
            elif found.ndim < 4:
                axes = ["c", "y", "x"]
            shape = dict(zip(reversed(axes), reversed(found.shape), strict=False))
        except Exception as error:  # a damaged store may raise anything at all
            raise InputError(
                f"read image ({self.path}): it is not a Zarr picture ({type(error).__name__}: {error}). "
                "Use OME-Zarr, or an array (h, w) or (c, h, w)."
            ) from error
        if not {"y", "x"} <= shape.keys() or any(n != 1 for axis, n in shape.items() if axis not in "cyx"):
            raise InputError(
                f"read image ({self.path}): it has the axes {shape}, not one picture. Store one picture by itself."
            )
        self._array, self._axes = found, axes[-found.ndim :]
        count = len(range(*self.channels.indices(shape.get("c", 1))))
        self.shape: tuple[int, int, int] = (shape["y"], shape["x"], count)
        self.dtype: np.dtype[Any] = np.dtype(found.dtype).newbyteorder("=")

    def __getitem__(self, place: Any) -> Array:
        place = place if isinstance(place, tuple) else (place,)
        rows, columns = (*place, slice(None))[:2]
        wanted = {"c": self.channels, "y": rows, "x": columns}
        window = np.asarray(self._array[tuple(wanted.get(axis, 0) for axis in self._axes)])
        return window[:, :, None] if window.ndim == 2 else np.ascontiguousarray(np.moveaxis(window, 0, 2))

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "level": self.level, "channels": self.channels}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def level_shapes(shape: tuple[int, int, int], tile: int) -> list[tuple[int, int, int]]:
    """Return the shapes (h, w, c) of all levels: each has half of the sides, until one tile holds it.

    >>> level_shapes((3000, 2000, 3), 1024)
    [(3000, 2000, 3), (1500, 1000, 3), (750, 500, 3)]
    """
    shapes = [shape]
    while max(shapes[-1][:2]) > tile:
        height, width, channels = shapes[-1]
        shapes.append((-(-height // 2), -(-width // 2), channels))
    return shapes


def create_store(
    path: Path, shape: tuple[int, int, int], dtype: np.dtype[Any], tile: int, state: dict[str, Any]
) -> None:
    """Create the arrays of all levels. `state` says what the store is made from; see `state_of`."""
    zarr = zarr_library()
    root = zarr.open_group(path, mode="w", zarr_format=3)
    (path / _STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")
    for number, (height, width, channels) in enumerate(level_shapes(shape, tile)):
        root.create_array(
            str(number),
            shape=(channels, height, width),
            chunks=(channels, tile, tile),
            dtype=dtype,
            dimension_names=["c", "y", "x"],
            compressors=zarr.codecs.ZstdCodec(level=1),  # 4 % larger files than level 3, in two thirds of the time
        )


def state_of(path: Path) -> dict[str, Any] | None:
    """Return the state of an unfinished store, or None."""
    try:
        found: dict[str, Any] = json.loads((path / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def finish_store(path: Path, shapes: list[tuple[int, int, int]], *, name: str, about: dict[str, Any]) -> None:
    """Write the description of the group. `about` is kept as the attribute "glocal"."""
    root = zarr_library().open_group(path, mode="r+")
    axes = [{"name": "c", "type": "channel"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    first = shapes[0]
    levels = [
        {
            "path": str(number),
            "coordinateTransformations": [{"type": "scale", "scale": [1.0, first[0] / height, first[1] / width]}],
        }
        for number, (height, width, _) in enumerate(shapes)
    ]
    scales = [{"name": name, "axes": axes, "datasets": levels, "type": "mean"}]
    root.attrs.update({"ome": {"version": "0.5", "multiscales": scales}, "glocal": about})
    (path / _STATE).unlink(missing_ok=True)


def open_level(path: str | Path, level: int) -> Any:
    """Open the array (c, h, w) of a level for writing whole chunks."""
    zarr = zarr_library()
    with zarr.config.set({"array.write_empty_chunks": True}):  # a chunk that exists is done, even if it is black
        return zarr.open_array(Path(path) / str(level), mode="r+")


def chunk_file(path: Path, level: int, row: int, column: int) -> Path:
    """Return the file of a chunk."""
    return path / str(level) / "c" / "0" / str(row) / str(column)


def chunk_of(file: Path) -> tuple[int, int, int]:
    """Return level, row and column of the chunk in a file.

    >>> chunk_of(chunk_file(Path("a.zarr"), 1, 20, 3))
    (1, 20, 3)
    """
    return int(file.parts[-5]), int(file.parts[-2]), int(file.parts[-1])
