"""Appendix A of the paper: figures 3 and 4. Photo, our method, transport, reference; and the palettes below each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glocal.apps.color.measures import Quality, quality
from glocal.apps.color.recolor import Recolored, recolor
from glocal.color_space import lab_from_rgb, rgb_from_lab
from glocal.paper import paintings, squares
from glocal.paper.blocks import Array, Figure, Part, Plate, Section, Table, Text
from glocal.paper.job import Job
from glocal.paper.source import Number

PAIRS = (
    ("meadow", "sunset"),
    ("mountains", "sunset"),
    ("temple", "citrus"),
    ("bridge", "meadow"),
    ("citrus", "bridge"),
)
PALETTE_ROWS = 3
_HEADS = ("photo", "our method", "optimal transport", "reference")


@dataclass(frozen=True, eq=False)
class Transfer:
    """One row of figure 3: the two pictures and the results of both methods with the paper's hard assignment."""

    name: str
    photo: Array
    reference: Array
    graph: Recolored
    transport: Recolored


def section(job: Job) -> Section:
    """Figures 3 and 4, and a table of distances and artefacts."""
    rows = transfers(job)
    lead = Text(
        (
            "A photo takes the colours of another: 64 colours of its ab plane are moved by a random graph layer (our "
            "method) or by optimal transport; luminance stays. Each picture has 64 distinct chrominances, as in the "
            "paper (our default mapping is smooth instead).",
        )
    )
    table, data = _measured(rows, job)
    return Section(
        "color", "Figures 3 and 4: colour transfer", [lead, figure_3(rows, job), figure_4(rows, job), table], data
    )


def transfers(job: Job) -> list[Transfer]:
    """Both methods on every pair of the user's folder, or on the shipped pairs."""
    named = pairs(job)
    found = []
    for i, (name, photo, reference) in enumerate(named):
        graph, transport = (
            recolor(photo, reference, method=method, mapping="nearest", seed=job.seed)
            for method in ("graph", "transport")
        )
        found.append(Transfer(name, photo, reference, graph, transport))
        job.progress((i + 1) / len(named))
    return found


def pairs(job: Job) -> list[tuple[str, Array, Array]]:
    """Names, photos and references.

    In the folder `color_pairs` of the user's data, files that share their name up to the last underscore are a pair,
    the photo first: `ocean_day.jpg`, `ocean_sunset.jpg`.
    """
    size = job.effort.color_size
    folder = job.data / "color_pairs" if job.data else None
    files = _paired(paintings.picture_files(folder)) if folder is not None and folder.is_dir() else []
    if files:
        return [
            (paintings.plain_name(a), squares.square(a, size), squares.square(b, size))
            for a, b in files[: job.effort.color_pairs]
        ]
    shipped = PAIRS[: job.effort.color_pairs]
    return [(f"{a}-{b}", squares.photo(a, size), squares.photo(b, size)) for a, b in shipped]


def _paired(files: Sequence[Path]) -> list[tuple[Path, Path]]:
    groups: dict[str, list[Path]] = {}
    for path in files:
        head, _, tail = path.stem.rpartition("_")
        if head and tail:
            groups.setdefault(head, []).append(path)
    return [(group[0], group[1]) for group in groups.values() if len(group) == 2]


def figure_3(rows: Sequence[Transfer], job: Job) -> Figure:
    """Photo, our method, transport, reference."""
    plates = [plate for row in rows for plate in _row(row, "fig3")]
    caption = ("The photo on the left takes the colours of the photo on the right.",)
    return Figure("Figure 3: photo, our method, transport, reference", plates, 4, caption, job.source)


def figure_4(rows: Sequence[Transfer], job: Job) -> Figure:
    """Return the pictures of figure 3 with their palettes in the ab plane below each."""
    plates: list[Plate] = []
    for row in rows[:PALETTE_ROWS]:
        before, after, target = (row.graph.palettes.photo, row.graph.palettes.result, row.graph.palettes.reference)
        carried = row.transport.palettes.result
        view = _view(torch.cat([before, after, carried, target]))
        plates += _row(row, "fig4")
        for head, symbol, palette in zip(
            _HEADS, ("X_t", "X*", "X_ot", "X_s"), (before, after, carried, target), strict=True
        ):
            name = f"fig4-palette-{head.replace(' ', '-')}-{row.name}"
            plates.append(
                Plate(name, palette_picture(palette, view), f"Palette: {head}", (f"palette {symbol}: {head}",))
            )
    caption = (
        "Below each picture its palette: 64 points of the ab plane (a to the right, b upwards; the lines are a = 0 and "
        "b = 0), the same range in a row. Transport takes over the reference's palette; "
        "the graph layer keeps neighbours of the photo's palette together.",
    )
    return Figure("Figure 4: the same with palettes", plates, 4, caption, job.source)


def _view(points: Tensor) -> tuple[float, float, float]:
    """Return the smallest square that holds points (n, 2), with a margin: its centre and half its side."""
    low, high = points.min(0).values, points.max(0).values
    a, b = ((low + high) / 2).tolist()
    return a, b, 0.57 * float((high - low).max().clamp(min=1))


def palette_picture(palette: Tensor, view: tuple[float, float, float], *, size: int = 240) -> Array:
    """Palette entries (n, 2) as discs of their own colour, at L = 65; `view` is the centre and half side of the square."""
    from PIL import Image, ImageDraw

    scale = 2  # drawn larger, then shrunk, for smooth edges
    sheet = Image.new("RGB", (size * scale, size * scale), (118, 118, 118))
    pen = ImageDraw.Draw(sheet)
    a0, b0, half = view
    middle = size * scale / 2
    x0, y0 = middle * (1 - a0 / half), middle * (1 + b0 / half)
    for line in (((x0, 0), (x0, 2 * middle)), ((0, y0), (2 * middle, y0))):
        pen.line(line, fill=(140, 140, 140), width=scale)
    lab = torch.cat([torch.full((len(palette), 1), 65.0, dtype=palette.dtype), palette], 1)
    colors = (rgb_from_lab(lab).clamp(0, 1) * 255).round().int().tolist()
    r = 5 * scale
    for (a, b), color in zip(palette.tolist(), colors, strict=True):
        x, y = middle * (1 + (a - a0) / half), middle * (1 - (b - b0) / half)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=tuple(color), outline=(40, 40, 40), width=scale // 2)
    return squares.resized(np.asarray(sheet), size)


def _row(row: Transfer, prefix: str) -> list[Plate]:
    images = (row.photo, row.graph.image, row.transport.image, row.reference)
    return [
        Plate(f"{prefix}-{head.replace(' ', '-')}-{row.name}", image, f"{row.name}: {head}", (head,))
        for head, image in zip(_HEADS, images, strict=True)
    ]


def _measured(rows: Sequence[Transfer], job: Job) -> tuple[Table, dict[str, object]]:
    """Distance to the reference's colours, and artefacts, of both methods."""
    cells: list[list[Part]] = []
    data: dict[str, object] = {}
    for row in rows:
        for method, result in (("our method", row.graph), ("transport", row.transport)):
            q = _quality(row, result)
            numbers = (
                Number(q.distance, job.source),
                Number(q.torn, job.source, unit="%"),
                Number(q.distortion, job.source),
            )
            cells.append([row.name, method, *numbers])
            data[f"{row.name} {method}"] = {
                **q.as_dict(),
                "losses": list(result.losses),
                "seconds": result.phases,
            }
    caption = (
        "Distance: sliced Wasserstein between the chrominances of result and reference, in units of Lab. Torn: neighbouring "
        "pixels that looked alike in the photo and form an edge in the result. Distortion: change of chroma gradients "
        "beyond one common factor. Lower is better.",
    )
    head = ("pair", "method", "distance", "torn", "distortion")
    return Table("Distance to the reference, and artefacts", head, cells, caption), data


def _quality(row: Transfer, result: Recolored) -> Quality:
    photo, image, reference = (
        lab_from_rgb(torch.from_numpy(pixels / np.float32(255))) for pixels in (row.photo, result.image, row.reference)
    )
    return quality(photo, image, reference)
