"""Tiles: how a job computes any part of a picture that is too large for memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from glocal.files.images.image_like import LargeMask
from glocal.files.images.picture import Array, to_type
from glocal.jobs.inputs import Cost, Header

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
class Source:
    """A large picture: its pixels (h, w, 1 or 3), its alpha (h, w, 1), its colour profile, and a mask of its size."""

    path: Path
    pixels: Any
    alpha: Any = None
    icc: bytes | None = None
    mask: LargeMask | None = None


class TilePlan(Protocol):
    """What an app decided for a whole picture. It can be pickled."""

    @property
    def halo(self) -> int | None:
        """How many pixels around a part are read with it."""

    def most_pixels(self, memory: int) -> int:
        """Return the size of the largest part that fits into this memory."""

    def part(self, pixels: Pixels, place: Place) -> Array:
        """Compute one rectangle (h', w', c). The result does not depend on how the picture is cut."""


@dataclass(frozen=True)
class Tiles:
    """Everything that is decided once for the whole picture. It can be pickled.

    Attributes
    ----------
    plan
        Computes any part of the result.
    dtype
        The type of a value of the result.
    job_cost
        The method `cost` of the job.
    shown
        What `--json` shows.
    """

    plan: TilePlan
    dtype: np.dtype[Any]
    job_cost: Callable[[Header], Cost]
    shown: dict[str, Any] = field(default_factory=dict)

    def compute(self, pixels: Pixels, place: Place, memory: int) -> Array:
        """Compute one rectangle of the result (h', w', c), in bands of rows that fit into the memory."""
        top, bottom, left, right = place
        around = 2 * (self.plan.halo or 0)
        rows = max(64, (self.plan.most_pixels(memory) // (right - left + around) - around) // 16 * 16)
        parts = [
            to_type(self.plan.part(pixels, (first, min(bottom, first + rows), left, right)), self.dtype)
            for first in range(top, bottom, rows)
        ]
        return np.concatenate(parts)

    def cost(self, side: int) -> Cost:
        """Estimate the least memory and the time of a tile; the time of the start is not counted for each tile."""
        tile, start = (self.job_cost(Header((length, length))) for length in (side, 1))
        return Cost(
            tile.size,
            memory=tile.least or tile.memory,
            seconds=(tile.seconds or 0.0) - (start.seconds or 0.0),
            smaller="a smaller --tile",
        )
