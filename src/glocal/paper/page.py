"""Sections as one self-contained HTML page: pictures inside it, every text escaped, a source below every number."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from glocal.paper.blocks import Array, Block, Figure, Section, sources_of

QUALITY = 60  # half the size of a JPEG; the folder `png` has every picture as it was computed
_MARKS = "abcdefghijklmnopqrstuvwxyz"


def render(title: str, lead: Sequence[Block], sections: Sequence[Section]) -> str:
    """Return the page as text.

    Parameters
    ----------
    title : str
        Its heading.
    lead : sequence of blocks
        The blocks before the table of contents.
    sections : sequence of Section
        The rest, in order.

    Returns
    -------
    str
        HTML 5 without scripts, links to other files, or anything from the network. Size: about that of the pictures
        as WebP, times 4/3.

    Examples
    --------
    >>> from glocal.paper.blocks import Text
    >>> page = render("A < B", [Text(("x & y",))], [])
    >>> "<h1>A &lt; B</h1>" in page, "x &amp; y" in page
    (True, True)
    """
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    functions = {
        "mark": mark,
        "sources_of": sources_of,
        "rows_of": rows_of,
        "embedded": embedded,
        "base64": lambda data: base64.b64encode(data).decode(),
    }
    page = templates.get_template("page.html.j2", globals=functions)
    return page.render(title=title, lead=lead, sections=sections) + "\n"


def embedded(pixels: Array, lossless: bool) -> str:
    """Return a picture as a `data:` address, in WebP.

    A picture that should stay `lossless`, such as a plot, is lossy only if that makes it much smaller: text and lines
    compress well, noise does not.
    """
    data = _webp(pixels, quality=QUALITY)
    if lossless:
        exact = _webp(pixels, lossless=True)
        if len(exact) <= 2 * len(data):
            data = exact
    return f"data:image/webp;base64,{base64.b64encode(data).decode()}"


def _webp(pixels: Array, **settings: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "WEBP", method=4, **settings)
    return buffer.getvalue()


def rows_of(blocks: Sequence[Block]) -> list[dict[str, object]]:
    """Group blocks into rows: narrow figures that follow one another share a row, other blocks get one each."""
    rows: list[dict[str, object]] = []
    for narrow, group in groupby(blocks, lambda block: isinstance(block, Figure) and not block.wide):
        together = list(group)
        rows += [{"narrow": narrow, "blocks": part} for part in ([together] if narrow else [[b] for b in together])]
    return rows


def mark(index: int) -> str:
    """Return the mark of a source: a, b, ... z, aa, ab, ...

    Examples
    --------
    >>> mark(1), mark(26)
    ('b', 'aa')
    """
    high, low = divmod(index, len(_MARKS))
    return (mark(high - 1) if high else "") + _MARKS[low]
