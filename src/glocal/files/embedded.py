"""The recipe inside of any file that glocal wrote, and whether two such files hold the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glocal.errors import InputError
from glocal.files.audio.audio_file import open_audio, read_audio_recipe
from glocal.files.images.formats import sniff
from glocal.files.images.picture import with_alpha
from glocal.files.images.read import read_image, read_recipe


@dataclass(frozen=True)
class Comparison:
    """How two files differ: to the bit, and in the largest and mean difference of what they hold (full scale is 1)."""

    same_bytes: bool
    same_content: bool
    largest: float
    mean: float


def recipe_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the recipe embedded in an image or an audio file.

    Raises
    ------
    InputError
        The file cannot be read or carries no recipe.
    """
    if _is_image(path):
        return read_recipe(path)
    try:
        return read_audio_recipe(path)
    except InputError as error:
        if "it is not audio" not in str(error):
            raise
        message = f"read recipe ({path}): it is neither a picture nor a recording that can be read here. Use a file that glocal wrote."
        raise InputError(message) from error


def compare_files(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> Comparison:
    """Compare two images or two audio files.

    Returns
    -------
    Comparison
        Sizes or lengths that differ count as the largest difference there is. Cost: both files in memory.

    Raises
    ------
    InputError
        A file cannot be read.
    """
    if Path(one).read_bytes() == Path(other).read_bytes():
        return Comparison(True, True, 0.0, 0.0)
    a, b = _content(one), _content(other)
    if a.shape != b.shape:
        return Comparison(False, False, 1.0, 1.0)
    distance = np.abs(a - b)
    return Comparison(False, bool((distance == 0).all()), float(distance.max()), float(distance.mean()))


def _content(path: str | os.PathLike[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Pixels or samples as numbers whose full scale is 1."""
    if not _is_image(path):
        with open_audio(path) as sound:
            return sound.read().astype(np.float64)
    picture = read_image(path)
    array = with_alpha(picture.pixels, picture.alpha)
    top = np.iinfo(array.dtype).max if array.dtype.kind == "u" else 1
    return array.astype(np.float64) / top


def _is_image(path: str | os.PathLike[str]) -> bool:
    """Whether the first bytes are those of an image; the image reader reports a missing file."""
    try:
        with Path(path).open("rb") as file:
            sniff(file.read(32), path)
    except InputError:
        return False
    except OSError:
        return True
    return True
