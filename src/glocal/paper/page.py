"""Sections as one self-contained HTML page: pictures inside it, every text escaped, a source below every number."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

from glocal.paper.blocks import Array, Block, Figure, Part, Plate, Section, Table, Text, sources_of
from glocal.paper.source import Number, Source
from glocal.paper.theme import STYLE

JPEG_QUALITY = 88
_MARKS = "abcdefghijklmnopqrstuvwxyz"


def render(title: str, lead: Sequence[Block], sections: Sequence[Section]) -> str:
    """Return the page as text.

    Parameters
    ----------
    title
        Its heading.
    lead
        What stands before the table of contents.
    sections
        The rest, in order.

    Returns
    -------
    HTML 5 without scripts, links to other files, or anything from the network. Size: about that of the pictures
    as JPEG, times 4/3.

    Examples
    --------
    >>> page = render("A < B", [Text(("x & y",))], [])
    >>> "<h1>A &lt; B</h1>" in page, "x &amp; y" in page
    (True, True)
    """
    links = "".join(f'<a href="#{escape(s.name)}">{escape(s.title)}</a>' for s in sections)
    body = "".join(
        f'<section id="{escape(s.name)}"><h2>{escape(s.title)}</h2>{_blocks(s.blocks)}</section>' for s in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # An empty icon keeps browsers from asking a server for one.
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>'
        f"<header><h1>{escape(title)}</h1>{_blocks(lead)}<nav>{links}</nav></header>\n<main>{body}</main></body></html>\n"
    )


def encode(pixels: Array, *, lossless: bool) -> tuple[str, bytes]:
    """Return the media type and the bytes of a picture: PNG, or JPEG where that is allowed."""
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    if lossless:
        image.save(buffer, "PNG")
        return "image/png", buffer.getvalue()
    image.save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return "image/jpeg", buffer.getvalue()


def _blocks(blocks: Sequence[Block]) -> str:
    """Blocks one below the other; narrow figures that follow one another share a row."""
    done, row = [], []
    for block in [*blocks, None]:
        if isinstance(block, Figure) and not block.wide:
            row.append(_block(block))
            continue
        if row:
            done.append(f'<div class="pair">{"".join(row)}</div>')
            row = []
        if block is not None:
            done.append(_block(block))
    return "".join(done)


def _block(block: Block) -> str:
    sources = sources_of(block)
    if isinstance(block, Text):
        text = f"<p>{_parts(block.parts, sources)}</p>"
        return text if not sources else f'<div class="block text">{text}{_footer(sources)}</div>'
    inside = _table(block, sources) if isinstance(block, Table) else _plates(block, sources)
    caption = f'<p class="caption">{_parts(block.caption, sources)}</p>' if block.caption else ""
    kind = type(block).__name__.lower()
    return f'<div class="block {kind}"><h3>{escape(block.title)}</h3>{inside}{caption}{_footer(sources)}</div>'


def _table(table: Table, sources: list[Source]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=number' if isinstance(cell, Number) else ''}>{_part(cell, sources)}</td>" for cell in row
        )
        + "</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _plates(figure: Figure, sources: list[Source]) -> str:
    cells = "".join('<div class="empty"></div>' if plate is None else _plate(plate, sources) for plate in figure.plates)
    many = " many" if figure.columns > 2 else ""
    return f'<div class="plates{many}" style="--columns: {figure.columns}">{cells}</div>'


def _plate(plate: Plate, sources: list[Source]) -> str:
    height, width = plate.pixels.shape[:2]
    kind = ' class="plot"' if plate.dark is not None else ' class="crisp"' if plate.crisp else ""
    lossless = plate.crisp or plate.dark is not None
    image = (
        f'<img{kind} src="{_embedded(plate.pixels, lossless=lossless)}" alt="{escape(plate.alt)}" '
        f'width="{width}" height="{height}">'
    )
    if plate.dark is not None:
        dark = _embedded(plate.dark, lossless=True)
        image = f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">{image}</picture>'
    caption = f"<figcaption>{_parts(plate.caption, sources)}</figcaption>" if plate.caption else ""
    return f'<figure class="plate">{image}{_player(plate)}{caption}</figure>'


def _player(plate: Plate) -> str:
    """Return the controls of a sound, if the plate has one."""
    if plate.sound is None:
        return ""
    data = base64.b64encode(plate.sound).decode()
    return f'<audio controls preload="metadata" aria-label="{escape(plate.alt)}" src="data:audio/wav;base64,{data}"></audio>'


def _embedded(pixels: Array, *, lossless: bool) -> str:
    kind, data = encode(pixels, lossless=lossless)
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _parts(parts: Sequence[Part], sources: list[Source]) -> str:
    return "".join(_part(part, sources) for part in parts)


def _part(part: Part, sources: list[Source]) -> str:
    """Text, escaped, or a number with the mark of its source (left out where the block has one source only)."""
    if isinstance(part, str):
        return escape(part)
    mark = _mark(sources.index(part.source))
    shown = f"<sup>{mark}</sup>" if len(sources) > 1 else ""
    return f'<data value="{part.value!r}" data-source="{mark}" title="{escape(part.source.text())}">{escape(part.text())}{shown}</data>'


def _footer(sources: list[Source]) -> str:
    """Return the sources of a block, printed below it."""
    lines = "".join(
        f'<li data-mark="{_mark(i)}">{f"<sup>{_mark(i)}</sup>" if len(sources) > 1 else ""}{escape(source.text())}</li>'
        for i, source in enumerate(sources)
    )
    return f'<ul class="sources">{lines}</ul>' if sources else ""


def _mark(index: int) -> str:
    """Return the mark of a number: a, b, ... z, aa, ab, ..."""
    high, low = divmod(index, len(_MARKS))
    return (_mark(high - 1) if high else "") + _MARKS[low]
