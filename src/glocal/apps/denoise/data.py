"""Photos for training and testing: centre squares, gray, of one size, with the paper's split.

Any folder of photos can be used, for example the INRIA Holidays folder (its `jpg` folder, or the one above). A `.csv` file
with the columns `file` and `split` lists photos and their parts. A `.npz` file contains prepared photos.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from glocal.color_space import luma
from glocal.errors import ArgumentError, GlocalError, InputError, OutputError

if TYPE_CHECKING:
    from glocal.training.ranks import Ranks

Array = npt.NDArray[Any]
PARTS = ("train", "validation", "test")
SIDE = 128
_SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".avif", ".heic"}


@dataclass(frozen=True)
class Photos:
    """Gray pictures of one size and the part each belongs to.

    Attributes
    ----------
    images
        (count, side, side) uint8.
    parts
        (count,) of "train", "validation", "test" or "" (unused).
    skipped
        `(file, why)` for each file that could not be read.
    """

    images: Array
    parts: Array
    names: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    def part(self, name: str) -> Array:
        """Return the pictures of one part, (count, side, side) uint8."""
        return np.asarray(self.images[self.parts == name])

    def counts(self) -> dict[str, int]:
        """Return the number of pictures of each part."""
        return {part: int((self.parts == part).sum()) for part in PARTS}

    def save(self, path: Path) -> None:
        """Write the prepared photos as `.npz`."""
        try:
            with path.open("wb") as file:
                np.savez_compressed(file, images=self.images, parts=self.parts, names=np.array(self.names))
        except OSError as error:
            message = f"Photos.save: cannot write {str(path)!r}: {error}. Choose a folder that exists and is writable."
            raise OutputError(message) from error


def load_photos(
    source: Path,
    *,
    side: int = SIDE,
    test: int = 150,
    validation: int = 15,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    ranks: Ranks | None = None,
) -> Photos:
    """Read, crop, convert to gray and resize all photos of a folder (with subfolders), a `.csv` list or a `.npz` file.

    From a folder, `test` photos are drawn at random, then `validation` photos from the rest. The others are for training.
    The same names and seed give the same split. Gray is the luma of the full-size photo. Resizing (Lanczos) comes last.
    Several processes (`ranks`) read each file once: each reads its share and sends the small squares to the others.

    Returns
    -------
    Photos
        Files that cannot be read are listed in `skipped`. Cost: that of reading the files.

    Raises
    ------
    InputError
        If there is no photo, or fewer than `test + validation + 1`.
    """
    if source.suffix == ".npz":
        return _prepared(source)
    listed = _from_csv(source) if source.suffix == ".csv" else [(path, "") for path in photo_files(source)]
    mine = listed if ranks is None else listed[ranks.rank :: ranks.count]
    squares: list[Array | str] = []
    for number, (path, _) in enumerate(mine):
        try:
            squares.append(gray_square(path, side))
        except GlocalError as error:
            squares.append(str(error))
        if progress is not None:
            progress(number + 1, len(mine))
    images, names, parts, skipped = [], [], [], []
    for (path, part), square in zip(listed, squares if ranks is None else ranks.gathered(squares), strict=True):
        if isinstance(square, str):
            skipped.append((str(path), square))
        else:
            images.append(square)
            names.append(path.name)
            parts.append(part)
    if not images:
        message = (
            f"load_photos: {str(source)!r} holds no photo that can be read ({len(skipped)} file(s) skipped). "
            "Give a folder of JPEG, PNG or TIFF files."
        )
        raise InputError(message)
    drawn = source.suffix != ".csv"
    split = split_parts(len(images), test=test, validation=validation, seed=seed) if drawn else np.array(parts)
    return Photos(np.stack(images), split, tuple(names), tuple(skipped))


def photo_files(folder: Path) -> list[Path]:
    """Return all photo files of a folder and its subfolders, sorted by path. Raises InputError if there is none."""
    if not folder.is_dir():
        message = f"load_photos: {str(folder)!r} is not a folder, a .csv list or a prepared .npz file. Check the path."
        raise InputError(message)
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    if not found:
        message = f"load_photos: the folder {str(folder)!r} holds no photo. Give a folder of JPEG, PNG or TIFF files."
        raise InputError(message)
    return found


def split_parts(count: int, *, test: int, validation: int, seed: int) -> Array:
    """Return the paper's split: `test` pictures at random, then `validation` of the rest, the others for training.

    >>> split_parts(6, test=2, validation=1, seed=0).tolist().count("train")
    3
    """
    if min(test, validation) < 1 or count < test + validation + 1:
        message = (
            f"load_photos: `test` (={test}) and `validation` (={validation}) must be positive and leave photos for training, "
            f"but there are {count}. Use more photos or smaller parts."
        )
        raise InputError(message)
    order = np.random.default_rng(seed).permutation(count)
    parts = np.full(count, "train", dtype="<U10")
    parts[order[:test]] = "test"
    parts[order[test : test + validation]] = "validation"
    return parts


def gray_square(path: Path, side: int) -> Array:
    """Return the centre square of a photo as luma, resized to (side, side) uint8."""
    from PIL import Image

    luma = read_luma(path)
    height, width = luma.shape
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    square = Image.fromarray(luma[top : top + edge, left : left + edge])
    small = np.asarray(square.resize((side, side), Image.Resampling.LANCZOS))
    return np.clip(np.rint(small), 0, 255).astype(np.uint8)


def corner_crops(folder: Path, *, side: int = SIDE) -> Array:
    """Return the four corners of every picture of a folder at its own resolution, (4 count, side, side) uint8.

    Photos reduced to 128 pixels have more fine detail than photos at full size. The wide network trains on both.
    """
    crops = []
    for path in photo_files(folder):
        luma = read_luma(path)
        if min(luma.shape) < side:
            message = f"corner_crops: {str(path)!r} {luma.shape} is smaller than {side} x {side}. Use larger pictures."
            raise InputError(message)
        ends = (slice(None, side), slice(-side, None))
        crops += [np.clip(np.rint(luma[rows, columns]), 0, 255).astype(np.uint8) for rows in ends for columns in ends]
    return np.stack(crops)


def read_luma(path: Path) -> Array:
    """Return a photo as luma from 0 to 255, (h, w) float32, at full size."""
    from glocal.files.images.read import read_image

    pixels = read_image(path).pixels
    top = {1: 255.0, 2: 65535.0}.get(pixels.dtype.itemsize, 1.0)
    values = pixels.astype(np.float32) * np.float32(255.0 / top)
    return values[:, :, 0] if values.shape[2] == 1 else luma(values)


def with_crops(photos: Photos, crops: Sequence[Array]) -> Photos:
    """Add pictures of the same size to the training part."""
    wrong = [crop.shape[1:] for crop in crops if crop.shape[1:] != photos.images.shape[1:]]
    if wrong:
        message = (
            f"with_crops: the crops {wrong[0]} and the photos {photos.images.shape[1:]} differ in size. "
            "Cut and resize both to one side."
        )
        raise ArgumentError(message)
    extra = np.concatenate(crops)
    parts = np.concatenate([photos.parts, np.full(len(extra), "train", dtype="<U10")])
    names = (*photos.names, *(f"crop {number}" for number in range(len(extra))))
    return Photos(np.concatenate([photos.images, extra]), parts, names, photos.skipped)


def _from_csv(path: Path) -> list[tuple[Path, str]]:
    """Return the photos a list names. `file` is relative to the list's folder or to the one above it."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        message = (
            f"load_photos: cannot read the list {str(path)!r}: {error}. Give a .csv file with columns file and split."
        )
        raise InputError(message) from error
    if not rows or not {"file", "split"} <= set(rows[0]):
        message = f"load_photos: {str(path)!r} has no columns `file` and `split`. Add them, with one row per photo."
        raise InputError(message)
    for number, row in enumerate(rows, 1):
        if not row["file"] or row["split"] is None:
            message = f"load_photos: row {number} of {str(path)!r} lacks its file or its split. Complete the row."
            raise InputError(message)
    try:
        home = next((f for f in (path.parent, path.parent.parent) if (f / rows[0]["file"]).exists()), path.parent)
    except OSError as error:  # a name that the system cannot look up
        message = f"load_photos: {str(path)!r} names a file that cannot be used: {error.strerror}. Check the list."
        raise InputError(message) from error
    words = {"val": "validation", "unused": ""}
    return [(home / row["file"], words.get(row["split"], row["split"])) for row in rows]


def _prepared(path: Path) -> Photos:
    try:
        with np.load(path, allow_pickle=False) as file:
            return Photos(file["images"], file["parts"], tuple(file["names"].tolist()))
    except Exception as error:  # of a damaged archive, zipfile, zlib and NumPy may raise anything
        message = (
            f"load_photos: {str(path)!r} is not a file of prepared photos ({error}). Prepare it again from the folder."
        )
        raise InputError(message) from error
