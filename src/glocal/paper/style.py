"""Section 3 of the paper: figures 1 and 2, the paper's setting compared with our preset "painterly"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from glocal.apps.style.options import PRESETS
from glocal.apps.style.transfer import stylize
from glocal.color_space import luma
from glocal.paper import paintings, squares
from glocal.paper.blocks import Array, Block, Figure, Part, Plate, Section, Table, Text
from glocal.paper.job import Job
from glocal.paper.paintings import Painting
from glocal.paper.source import Number, Source

PHOTOS = ("bridge", "temple", "mountains", "citrus")
OURS = "painterly"  # our preset with local and non-local networks, as in the paper


@dataclass(frozen=True, eq=False)
class Pair:
    """One picture of a figure: which photo, which painting, what came out and what it took."""

    photo: str
    painting: str
    image: Array
    structure: float
    seconds: float
    losses: tuple[float, ...]


def section(job: Job) -> Section:
    """Figures 1 and 2, and a table of what was measured on them."""
    first, measured = figure_1(job.part(0, 0.85))
    second, alone = figure_2(job.part(0.85, 1))
    lead = Text(
        (
            "A photo takes the style of a painting by matching the Gram matrices of random one-layer networks; the "
            "non-local network on the photo's graph is all that keeps the photo. Nothing is trained.",
        )
    )
    measured |= alone
    data = {name: [_record(pair) for pair in pairs] for name, pairs in measured.items()}
    blocks: list[Block] = [lead, *first, *second, _table(measured, job.source)]
    return Section("style", "Figures 1 and 2: style transfer", blocks, data)


def figure_1(job: Job) -> tuple[list[Figure], dict[str, list[Pair]]]:
    """Photos (rows) by paintings (columns), once in the paper's setting and once with our preset."""
    return _both(job, "Figure 1", PHOTOS[: job.effort.style_photos], networks="both")


def figure_2(job: Job) -> tuple[list[Figure], dict[str, list[Pair]]]:
    """One photo and several paintings, the non-local network only, total variation kept; both presets."""
    return _both(job, "Figure 2, the non-local network only", PHOTOS[:1], networks="nonlocal")


def _both(job: Job, title: str, photos: Sequence[str], *, networks: str) -> tuple[list[Figure], dict[str, list[Pair]]]:
    """Return a figure in the paper's setting, and the same with our preset."""
    pictures = styles(job)
    presets = ("paper", OURS)
    short = "fig1" if networks == "both" else "fig2"
    figures, measured = [], {}
    for i, preset in enumerate(presets):
        part = job.part(i / len(presets), (i + 1) / len(presets))
        pairs = transfer_all(part, photos, pictures, preset=preset, networks=networks)
        setting = "the paper's setting" if preset == "paper" else f"our preset “{preset}”"
        figures.append(_grid(job, f"{title}: {setting}", f"{short}-{preset}", photos, pictures, pairs))
        measured[f"figure {short[-1]}, {setting}"] = pairs
    return figures, measured


def styles(job: Job) -> list[Painting]:
    """Return the paintings: from the user's folder `paintings`, or the shipped ones."""
    folder = job.data / "paintings" if job.data else None
    if folder is not None and folder.is_dir() and paintings.picture_files(folder):
        return paintings.in_folder(folder, job.effort.style_paintings)
    return paintings.shipped(job.seed)[: job.effort.style_paintings]


def transfer_all(
    job: Job, photos: Sequence[str], pictures: Sequence[Painting], *, preset: str, networks: str
) -> list[Pair]:
    """Stylise every photo with every painting, row by row."""
    size, found = job.effort.style_size, []
    for name in photos:
        photo = squares.photo(name, size)
        for picture in pictures:
            result = stylize(
                photo,
                picture.pixels(size),
                preset=preset,
                size=size,
                iterations=min(job.effort.style_iterations, PRESETS[preset].iterations),
                networks=networks,
                seed=job.seed,
                device=job.device,
            )
            ends = tuple(level[-1] for level in result.losses)
            structure = gradient_correlation(photo, result.image)
            found.append(Pair(name, picture.name, result.image, structure, result.seconds, ends))
            job.progress(len(found) / (len(photos) * len(pictures)))
    return found


def gradient_correlation(a: Array, b: Array) -> float:
    """Return the correlation of the luma gradients of two pictures (h, w, 3): 1 if edges agree, 0 if unrelated.

    Examples
    --------
    >>> ramp = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    >>> round(gradient_correlation(ramp, ramp), 6), round(gradient_correlation(ramp, 255 - ramp), 6)
    (1.0, -1.0)
    """
    gray = [luma(picture.astype(np.float64)) for picture in (a, b)]
    slopes = [np.concatenate([np.diff(y, axis=axis).ravel() for axis in (0, 1)]) for y in gray]
    norm = float(np.linalg.norm(slopes[0]) * np.linalg.norm(slopes[1]))
    return float(slopes[0] @ slopes[1]) / norm if norm else 0.0


def _grid(
    job: Job,
    title: str,
    prefix: str,
    photos: Sequence[str],
    pictures: Sequence[Painting],
    pairs: Sequence[Pair],
) -> Figure:
    """Return a head row of paintings, then a row for each photo."""
    size = job.effort.style_size
    plates: list[Plate | None] = [None]
    for picture in pictures:
        plates.append(Plate(f"{prefix}-style-{picture.name}", picture.pixels(size), picture.words, (picture.words,)))
    for row, name in enumerate(photos):
        plates.append(Plate(f"{prefix}-photo-{name}", squares.photo(name, size), f"The photo “{name}”", (name,)))
        for pair in pairs[row * len(pictures) : (row + 1) * len(pictures)]:
            words = f"{pair.photo}, {pair.painting}"
            plates.append(Plate(f"{prefix}-{pair.photo}-{pair.painting}", pair.image, f"Result: {words}", (words,)))
    caption: tuple[Part, ...] = (
        f"Photos on the left, paintings on top; {size} x {size} pixels, "
        f"{job.effort.style_iterations} iterations at each level at most.",
    )
    return Figure(title, plates, len(pictures) + 1, caption, job.source, wide=False)


def _table(measured: dict[str, list[Pair]], source: Source) -> Table:
    rows: list[list[Part]] = []
    for name, pairs in measured.items():
        structure = Number(float(np.mean([pair.structure for pair in pairs])), source, signed=True)
        rows.append([name, structure])
    caption = (
        "Means over the pictures of each figure. Structure kept is the correlation of the luma gradients of photo and "
        "result: negative where light and dark came out exchanged, which the paper's objective does not forbid.",
    )
    return Table("Measured on these pictures", ("pictures", "structure kept"), rows, caption)


def _record(pair: Pair) -> dict[str, object]:
    record = asdict(pair)
    del record["image"]
    return record
