"""Pictures to take a style from: the shipped painting, two that are drawn here, or those of the user's folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glocal.paper import squares
from glocal.paper.blocks import Array

_CANVAS = 384
_GLASS = ((24, 60, 108), (206, 92, 46), (236, 190, 84), (232, 226, 206), (40, 122, 118), (142, 32, 44))
_INK = ((18, 36, 84), (52, 104, 168), (150, 196, 216), (240, 232, 210), (222, 150, 60))


@dataclass(frozen=True)
class Painting:
    """A picture to take a style from, and how to get it at a size: `pixels(size)` is uint8 (size, size, 3)."""

    name: str
    words: str
    pixels: Callable[[int], Array]


def shipped(seed: int) -> list[Painting]:
    """Return the shipped painting, and two that this module draws, since only one may be shipped."""
    return [
        Painting("van-gogh", "van Gogh, Village Street in Auvers", lambda size: squares.photo(squares.PAINTING, size)),
        Painting("mosaic", "a mosaic, drawn by this program", lambda size: squares.resized(mosaic(seed), size)),
        Painting("strokes", "strokes, drawn by this program", lambda size: squares.resized(strokes(seed), size)),
    ]


def in_folder(folder: Path, count: int) -> list[Painting]:
    """At most `count` pictures of a folder, spread evenly over its sorted names."""
    files = picture_files(folder)
    count = min(count, len(files))
    chosen = [round(i * (len(files) - 1) / max(1, count - 1)) for i in range(count)]
    return [_from_file(files[i]) for i in chosen]


def picture_files(folder: Path) -> list[Path]:
    """Return the JPEG and PNG files of a folder, sorted."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))


def plain_name(path: Path) -> str:
    """Return a file's stem as the name of a plate: small letters, digits and hyphens.

    Examples
    --------
    >>> plain_name(Path("a/Starry_Night (1).jpg"))
    'starry-night--1-'
    """
    return "".join(c if c in "abcdefghijklmnopqrstuvwxyz0123456789" else "-" for c in path.stem.lower())


def _from_file(path: Path) -> Painting:
    return Painting(plain_name(path), path.stem.replace("_", " "), lambda size: squares.square(path, size))


def mosaic(seed: int, *, cell: int = 24) -> Array:
    """Stones with dark joints: the cells around jittered points, in six colours. uint8 (384, 384, 3)."""
    rng = np.random.default_rng(seed)
    side = _CANVAS // cell + 2  # one more cell on each border
    points = (np.indices((side, side)).transpose(1, 2, 0) - 1 + rng.random((side, side, 2))) * cell
    colors = np.array(_GLASS)[rng.choice(6, (side, side), p=(0.25, 0.2, 0.15, 0.15, 0.15, 0.1))]
    colors = colors + rng.normal(0, 12, (side, side, 1))
    y, x = np.mgrid[:_CANVAS, :_CANVAS]
    distances, owners = [], []
    for dy in (0, 1, 2):
        for dx in (0, 1, 2):
            near = (y // cell + dy, x // cell + dx)
            distances.append(np.hypot(points[near][..., 0] - y, points[near][..., 1] - x))
            owners.append(colors[near])
    order = np.argsort(distances, axis=0)
    ranked = np.take_along_axis(np.array(distances), order[:2], axis=0)
    stone = np.take_along_axis(np.array(owners), order[:1, ..., None], axis=0)[0]
    joint = np.clip((ranked[1] - ranked[0]) / 2.5, 0, 1)[..., None]
    return np.clip(stone * joint + 30 * (1 - joint), 0, 255).astype(np.uint8)


def strokes(seed: int, *, count: int = 5000) -> Array:
    """Short strokes of a flat brush that follow a swirling field, in five colours. uint8 (384, 384, 3)."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    sheet = Image.new("RGB", (_CANVAS, _CANVAS), _INK[1])
    pen = ImageDraw.Draw(sheet)
    places = rng.uniform(-10, _CANVAS + 10, (count, 2))
    for y, x in places:
        height = np.sin(x / 61) * np.cos(y / 47) + 0.6 * np.sin((x + 2 * y) / 83)
        ink = _INK[int(np.clip((height + 1.6) / 3.2 * 5 + rng.normal(0, 0.7), 0, 4))]
        color = tuple(int(np.clip(c + rng.normal(0, 10), 0, 255)) for c in ink)
        path = [(x, y)]
        for _ in range(6):
            angle = 2.2 * np.sin(path[-1][0] / 71) + 1.9 * np.cos(path[-1][1] / 59)
            path.append((path[-1][0] + 3 * np.cos(angle), path[-1][1] + 3 * np.sin(angle)))
        pen.line(path, fill=color, width=int(rng.integers(2, 5)), joint="curve")
    return np.asarray(sheet)
