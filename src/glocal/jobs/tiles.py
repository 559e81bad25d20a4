"""Tiles: how a job computes any part of a picture that is too large for memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from glocal.files.images.picture import Array

Place = tuple[int, int, int, int]
"""A rectangle of pixels: top, bottom, left, right; the last row and column are not part of it."""


class Pixels(Protocol):
    """A picture (h, w, c) that is read by windows: an array, or a file that gives `pixels[top:bottom, left:right]`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (h, w, c)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of a value."""

    def __getitem__(self, place: Any) -> Array: ...


@dataclass(frozen=True)
class Tiles:
    """Everything that is decided once for the whole picture. It can be pickled.

    Attributes
    ----------
    compute
        `compute(pixels, place, memory)` returns one rectangle of the result (h', w', c), in `dtype`. The result does not
        depend on how the picture is cut.
    dtype
        The type of a value of the result.
    memory
        Bytes that a tile of so many pixels needs at least: `memory(pixels)`.
    pixel_seconds
        Estimated seconds for a pixel.
    told
        What `--json` tells.
    """

    compute: Callable[[Pixels, Place, int], Array]
    dtype: np.dtype[Any]
    memory: Callable[[int], int]
    pixel_seconds: float
    told: dict[str, Any] = field(default_factory=dict)
