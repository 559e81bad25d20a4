"""Fit a colour map: palettes of the photo and the reference, and the change of the first towards the second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.apps.color.bands import BAND, in_bands
from glocal.apps.color.look import ColorMap
from glocal.apps.color.options import ColorOptions
from glocal.apps.color.palette import Chroma, chroma_of, joined, palette_of, repeated, shares_of
from glocal.apps.color.problem import SCALE, palette_problem
from glocal.apps.color.tone import tone_curve
from glocal.apps.color.transport import transported
from glocal.color_space import lab_from_rgb
from glocal.errors import ArgumentError, InputError

SAMPLE = 1 << 20
"""The largest number of pixels from which a palette is computed. Larger pictures are sampled evenly."""


@dataclass(frozen=True, eq=False)
class Palettes:
    """Chrominances in units of Lab: of the photo `X_t` (n, 2), of the reference `X_s` (k, 2), of the result (n, 2)."""

    photo: Tensor
    reference: Tensor
    result: Tensor


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted map, its palettes, the loss after each iteration (transport: the cost), and notes for the user."""

    map: ColorMap
    palettes: Palettes
    losses: tuple[float, ...]
    notes: tuple[str, ...]


def fit(
    photo: Tensor,
    references: Sequence[tuple[Tensor, Tensor | None]],
    options: ColorOptions,
    weights: Tensor | None = None,
) -> Fit:
    """Fit the map: photo (h, w, 3) in [0, 1], references with their weights (h, w) or None, and the photo's weights.

    The cost is the same for all sizes: at most `SAMPLE` pixels of each picture are used.
    """
    if not references:
        message = "recolor: `reference` is an empty list. Name at least one picture."
        raise ArgumentError(message)
    lab, counts = _sample(photo, weights, "the mask or the photo's alpha")
    seen = [_sample(image, w, "the reference's alpha") for image, w in references]
    own = chroma_of(lab[:, 1:], counts)
    palette = palette_of(own, colors=options.colors, seed=options.seed)
    chroma = joined([chroma_of(part[:, 1:], w) for part, w in seen])
    if options.method == "graph":
        goal = repeated(palette_of(chroma, colors=len(palette), seed=options.seed), len(palette))
        problem = palette_problem(palette, goal, options, _shares(palette, own, goal, chroma, options))
        minimum = problem.solve(options.iterations)
        new, losses = minimum.x * SCALE, minimum.losses
    else:
        goal = palette_of(chroma, colors=options.colors, seed=options.seed)
        shares = _shares(palette, own, goal, chroma, options)
        new, plan = transported(palette, goal, slack=options.slack, shares=shares)
        losses = (float((plan * torch.cdist(palette, goal)).sum()),)
    curve = None
    if options.luminance == "match":
        curve = tone_curve(lab[:, 0], torch.cat([part[:, 0] for part, _ in seen]))
    notes = _notes(palette, chroma, options)
    return Fit(ColorMap(palette, new, options, curve), Palettes(palette, goal, new), losses, notes)


def _shares(
    palette: Tensor, own: Chroma, goal: Tensor, chroma: Chroma, options: ColorOptions
) -> tuple[Tensor, Tensor] | None:
    return None if options.weigh == "equal" else (shares_of(palette, own), shares_of(goal, chroma))


def _sample(rgb: Tensor, weights: Tensor | None, source: str) -> tuple[Tensor, Tensor | None]:
    """Return Lab colours (m, 3) of at most `SAMPLE` pixels, evenly chosen from those with a weight, and their weights."""
    flat = rgb.reshape(-1, 3)
    if weights is None:
        return in_bands(lab_from_rgb, flat[_evenly(len(flat))]), None
    counts = weights.reshape(-1)
    chosen = _evenly_nonzero(counts)
    if len(chosen) == 0:
        message = f"recolor: no pixel is left, {source} is 0 everywhere. Use another picture or mask."
        raise InputError(message)
    return in_bands(lab_from_rgb, flat[chosen]), counts[chosen]


def _evenly_nonzero(values: Tensor) -> Tensor:
    """Return the places of at most `SAMPLE` values that are not 0, evenly chosen. Memory: that of a part of the values."""
    parts = values.split(16 * BAND)
    numbers = [int(part.count_nonzero()) for part in parts]
    wanted, chosen, before = _evenly(sum(numbers)), [], 0
    for k, (part, number) in enumerate(zip(parts, numbers, strict=True)):
        first, last = (int(v) for v in torch.searchsorted(wanted, torch.tensor([before, before + number])))
        if first < last:
            chosen.append(part.nonzero().squeeze(1)[wanted[first:last] - before] + k * 16 * BAND)
        before += number
    return torch.cat(chosen) if chosen else wanted


def _evenly(n: int) -> Tensor:
    m = min(n, SAMPLE)
    return torch.arange(m) * n // max(m, 1)


def _notes(palette: Tensor, chroma: Chroma, options: ColorOptions) -> tuple[str, ...]:
    notes = []
    if len(palette) == 1:
        notes.append("the photo has only one chrominance (it is gray or toned), so all of it gets one tint")
    elif len(palette) < options.colors:
        notes.append(f"the photo has only {len(palette)} distinct colours, so its palette is shorter")
    if len(chroma.points) == 1:
        notes.append("the reference has only one chrominance, so all colours move towards it")
    return tuple(notes)
