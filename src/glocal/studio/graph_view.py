"""The neighbours of one pixel or moment, drawn: where they are, how they look, their distances and weights.

Called in the quick worker, which keeps the last signals.
"""

from __future__ import annotations

import functools
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glocal.errors import InputError
from glocal.files.audio.formats import SUFFIXES as SOUNDS
from glocal.options import Options, option
from glocal.studio.worker import Link

_SAMPLE = 16  # vertices from which the percentiles of all distances are estimated
_SECONDS = 20
_RATE = 16_000
_WAVE = (1000, 240)
_CELL = 56
_SHOWN = 32
_INK, _RED = (20, 20, 20), (235, 40, 40)


@dataclass(frozen=True)
class GraphOptions(Options):
    """What `patch_graph` takes, as the page offers it."""

    call: ClassVar[str] = "graph"

    k: int = option(25, "Number of neighbours.", min=1, max=200)
    patch: int = option(3, "Side of the patches that are compared, in pixels or samples; odd.", min=1, max=63)
    coords: float = option(1.0, "Weight of the position; 0 ignores it. Colours are Lab, sound is -100 to 100.", min=0)
    search_radius: int | None = option(
        None, "Search only this far, in pixels or samples. auto: everywhere.", min=1, remedy="Use 10."
    )
    size: int = option(512, "Longer side of the picture for the graph, in pixels.", min=32, max=1024)


@dataclass(frozen=True)
class GraphView:
    """A drawn row: the whole with its marks, the patches enlarged, and the rows of a table (x, y, distance, weight)."""

    picture: Path
    patches: Path
    rows: tuple[tuple[int, int, float, float], ...]
    place: tuple[int, int]


@dataclass(frozen=True)
class Shown:
    """A signal as the page shows it first: its picture, width and height, and what one step along x is."""

    picture: Path
    size: tuple[int, int]
    step: int = 1


def open_signal(link: Link, path: Path, folder: Path, options: GraphOptions) -> Shown:
    """Read a picture or a sound and draw it; estimate the percentiles of its distances.

    Raises
    ------
    InputError
        It cannot be read, or is too short.
    """
    signal, picture = _signal(path, options.size)
    target = folder / f"signal-{secrets.token_hex(4)}.webp"
    picture.save(target, "WEBP", quality=92, method=0)
    _scales(path, options)
    return Shown(target, picture.size, 1 if signal.ndim == 3 else -(-len(signal) // _WAVE[0]))


def show_neighbors(link: Link, path: Path, folder: Path, options: GraphOptions, x: int, y: int) -> GraphView:
    """Find and draw the neighbours of the pixel (x, y), or of the moment at column x of the waveform."""
    signal, picture = _signal(path, options.size)
    if signal.ndim == 3:
        height, width = signal.shape[:2]
        x, y = min(max(0, x), width - 1), min(max(0, y), height - 1)
        vertex = y * width + x
    else:
        x, y = min(max(0, x * -(-len(signal) // _WAVE[0])), len(signal) - 1), 0
        width, vertex = len(signal), x
    neighbors, distances = _row(path, options, vertex)
    weights = _weights(distances, _scales(path, options))
    rows = tuple(
        (n % width, n // width, d, w)
        for n, d, w in zip(neighbors.tolist(), distances.tolist(), weights.tolist(), strict=True)
    )
    name = secrets.token_hex(4)
    marked, patches = folder / f"marked-{name}.webp", folder / f"patches-{name}.webp"
    draw = _marked_picture if signal.ndim == 3 else _marked_wave
    draw(picture, rows, options.patch, len(signal)).save(marked, "WEBP", quality=92, method=0)
    _sheet(signal, picture, rows, options.patch).save(patches, "WEBP", quality=92, method=0)
    return GraphView(marked, patches, rows, (x, y))


@functools.lru_cache(maxsize=4)
def _signal(path: Path, size: int) -> tuple[Any, Any]:
    """Return the signal for the graph, Lab (h, w, 3) or samples (n,), and its picture."""
    import torch
    from PIL import Image

    from glocal.color_space import lab_from_rgb
    from glocal.files.images.picture import to_depth
    from glocal.studio.orders import scaled
    from glocal.studio.views import read_rgb

    if path.suffix.lower() in SOUNDS:
        samples = _samples(path)
        return torch.from_numpy(100 * samples), _wave(samples)
    rgb = read_rgb(path)
    factor = min(1.0, size / max(rgb.shape[:2]))
    rgb = scaled(rgb, (max(1, round(rgb.shape[0] * factor)), max(1, round(rgb.shape[1] * factor))))
    return lab_from_rgb(torch.from_numpy(rgb)), Image.fromarray(to_depth(rgb, "8"))


def _samples(path: Path) -> Any:
    """Return the first seconds of a sound: one channel, at most 16,000 samples a second."""
    import soxr

    from glocal.files.audio.audio_file import open_audio

    parts, count = [], 0
    with open_audio(path) as sound:
        rate = sound.info.rate
        for rows in sound.blocks(1 << 16):
            parts.append(rows.mean(1))
            count += len(rows)
            if count >= _SECONDS * rate:
                break
    samples = np.concatenate(parts or [np.zeros(0)])[: _SECONDS * rate].astype(np.float32)
    if rate > _RATE:
        samples = soxr.resample(samples, rate, _RATE)
    if len(samples) < 256:
        raise InputError(f"graph ({path.name}): the sound is shorter than 256 samples. Use a longer one.")
    return samples


@functools.lru_cache(maxsize=4)
def _rows(path: Path, size: int, patch: int) -> Any:
    """Return the rows of the graph of a signal, with what they share."""
    from glocal.graphs.vertex import PatchRows

    return PatchRows(_signal(path, size)[0], patch)


def _row(path: Path, options: GraphOptions, vertex: int) -> tuple[Any, Any]:
    """Return the neighbours of a vertex and their distances."""
    rows = _rows(path, options.size, options.patch)
    found: tuple[Any, Any] = rows.row(vertex, k=options.k, coords=options.coords, search_radius=options.search_radius)
    return found


@functools.lru_cache(maxsize=16)
def _scales(path: Path, options: GraphOptions) -> tuple[float, float]:
    """Return the 80th and 75th percentile of the distances (section 3), from vertices spread over the signal."""
    import torch

    from glocal.graphs.weights import percentiles

    signal, _ = _signal(path, options.size)
    count = signal.shape[0] * (signal.shape[1] if signal.ndim == 3 else 1)
    vertices = np.linspace(0, count - 1, _SAMPLE + 2, dtype=int)[1:-1].tolist()
    found = [_row(path, options, vertex)[1] for vertex in vertices]
    cap, scale = percentiles(torch.stack(found), (80.0, 75.0))
    return cap, scale


def _weights(distances: Any, scales: tuple[float, float]) -> Any:
    import torch

    from glocal.graphs.weights import normalize

    cap, scale = scales
    if scale == 0:
        return normalize((distances == 0).to(distances.dtype)[None])[0]
    return normalize(torch.exp(-(distances.clamp(max=cap) / scale).square())[None])[0]


def _color(weight: float, most: float) -> tuple[int, int, int]:
    """Return a colour from blue (a small weight) to yellow (the largest)."""
    share = min(1.0, max(0.0, weight / most if most else 0.0))
    return round(40 + 215 * share), round(90 + 140 * share), round(230 * (1 - share) + 30)


def _marked_picture(picture: Any, rows: Any, patch: int, _: int) -> Any:
    from PIL import ImageDraw

    marked = picture.copy()
    pen = ImageDraw.Draw(marked)
    half = max(patch // 2, 3)
    most = max(row[3] for row in rows)
    for x, y, _distance, weight in reversed(rows[1:]):  # the nearest on top
        pen.rectangle((x - half - 1, y - half - 1, x + half + 1, y + half + 1), outline=_INK)
        pen.rectangle((x - half, y - half, x + half, y + half), outline=_color(weight, most))
    x, y = rows[0][:2]
    pen.rectangle((x - half - 1, y - half - 1, x + half + 1, y + half + 1), outline=_RED, width=2)
    return marked


def _wave(samples: Any) -> Any:
    from PIL import Image, ImageDraw

    width, height = _WAVE
    step = -(-len(samples) // width)
    picture = Image.new("RGB", (-(-len(samples) // step), height), (250, 250, 250))
    pen = ImageDraw.Draw(picture)
    loudest = float(np.abs(samples).max()) or 1.0
    for column in range(picture.width):
        part = samples[column * step : (column + 1) * step] / loudest
        pen.line((column, height / 2 * (1 - part.max()), column, height / 2 * (1 - part.min())), fill=(90, 110, 160))
    return picture


def _marked_wave(picture: Any, rows: Any, patch: int, count: int) -> Any:
    from PIL import ImageDraw

    marked = picture.copy()
    pen = ImageDraw.Draw(marked)
    step = -(-count // _WAVE[0])
    most = max(row[3] for row in rows)
    for place, _y, _distance, weight in reversed(rows[1:]):
        pen.line((place // step, 0, place // step, marked.height), fill=_color(weight, most))
    pen.line((rows[0][0] // step, 0, rows[0][0] // step, marked.height), fill=_RED, width=2)
    return marked


def _sheet(signal: Any, picture: Any, rows: Any, patch: int) -> Any:
    """Draw the patches enlarged, the nearest first, each with its distance and its weight."""
    from PIL import Image, ImageDraw

    shown = rows[:_SHOWN]
    columns = min(8, len(shown))
    tall = _CELL + 28
    sheet = Image.new("RGB", (columns * (_CELL + 6) + 6, -(-len(shown) // columns) * tall + 6), (255, 255, 255))
    pen: Any = ImageDraw.Draw(sheet)
    half = patch // 2
    for i, (x, y, distance, weight) in enumerate(shown):
        left, top = 6 + i % columns * (_CELL + 6), 6 + i // columns * tall
        if signal.ndim == 3:
            part = picture.crop((x - half, y - half, x + half + 1, y + half + 1))
            sheet.paste(part.resize((_CELL, _CELL), Image.Resampling.NEAREST), (left, top))
        else:
            _small_wave(pen, signal.numpy(), x, patch, left, top)
        pen.rectangle((left - 1, top - 1, left + _CELL, top + _CELL), outline=_RED if i == 0 else (200, 200, 200))
        pen.text((left, top + _CELL + 2), f"d {distance:.1f}", fill=_INK, font_size=11)
        pen.text((left, top + _CELL + 14), f"w {weight:.2f}", fill=_INK, font_size=11)
    return sheet


def _small_wave(pen: Any, samples: Any, x: int, patch: int, left: int, top: int) -> None:
    places = np.clip(np.arange(x - patch // 2, x + patch // 2 + 1), 0, len(samples) - 1)
    part = samples[places] / (float(np.abs(samples).max()) or 1.0)
    xs = left + np.linspace(2, _CELL - 3, len(part))
    ys = top + _CELL / 2 * (1 - part)
    points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    pen.line(points if len(points) > 1 else points * 2, fill=(40, 70, 160))
