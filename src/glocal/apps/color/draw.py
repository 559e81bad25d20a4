"""The paper's figure of palettes: of the photo, both results and the reference, and the path of every colour."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.color_space import rgb_from_lab

_CELL, _COLUMNS, _GAP, _PLANE, _TITLE = 26, 8, 16, 440, 24
_LEVEL = 65.0  # palettes have no luminance: they are shown at a middle one
_INK, _PAPER, _LINE = (40, 40, 40), (255, 255, 255), (225, 225, 225)

Array = np.ndarray


def palette_sheet(photo: Tensor, graph: Tensor, transport: Tensor, reference: Tensor) -> Array:
    """Draw four palettes (n, 2) and, below, the `ab` plane with a line from each old colour to its new one.

    Returns a picture (h, w, 3) uint8: palettes in one row (`X_t`, `X*`, `X_ot`, `X_s`), and both methods side by side.
    """
    from PIL import Image, ImageDraw

    palettes = {"photo": photo, "graph": graph, "transport": transport, "reference": reference}
    rows = max(-(-len(p) // _COLUMNS) for p in palettes.values())
    width = 4 * _COLUMNS * _CELL + 5 * _GAP
    top = _GAP + _TITLE + rows * _CELL + _GAP
    sheet = Image.new("RGB", (width, top + _TITLE + _PLANE + _GAP), _PAPER)
    pen: Any = ImageDraw.Draw(sheet)
    for k, (name, palette) in enumerate(palettes.items()):
        left = _GAP + k * (_COLUMNS * _CELL + _GAP)
        pen.text((left, _GAP), name, fill=_INK, font_size=16)
        _swatches(pen, palette, left, _GAP + _TITLE)
    reach = _reach(palettes.values())
    for k, (name, new) in enumerate((("graph", graph), ("transport", transport))):
        left = _GAP + k * (width // 2 - _GAP // 2)
        pen.text((left, top), f"{name}: from old (ring) to new (disc) colour", fill=_INK, font_size=16)
        _plane(pen, photo, new, left, top + _TITLE, width // 2 - 2 * _GAP, reach)
    return np.asarray(sheet)


def _colors(palette: Tensor) -> list[tuple[int, ...]]:
    lab = torch.cat([torch.full((len(palette), 1), _LEVEL, dtype=palette.dtype), palette], 1)
    values = (rgb_from_lab(lab).clamp(0, 1) * 255).round().int()
    return [tuple(row) for row in values.tolist()]


def _swatches(pen: Any, palette: Tensor, left: int, top: int) -> None:
    for i, color in enumerate(_colors(palette)):
        x, y = left + i % _COLUMNS * _CELL, top + i // _COLUMNS * _CELL
        pen.rectangle((x, y, x + _CELL - 2, y + _CELL - 2), fill=color)


def _reach(palettes: Any) -> float:
    """Return how far the plane has to extend from gray, with a margin."""
    return max(10.0, 1.08 * max(float(p.abs().max()) for p in palettes))


def _plane(pen: Any, old: Tensor, new: Tensor, left: int, top: int, width: int, reach: float) -> None:
    """Draw one `ab` plane: a to the right, b upwards, gray in the middle."""
    pen.rectangle((left, top, left + width, top + _PLANE), outline=_LINE)
    middle, centre = left + width / 2, top + _PLANE / 2
    pen.line((left, centre, left + width, centre), fill=_LINE)
    pen.line((middle, top, middle, top + _PLANE), fill=_LINE)
    scale = min(width, _PLANE) / 2 / reach
    points = [[(middle + scale * a, centre - scale * b) for a, b in p.tolist()] for p in (old, new)]
    for start, end, shade in zip(*points, _colors(new), strict=True):
        pen.line((*start, *end), fill=shade, width=2)
    for start, end, before, after in zip(*points, _colors(old), _colors(new), strict=True):
        pen.ellipse((start[0] - 4, start[1] - 4, start[0] + 4, start[1] + 4), outline=before, width=2, fill=_PAPER)
        pen.ellipse((end[0] - 5, end[1] - 5, end[0] + 5, end[1] + 5), fill=after, outline=_INK)
