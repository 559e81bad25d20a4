"""Colour transfer: the palette of one photo on another (appendix A of the paper).

Palettes of the chrominances `ab` by k-means; a new palette for the photo, by the random graph layer (A.1) or by optimal
transport (A.2); and a map that takes every pixel along.

Deviations from the paper
- By default pixels follow a smooth field fitted to the palette's displacement; the paper's hard assignment to 64
  colours, which bands in gradients, is `mapping="nearest"`.
- Colours that sRGB does not have are compressed at constant hue and luminance; the paper does not say what it did.
- "Normalised and shifted to [-0.5, 0.5]" is read as `ab / 255`, the same for every picture.
- k-means runs on the chrominances gathered in cells of half a unit of Lab, of at most a million pixels.
- `weigh="pixels"` counts palette entries by their share of the picture; the paper counts all alike, and so do we by default.
- A photo of fewer colours than the palette has entries gets a shorter palette, and the reference one of that length.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.apps.color import options as kinds
from glocal.apps.color.bands import in_bands
from glocal.apps.color.look import ColorMap
from glocal.apps.color.options import ColorOptions
from glocal.apps.color.palette import Chroma, chroma_of, joined, palette_of, repeated, shares_of
from glocal.apps.color.problem import SCALE, palette_problem
from glocal.apps.color.tone import tone_curve
from glocal.apps.color.transport import transported
from glocal.color_space import lab_from_rgb
from glocal.errors import ArgumentError, InputError
from glocal.files.images.colors import to_srgb
from glocal.files.images.convert import like, picture_from
from glocal.files.images.picture import Picture
from glocal.files.provenance import build_recipe

SAMPLE = 1 << 20
"""Pixels that decide a palette; larger pictures are sampled evenly."""


@dataclass(frozen=True, eq=False)
class Palettes:
    """Chrominances in units of Lab: of the photo `X_t` (n, 2), of the reference `X_s` (k, 2), of the result (n, 2)."""

    photo: Tensor
    reference: Tensor
    result: Tensor


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted map, its palettes, the loss after each iteration (transport: the cost), and what was noteworthy."""

    map: ColorMap
    palettes: Palettes
    losses: tuple[float, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Recolored:
    """What `recolor` returns: the image in the photo's kind, and all that it came from."""

    image: Any
    palettes: Palettes
    mapping: ColorMap
    losses: tuple[float, ...]
    seconds: Mapping[str, float]
    notes: tuple[str, ...]
    recipe: Mapping[str, Any]


def recolor(
    photo: Any,
    reference: Any,
    *,
    method: kinds.Method = "graph",
    mapping: kinds.Mapping = "smooth",
    colors: int = 64,
    weigh: kinds.Weigh = "equal",
    strength: float = 1.0,
    luminance: kinds.Luminance = "keep",
    gamut: kinds.Gamut = "compress",
    protect: Sequence[kinds.Protection] = (),
    lambdas: tuple[float, float, float] = (1.0, 0.1, 1.0),
    mask: Any = None,
    iterations: int = 200,
    slack: float = 1.0,
    seed: int = 0,
) -> Recolored:
    """Give `photo` the colours of `reference`.

    Parameters
    ----------
    photo : image
        `(h, w, 3)` uint8, uint16 or float in [0, 1]; a `PIL.Image`; or a path.
    reference : image, or a list of images
        Where the colours come from; several share one palette with equal weight.
    mask : image or None
        Where the photo changes: 1 (white) there, 0 elsewhere; values between blend. The photo's palette is that of the
        masked part.
    method, mapping, colors, weigh, strength, luminance, gamut, protect, lambdas, iterations, slack, seed
        See `glocal.apps.color.options.ColorOptions`.

    Returns
    -------
    Recolored, its `image` of the photo's kind, size and type. Cost: O(pixels) for the colours and O(colors^3) for the
    palette, about 0.1 s; memory for two float copies of the photo.

    Raises
    ------
    ArgumentError, InputError
        If an option is unknown, a picture cannot be read or holds NaN, or a mask does not fit or selects nothing.

    >>> import numpy as np
    >>> ramp = np.linspace(0, 255, 48, dtype=np.uint8).reshape(4, 4, 3)
    >>> result = recolor(ramp, ramp[..., ::-1].copy(), colors=8)
    >>> result.image.shape, result.image.dtype, result.palettes.result.shape
    ((4, 4, 3), dtype('uint8'), torch.Size([8, 2]))
    """
    options = ColorOptions(
        method=method, mapping=mapping, colors=colors, weigh=weigh, strength=strength, luminance=luminance, gamut=gamut,
        protect=tuple(protect), lambdas=lambdas, iterations=iterations, slack=slack, seed=seed,
    )  # fmt: skip
    clock = time.perf_counter()
    picture = picture_from(photo)
    several = list(reference) if isinstance(reference, (list, tuple)) else [reference]
    references = [picture_from(one) for one in several]
    cover = None if mask is None else mask_for(picture, picture_from(mask))
    rgb = torch.from_numpy(to_srgb(picture))
    read = time.perf_counter()
    found = fit(rgb, [weighed(r) for r in references], options, counted(picture, cover))
    fitted = time.perf_counter()
    image = applied(found.map, rgb, cover)
    done = time.perf_counter()
    result = like(picture, image.numpy())
    seconds = {"read": read - clock, "fit": fitted - read, "apply": done - fitted, "write": time.perf_counter() - done}
    paths = [p.path for p in (picture, *references) if p.path is not None]
    recipe = build_recipe("color", options, inputs=paths)
    return Recolored(image=result, palettes=found.palettes, mapping=found.map, losses=found.losses, seconds=seconds,
                     notes=found.notes, recipe=recipe)  # fmt: skip


def fit(
    photo: Tensor,
    references: Sequence[tuple[Tensor, Tensor | None]],
    options: ColorOptions,
    weights: Tensor | None = None,
) -> Fit:
    """Find the map: photo (h, w, 3) in [0, 1], references with their weights (h, w) or None, and the photo's weights.

    The work is the same for all sizes: at most `SAMPLE` pixels of each picture are looked at.
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


def applied(look: Any, rgb: Tensor, cover: Tensor | None = None) -> Tensor:
    """The picture (h, w, 3) changed by `look` (a `ColorMap` or a `Lut`) where `cover` (h, w) says so."""
    changed: Tensor = look(rgb)
    if cover is None:
        return changed
    return changed.sub_(rgb).mul_(cover.unsqueeze(-1)).add_(rgb)


def mask_for(photo: Picture, mask: Picture) -> Tensor:
    """A mask as weights (h, w) in [0, 1], after checking that it fits and selects something."""
    if mask.size != photo.size:
        message = (
            f"recolor: `mask` (h={mask.size[0]}, w={mask.size[1]}) must have the photo's size "
            f"(h={photo.size[0]}, w={photo.size[1]}). Resize the mask."
        )
        raise InputError(message)
    cover = torch.from_numpy(to_srgb(mask)).mean(2)
    if not bool((cover > 0).any()):
        message = "recolor: `mask` selects nothing, it is black everywhere. White is where the photo changes."
        raise InputError(message)
    return cover


def weighed(picture: Picture) -> tuple[Tensor, Tensor | None]:
    """The colours of a picture (h, w, 3) in [0, 1], and its alpha (h, w) as weights: what cannot be seen gives none."""
    return torch.from_numpy(to_srgb(picture)), _alpha(picture)


def counted(photo: Picture, cover: Tensor | None) -> Tensor | None:
    """How much each pixel of the photo (h, w) counts for its palette: the mask times the alpha; None for all alike."""
    alpha = _alpha(photo)
    return alpha if cover is None else cover if alpha is None else cover * alpha


def _sample(rgb: Tensor, weights: Tensor | None, source: str) -> tuple[Tensor, Tensor | None]:
    """Lab colours (m, 3) of at most `SAMPLE` pixels, evenly over those that count, and their weights."""
    flat = rgb.reshape(-1, 3)
    if weights is None:
        return in_bands(lab_from_rgb, flat[_evenly(len(flat))]), None
    counts = weights.reshape(-1)
    chosen = counts.nonzero().squeeze(1)
    if len(chosen) == 0:
        message = f"recolor: no pixel is left, {source} is 0 everywhere. Use another picture or mask."
        raise InputError(message)
    chosen = chosen[_evenly(len(chosen))]
    return in_bands(lab_from_rgb, flat[chosen]), counts[chosen]


def _evenly(n: int) -> Tensor:
    m = min(n, SAMPLE)
    return torch.arange(m) * n // m


def _alpha(picture: Picture) -> Tensor | None:
    if picture.alpha is None:
        return None
    alpha = torch.from_numpy(picture.alpha.astype("float32"))
    return alpha / alpha.max().clamp(min=1e-6)


def _notes(palette: Tensor, chroma: Chroma, options: ColorOptions) -> tuple[str, ...]:
    notes = []
    if len(palette) == 1:
        notes.append("the photo has one chrominance only (it is gray or toned): the whole of it gets one tint")
    elif len(palette) < options.colors:
        notes.append(f"the photo has {len(palette)} distinct colours only: its palette is as short")
    if len(chroma.points) == 1:
        notes.append("the reference has one chrominance only: all colours move towards it")
    return tuple(notes)
