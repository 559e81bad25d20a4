"""Colour transfer: apply the palette of one photo to another (appendix A of the paper).

First, k-means computes palettes of the chrominances `ab`. Then the random graph layer (A.1) or optimal transport (A.2)
computes a new palette for the photo. Last, a map applies the change of the palette to every pixel.

Deviations from the paper
- By default pixels follow a smooth field fitted to the palette's displacement; the paper's hard assignment to 64
  colours, which bands in gradients, is `mapping="nearest"`.
- Colours outside sRGB are compressed at constant hue and luminance; the paper does not say what it did.
- "Normalised and shifted to [-0.5, 0.5]" is read as `ab / 255`, the same for every picture.
- k-means runs on the chrominances of at most a million pixels, collected in cells of half a unit of Lab.
- `weigh="pixels"` weighs palette entries by their share of the picture; the paper, and our default, weighs all equally.
- If the photo has fewer colours than the palette has entries, both palettes are shortened to that number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from glocal.apps.color.bands import BAND
from glocal.apps.color.fit import Palettes, fit
from glocal.apps.color.look import ColorMap
from glocal.apps.color.lut import read_lut
from glocal.apps.color.options import ColorOptions
from glocal.errors import ArgumentError, InputError
from glocal.files.images.colors import from_srgb_in, srgb_in, to_srgb
from glocal.files.images.image_like import ImageLike, Layout, as_picture, mask_notes, mask_values
from glocal.files.images.picture import Picture
from glocal.files.images.scratch import Scratch
from glocal.files.provenance import build_recipe, sha256_of
from glocal.files.results import SrgbResult, image_inputs
from glocal.machine import computing_on
from glocal.options import takes_options
from glocal.progress import Callback, Meter
from glocal.progress_bar import shown

Look: TypeAlias = "ColorMap | Callable[[Tensor], Tensor]"
"""A function that changes colours (..., 3): a fitted map, a LUT, or any other function."""


@dataclass(frozen=True, eq=False, repr=False)
class Recolored(SrgbResult):
    """The result of `recolor`: the image, its palettes and the map. See `Result` for the fields of all results.

    `palettes` and `losses` are empty if the map was given.
    """

    mapping: Look = field(kw_only=True)
    palettes: Palettes = field(kw_only=True)
    losses: tuple[float, ...] = field(default=(), kw_only=True)
    scratch: Scratch | None = field(default=None, kw_only=True)

    def at_depth(self, depth: str) -> Picture:
        """Return the result with the profile and metadata of the input; band by band if it lies in temporary files."""
        if self.scratch is None:
            return super().at_depth(depth)
        return from_srgb_in(self.scratch, self.original, self.rgb, depth=depth)


@takes_options(ColorOptions)
def recolor(
    photo: ImageLike,
    reference: ImageLike | Sequence[ImageLike] | None = None,
    *,
    options: ColorOptions,
    map: Look | str | os.PathLike[str] | None = None,
    mask: ImageLike | None = None,
    layout: Layout | None = None,
    scratch: Scratch | None = None,
    progress: Callback | bool | None = None,
) -> Recolored:
    """Give `photo` the colours of `reference`.

    Parameters
    ----------
    photo : array (h, w, 3) of uint8, uint16 or float in [0, 1], tensor, `PIL.Image` or path
        The image to change.
    reference : image, or a list of images
        The image that has the colours. Several images give one palette, with equal weight.
    {options}
    options : ColorOptions
        All options at once. Single options change it.
    map : ColorMap, Lut, path or None
        A map to apply instead of one fitted to `reference`: a result's `mapping`, or a file of `ColorMap.save`, a `.cube`
        or a HaldCLUT `.png`.
    mask : image or None
        The part of the photo that changes: 1 (white) there, 0 elsewhere; values between them blend. A mask of another
        size is scaled. The photo's palette is computed from this part.
    layout : "HWC", "CHW" or None
        Order of the axes of arrays and tensors; a tensor (3, h, w) needs "CHW".
    scratch : Scratch or None
        Keep large arrays in temporary files. The result is the same.
    progress : callable(Progress), True or None
        Called during the work; True draws a bar, in a terminal or a notebook.

    Returns
    -------
    Recolored
        Its `image` has the type and shape of the photo; a gray photo (h, w) that gets colours gives (h, w, 3). Cost:
        O(pixels) for the colours and O(colors^3) for the palette, about 0.1 s; memory for two float copies of the photo.

    Raises
    ------
    ArgumentError, InputError
        If an option is unknown, a picture cannot be read or contains NaN, or a mask selects nothing.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.linspace(0, 255, 48, dtype=np.uint8).reshape(4, 4, 3)
    >>> result = recolor(ramp, ramp[..., ::-1].copy(), colors=8)
    >>> result.image.shape, result.image.dtype, result.palettes.result.shape
    ((4, 4, 3), dtype('uint8'), torch.Size([8, 2]))
    """
    began = time.perf_counter()
    if (reference is None) == (map is None):
        wrong = "both were" if map is not None else "neither was"
        message = f"recolor: give either `reference` or `map`; {wrong} given. A map replaces the reference."
        raise ArgumentError(message)
    picture = as_picture(photo, call="recolor", name="photo", layout=layout, scratch=scratch)
    several: list[Any] = (
        list(reference) if isinstance(reference, (list, tuple)) else [] if reference is None else [reference]
    )
    references = [as_picture(one, call="recolor", name="reference", layout=layout, scratch=scratch) for one in several]
    shade = None if mask is None else as_picture(mask, call="recolor", name="mask", layout=layout, scratch=scratch)
    inputs, arguments = _sources(picture, references, shade, map)
    with (
        computing_on("recolor", options.device),
        shown(progress, "recolor") as tell,
        Meter(tell, expected=seconds_for(picture.size)) as meter,
    ):
        cover = None if shade is None else mask_for(picture, shade, scratch)
        rgb = _colors(picture, scratch)
        meter(0.1, step="fit")
        read = time.perf_counter()
        found = None
        if map is None:
            found = fit(rgb, [weighed(r, scratch) for r in references], options, counted(picture, cover, scratch))
        look = found.map if found is not None else loaded(map, options.strength)  # type: ignore[arg-type]
        meter(0.4, step="apply")
        fitted = time.perf_counter()
        changed = applied(look, rgb, cover) if scratch is None else _applied_in(scratch, look, rgb, cover)
        meter(1.0, step="apply")
    done = time.perf_counter()
    return Recolored(
        seconds=done - began,
        recipe=build_recipe("color", options, inputs=inputs, arguments=arguments),
        notes=(
            *picture.notes,
            *mask_notes(shade, picture.size),
            *(found.notes if found else ()),
            *_on_cpu(options.device),
        ),
        phases={"read": read - began, "fit": fitted - read, "apply": done - fitted},
        original=picture,
        given=photo,
        layout=layout,
        rgb=changed.numpy(),
        mapping=look,
        palettes=found.palettes if found else Palettes(*[torch.zeros(0, 2)] * 3),
        losses=found.losses if found else (),
        scratch=scratch,
    )


def _applied_in(scratch: Scratch, look: Look, rgb: Tensor, cover: Tensor | None) -> Tensor:
    """Apply a map into a temporary file. The parts are whole bands of `in_bands`, so that the bits are the same."""
    changed = torch.from_numpy(scratch.empty(tuple(rgb.shape), "float32"))
    source, goal = rgb.view(-1, 3), changed.view(-1, 3)
    for start in range(0, len(source), 32 * BAND):
        part = slice(start, start + 32 * BAND)
        goal[part] = applied(look, source[part], None if cover is None else cover.view(-1)[part])
        scratch.release()
    return changed


def _sources(
    photo: Picture, references: Sequence[Picture], mask: Picture | None, map: Look | str | os.PathLike[str] | None
) -> tuple[list[str | tuple[str, str]], dict[str, Any]]:
    """Return the inputs and arguments of the recipe. A map file is hashed before it is read."""
    named = {"photo": photo} | {f"reference {k + 1}": r for k, r in enumerate(references)}
    files, pixels = image_inputs(named if mask is None else named | {"mask": mask})
    inputs: list[Any] = [*files]
    arguments: dict[str, Any] = {"positional": [path for path, _ in files[: len(named)]] if not pixels else []}
    arguments["mask"] = str(mask.path) if mask is not None and mask.path is not None else None
    arguments["map"] = os.fspath(map) if isinstance(map, (str, os.PathLike)) else None
    if arguments["map"] is not None:
        inputs.append((arguments["map"], sha256_of(arguments["map"])))
    return inputs, arguments | ({"pixels_sha256": pixels} if pixels else {})


def loaded(map: Look | str | os.PathLike[str], strength: float) -> Look:
    """Return a map from a file, chosen by its suffix, or a given map, at the wanted strength."""
    look: Look
    if not isinstance(map, (str, os.PathLike)):
        look = map
    elif Path(map).suffix.lower() in (".cube", ".png"):
        look = read_lut(map)
    else:
        look = ColorMap.load(map)
    if isinstance(look, ColorMap):
        return look.with_strength(min(2.0, look.options.strength * strength))
    if strength == 1:
        return look
    return partial(_weakened, look=look, strength=strength)


def _weakened(rgb: Tensor, *, look: Look, strength: float) -> Tensor:
    return look(rgb).sub_(rgb).mul_(strength).add_(rgb).clamp_(0, 1)


def _on_cpu(device: str) -> tuple[str, ...]:
    return () if device == "cpu" else ("colours are computed on the CPU; the GPU was not used",)


def seconds_for(size: tuple[int, int]) -> float:
    """Estimate the seconds of a transfer for a photo of this height and width: 1/3 s per megapixel."""
    return 3 + 0.35e-6 * size[0] * size[1]


def applied(look: Look, rgb: Tensor, cover: Tensor | None = None) -> Tensor:
    """Return the picture (h, w, 3) changed by `look` (a `ColorMap` or a `Lut`), with the weights `cover` (h, w)."""
    changed: Tensor = look(rgb)
    if cover is None:
        return changed
    return changed.sub_(rgb).mul_(cover.unsqueeze(-1)).add_(rgb)


def mask_for(photo: Picture, mask: Picture, scratch: Scratch | None = None) -> Tensor:
    """Return a mask of any size as weights (h, w) in [0, 1], after checking that it selects something."""
    cover = torch.from_numpy(mask_values(mask, photo.size, call="recolor", scratch=scratch))
    if not bool(cover.max() > 0):
        message = "recolor: `mask` selects nothing, it is black everywhere. Paint the part that changes white."
        raise InputError(message)
    return cover


def weighed(picture: Picture, scratch: Scratch | None = None) -> tuple[Tensor, Tensor | None]:
    """Return the colours of a picture (h, w, 3) in [0, 1], and its alpha (h, w) as weights: transparent pixels have none."""
    return _colors(picture, scratch), _alpha(picture, scratch)


def _colors(picture: Picture, scratch: Scratch | None) -> Tensor:
    return torch.from_numpy(to_srgb(picture) if scratch is None else srgb_in(scratch, picture))


def counted(photo: Picture, cover: Tensor | None, scratch: Scratch | None = None) -> Tensor | None:
    """Return the weight of each pixel (h, w) for the photo's palette: the mask times the alpha. None: equal weights."""
    alpha = _alpha(photo, scratch)
    return alpha if cover is None else cover if alpha is None else alpha.mul_(cover)


def _alpha(picture: Picture, scratch: Scratch | None = None) -> Tensor | None:
    """Return the alpha as weights (h, w), the largest of which is 1."""
    if picture.alpha is None:
        return None
    values = (np.empty if scratch is None else scratch.empty)(picture.size, np.float32)
    values[:] = picture.alpha
    alpha = torch.from_numpy(values)
    return alpha.div_(alpha.max().clamp(min=1e-6))
