"""The tasks of a picture in tiles: each computes one chunk of a store. The target of a task is the file of its chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from glocal.cluster.stores import chunk_file, chunk_of, open_level
from glocal.files.images.picture import Array, to_type
from glocal.jobs.job import Cost
from glocal.jobs.paths import Task
from glocal.jobs.tiles import Place, Source, Tiles

_MEAN_SECONDS = 2e-8  # for a pixel of a smaller level
_MEAN_BYTES = 100


def tile_tasks(source: Path, store: Path, shape: tuple[int, int, int], *, level: int, tile: int) -> list[Task]:
    """Return the tasks of all chunks of a level that do not exist yet, row by row."""
    return [
        Task(source, target)
        for row in range(-(-shape[0] // tile))
        for column in range(-(-shape[1] // tile))
        if not (target := chunk_file(store, level, row, column)).exists()
    ]


def compute_tile(task: Task, tell: Any, *, source: Source, tiles: Tiles, tile: int) -> dict[str, Any]:
    """Compute a chunk of the picture itself."""
    place = _place(task, source.pixels.shape, tile)
    values = tiles.compute(source.pixels, place, task.memory)
    if source.alpha is not None:
        top, bottom, left, right = place
        alpha = to_type(source.alpha[top:bottom, left:right], tiles.dtype)
        values = np.concatenate([values, alpha], axis=2)
    _write(task, place, values)
    return {}


def tile_cost(task: Task, *, tiles: Tiles, tile: int) -> Cost:
    """Estimate the cost of a chunk."""
    return tiles.cost(tile)


def reduce_tile(task: Task, tell: Any, *, shape: tuple[int, int, int], tile: int) -> dict[str, Any]:
    """Compute a chunk of a smaller level: the mean of up to 2 x 2 pixels of the level above it."""
    level = chunk_of(task.target)[0]
    top, bottom, left, right = _place(task, shape, tile)
    window = np.asarray(open_level(_store(task), level - 1)[:, 2 * top : 2 * bottom, 2 * left : 2 * right])
    _write(task, (top, bottom, left, right), np.moveaxis(halved(window), 0, 2))
    return {}


def reduce_cost(task: Task, *, tile: int) -> Cost:
    """Estimate the cost of a chunk of a smaller level."""
    pixels = tile * tile
    return Cost(
        f"{tile} x {tile}", memory=_MEAN_BYTES * pixels, seconds=pixels * _MEAN_SECONDS, smaller="a smaller --tile"
    )


def halved(planes: Array) -> Array:
    """Return planes (c, h, w) with half of the sides: means of 2 x 2 pixels, rounded; at an odd end, of what is there.

    >>> halved(np.array([[[1, 2, 9], [4, 6, 8]]], np.uint8)).tolist()
    [[[3, 9]]]
    """
    _, height, width = planes.shape
    wide = np.pad(planes, ((0, 0), (0, height % 2), (0, width % 2)), mode="edge")
    total: Any = np.uint32 if planes.dtype.kind == "u" else np.float64
    added: Any = sum(wide[:, i::2, j::2].astype(total) for i in (0, 1) for j in (0, 1))
    mean: Array = (added + 2) // 4 if planes.dtype.kind == "u" else added / 4
    return mean.astype(planes.dtype)


def _store(task: Task) -> Path:
    return task.target.parents[4]


def _place(task: Task, shape: tuple[int, ...], tile: int) -> Place:
    _, row, column = chunk_of(task.target)
    return row * tile, min(shape[0], (row + 1) * tile), column * tile, min(shape[1], (column + 1) * tile)


def _write(task: Task, place: Place, values: Array) -> None:
    top, bottom, left, right = place
    open_level(_store(task), chunk_of(task.target)[0])[:, top:bottom, left:right] = np.moveaxis(values, 2, 0)
