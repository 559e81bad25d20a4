"""What a page is made of: sections of texts, tables and figures. Plain data; `glocal.paper.page` writes them as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.errors import ArgumentError
from glocal.paper.source import Number, Source

Array = npt.NDArray[np.uint8]
Part = str | Number
"""A piece of running text or a table cell."""


@dataclass(frozen=True, eq=False)
class Plate:
    """One picture of a figure.

    Attributes
    ----------
    name
        The stem of its PNG file; small letters, digits and hyphens.
    pixels
        uint8, (h, w) or (h, w, 3).
    alt
        What it shows, for those who cannot see it.
    caption
        Printed below it.
    dark
        The same picture for a dark page (plots only).
    crisp
        Keep pixels square and lossless: diagrams, filters, plots. Photos are embedded as lossy WebP.
    sound
        A WAV file to listen to below it.
    """

    name: str
    pixels: Array
    alt: str
    caption: tuple[Part, ...] = ()
    dark: Array | None = None
    crisp: bool = False
    sound: bytes | None = None

    def __post_init__(self) -> None:
        shape, dtype = self.pixels.shape, self.pixels.dtype
        if dtype != np.uint8 or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or 0 in shape:
            message = (
                f"Plate: `pixels` of {self.name!r} must be uint8 (h, w) or (h, w, 3), got {dtype} {shape}. Convert it."
            )
            raise ArgumentError(message)
        if not self.name or not set(self.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-"):
            message = f"Plate: `name` (={self.name!r}) becomes a file name. Use small letters, digits and hyphens."
            raise ArgumentError(message)


@dataclass(frozen=True, eq=False)
class Figure:
    """Pictures in `columns` columns, row by row, with a caption.

    `None` in place of a plate leaves its cell empty. `source` says which run made the pictures.
    """

    title: str
    plates: Sequence[Plate | None]
    columns: int
    caption: tuple[Part, ...]
    source: Source
    wide: bool = True
    """Take the whole width; two narrow figures in a row share it."""

    @property
    def reflows(self) -> bool:
        """Whether a narrow screen shows it in two columns. A grid with an empty corner has rows and columns to keep."""
        return self.columns > 2 and None not in self.plates


@dataclass(frozen=True)
class Table:
    """A table: a heading for each column, and rows of cells."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Part]]
    caption: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    parts: tuple[Part, ...]


Block = Figure | Table | Text


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the page. `name` is its anchor and the name of its JSON file; `data` is what that file holds."""

    name: str
    title: str
    blocks: Sequence[Block]
    data: Mapping[str, Any] = field(default_factory=dict)


def numbers_of(block: Block) -> Iterator[Number]:
    """Every number that a block prints, in order."""
    for part in parts_of(block):
        if isinstance(part, Number):
            yield part


def parts_of(block: Block) -> Iterator[Part]:
    """Every piece of text and number of a block, in order."""
    if isinstance(block, Text):
        yield from block.parts
    elif isinstance(block, Table):
        for row in block.rows:
            yield from row
        yield from block.caption
    else:
        for plate in block.plates:
            yield from plate.caption if plate is not None else ()
        yield from block.caption


def sources_of(block: Block) -> list[Source]:
    """Return the sources of a block, each once, in order of appearance."""
    found = [number.source for number in numbers_of(block)]
    if isinstance(block, Figure):
        found.insert(0, block.source)
    return list(dict.fromkeys(found))
