"""Write the page and its files: `index.html`, `json/SECTION.json`, `png/PLATE.png`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.atomic import make_folder, output_error, write_whole
from glocal.errors import ArgumentError, OutputError
from glocal.paper.blocks import Array, Block, Figure, Plate, Section, numbers_of
from glocal.paper.page import render
from glocal.paper.source import as_record

PAGE = "index.html"


@dataclass(frozen=True)
class Written:
    """What `write_report` left: the page, its size in bytes, and its files."""

    page: Path
    size: int
    pictures: tuple[Path, ...]
    records: tuple[Path, ...]


def write_report(
    folder: Path, title: str, lead: Sequence[Block], sections: Sequence[Section], *, overwrite: bool = False
) -> Written:
    """Write the page, every picture as PNG and the numbers of every section as JSON.

    Raises
    ------
    OutputError
        The page exists and `overwrite` is off, or the folder cannot be written.
    ArgumentError
        Two pictures have one name.
    """
    check_folder(folder, overwrite=overwrite)
    plates = [plate for section in sections for plate in _plates(section.blocks)]
    names = [plate.name for plate in plates]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ArgumentError(f"write_report: pictures share the names {', '.join(doubled)}. Name each plate once.")
    page, png, records = folder / PAGE, folder / "png", folder / "json"
    try:
        for place in (png, records):
            place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(folder, error) from error
    pictures = tuple(_store(png / f"{plate.name}.png", _png(plate.pixels)) for plate in plates)
    files = tuple(_store(records / f"{section.name}.json", _record(section)) for section in sections)
    text = render(title, lead, sections).encode()
    with write_whole(page, overwrite=True) as temporary:  # last and whole: where there is a page, everything is there
        temporary.write_bytes(text)
    return Written(page, len(text), pictures, files)


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse at once what would fail after the work.

    Raises
    ------
    OutputError
        `folder` is a file, cannot be written to, or holds a page already and `overwrite` is off.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"reproduce ({folder}): it is a file, not a folder. Name another folder with -o.")
    if (folder / PAGE).exists() and not overwrite:
        raise OutputError(
            f"reproduce ({folder}): it holds a report already. Add overwrite=True or choose another folder."
        )
    make_folder(folder)


def _plates(blocks: Sequence[Block]) -> Iterator[Plate]:
    for block in blocks:
        if isinstance(block, Figure):
            yield from (plate for plate in block.plates if plate is not None)


def _png(pixels: Array) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _record(section: Section) -> bytes:
    record: dict[str, Any] = {
        "section": section.title,
        "numbers": [as_record(number) for block in section.blocks for number in numbers_of(block)],
        "data": dict(section.data),
    }
    return (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()


def _store(path: Path, data: bytes) -> Path:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise output_error(path, error) from error
    return path
