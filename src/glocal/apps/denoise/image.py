"""`glocal.denoise`: remove white noise and the noise of cameras from photos, gray or colour, of any size, depth and level.

Deviations from the paper: it denoises gray pictures of 128 x 128 at one noise level. Here the networks are used at any level
by homogeneity. Colours are transformed by an orthonormal opponent transform, so that the noise is equal in each channel, and
share the graph of their luminance. In large pictures similar patches are searched within `search_radius`. The models "local"
and "nonlocal" are the paper's; "wide" has 32 filters of 5 x 5 and 16 neighbours; "small", "large" and "photo" are
deep networks on graphs that they build from learned features.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.apps.denoise.bands import Window
from glocal.apps.denoise.cost import part_pixels, seconds_for
from glocal.apps.denoise.models import SHIPPED
from glocal.apps.denoise.options import DEEP_MODELS, DenoiseOptions
from glocal.apps.denoise.plan import plan_for
from glocal.errors import InputError
from glocal.files.images.image_like import ImageLike, Layout, as_picture, mask_notes, mask_values
from glocal.files.images.picture import Picture, check_finite, row_bands, to_type, type_of
from glocal.files.images.scratch import Scratch
from glocal.files.provenance import build_recipe
from glocal.files.results import ImageResult, image_inputs
from glocal.machine import computing_on
from glocal.options import takes_options
from glocal.progress import Callback, Meter
from glocal.progress_bar import shown

SMALLEST = 8


@dataclass(frozen=True, eq=False, repr=False)
class Denoised(ImageResult):
    """A denoised picture. See `Result` for the fields of all results.

    Attributes
    ----------
    sigma, estimated
        The noise level that was assumed, in units of [0, 1], and whether it was estimated. For camera noise it is the level
        of the white noise that would be about as hard to remove.
    model, camera
        The model that was used, and whether the noise is that of a camera (as estimated) instead of white noise.
    values
        The result as float32 in the picture's own colours, (h, w, 1 or 3).
    removed
        The input minus the result, as float32.
    """

    sigma: float = field(kw_only=True)
    estimated: bool = field(kw_only=True)
    model: str = field(kw_only=True)
    camera: bool = field(default=False, kw_only=True)
    values: npt.NDArray[Any] = field(kw_only=True)
    changed: bool = field(default=True, kw_only=True)

    scratch: Scratch | None = field(default=None, kw_only=True)

    @cached_property
    def removed(self) -> npt.NDArray[Any]:
        """The removed noise, (h, w, 1 or 3) float32."""
        removed: npt.NDArray[Any] = to_type(self.original.pixels, np.dtype(np.float32)) - self.values
        return removed

    def at_depth(self, depth: str) -> Picture:
        """Return the result with the profile and metadata of the input."""
        dtype = self.original.pixels.dtype if depth == "keep" else type_of(depth)
        source = self.values if self.changed else self.original.pixels
        if source.dtype == dtype:
            return replace(self.original, pixels=source)
        pixels = _empty(self.scratch, source.shape, dtype)
        for rows in row_bands(len(source)):
            pixels[rows] = to_type(source[rows], dtype)
            _release(self.scratch)
        return replace(self.original, pixels=pixels)


@takes_options(DenoiseOptions, positional=("sigma",))
def denoise(
    image: ImageLike,
    *,
    options: DenoiseOptions,
    mask: ImageLike | None = None,
    noise_profile: ImageLike | None = None,
    layout: Layout | None = None,
    rows: int | None = None,
    models: Path = SHIPPED,
    scratch: Scratch | None = None,
    progress: Callback | bool | None = None,
) -> Denoised:
    """Remove the noise of a picture: white noise, or that of a camera.

    Without `sigma` the noise is estimated from the picture. The model "auto" depends on what is found: `photo` for the noise
    of cameras, `small` or `large` for white noise.

    Parameters
    ----------
    image : array (h, w), (h, w, 1 to 4) of uint8, uint16 or float in [0, 1]; tensor; a PIL.Image; or a path
        Alpha and colour profile are kept. The picture's own values are denoised, without a colour conversion.
    {options}
    options : DenoiseOptions
        All options at once. Single options change it.
    mask : image or None
        Denoise only where it is white, with a soft edge where it is gray. A mask of another size is scaled.
    noise_profile : image or None
        A photo of a flat area, taken with the same camera and settings. The noise is then measured on it.
    layout : "HWC", "CHW" or None
        Order of the axes of arrays and tensors; a tensor (3, h, w) needs "CHW".
    rows : int or None
        Rows processed at a time. It changes memory and time, never the result.
    scratch : Scratch or None
        Keep large arrays in temporary files and compute in parts that fit into its memory. The result is the same.
    progress : callable(Progress), True or None
        Called during the work; True draws a bar, in a terminal or a notebook.

    Returns
    -------
    Denoised
        Time: O(n search_radius^2). Memory: the picture, the result in float32 and one part; with `scratch` the part.

    Raises
    ------
    InputError
        If the picture contains NaN, is smaller than 8 x 8 pixels or cannot be read.
    ModelError
        If the model is missing or damaged.

    Examples
    --------
    >>> noisy = 0.5 + np.random.default_rng(0).normal(0, 0.1, (32, 32))
    >>> result = denoise(noisy, 0.1, model="local")
    >>> result.image.shape, bool(result.image.std() < noisy.std() / 2)
    ((32, 32), True)
    """
    started = time.perf_counter()
    picture = as_picture(image, call="denoise", name="image", layout=layout, scratch=scratch)
    _check(picture)
    shade = None if mask is None else as_picture(mask, call="denoise", name="mask", layout=layout, scratch=scratch)
    flat = None if noise_profile is None else _flat(noise_profile, layout)
    inputs, arguments = _sources({"photo": picture, "mask": shade, "noise_profile": flat}, options)
    with (
        computing_on("denoise", options.device),
        shown(progress, "denoise") as tell,
        Meter(tell, expected=seconds_for(picture.size, options.model)) as meter,
    ):
        plan = plan_for(picture.pixels, options, flat=None if flat is None else flat.pixels, models=models)
        values = picture.pixels
        if plan.changes:
            values = _empty(scratch, plan.shape, np.float32)
            cover = _cover(shade, picture.size)
            parts = plan.windows(rows=rows, pixels=part_pixels(options.model, scratch.memory if scratch else None))
            for number, part in enumerate(parts):
                values[part.slices] = plan.denoised(
                    picture.pixels, part, cover=cover(part), progress=_graph_progress(meter, number, len(parts))
                )
                meter((number + 1) / len(parts))
                _release(scratch)
    return Denoised(
        seconds=time.perf_counter() - started,
        recipe=build_recipe("denoise", options, inputs=inputs, arguments=arguments),
        notes=(*picture.notes, *mask_notes(shade, picture.size), *_notes(plan.options)),
        original=picture,
        given=image,
        layout=layout,
        sigma=plan.sigma,
        estimated=options.sigma is None,
        model=plan.options.model,
        camera=plan.noise.camera,
        values=to_type(values, np.dtype(np.float32)) if scratch is None else values,
        changed=plan.changes,
        scratch=scratch,
    )


def _sources(
    pictures: dict[str, Picture | None], options: DenoiseOptions
) -> tuple[list[str | tuple[str, str]], dict[str, Any]]:
    """Return the inputs and arguments of the recipe; a model of the user's own is an input."""
    files, pixels = image_inputs({name: picture for name, picture in pictures.items() if picture is not None})
    paths = {name: str(p.path) if p is not None and p.path is not None else None for name, p in pictures.items()}
    photo = paths.pop("photo")
    arguments: dict[str, Any] = {"positional": [photo] if photo is not None else [], **paths}
    inputs: list[Any] = [*files]
    if options.model.endswith(".safetensors") and Path(options.model).is_file():
        inputs.append(options.model)
    return inputs, arguments | ({"pixels_sha256": pixels} if pixels else {})


def _flat(image: ImageLike, layout: Layout | None) -> Picture:
    flat = as_picture(image, call="denoise", name="noise_profile", layout=layout)
    _check(flat, "noise profile")
    return flat


def residual_picture(result: Denoised) -> Picture:
    """Draw the removed noise around middle gray, scaled so that four times sigma is black or white."""
    gain = 0.5 / (4 * max(result.sigma, 1e-6))
    before, after = result.original.pixels, result.values
    shown = _empty(result.scratch, after.shape, np.uint8)
    for rows in row_bands(len(after)):
        removed = to_type(before[rows], np.dtype(np.float32)) - to_type(after[rows], np.dtype(np.float32))
        shown[rows] = to_type(np.clip(0.5 + gain * removed, 0, 1).astype(np.float32), np.dtype(np.uint8))
    _release(result.scratch)
    return Picture(pixels=shown)


def _cover(mask: Picture | None, size: tuple[int, int]) -> Callable[[Window], npt.NDArray[Any] | None]:
    """Return a function that gives the values of the mask in a window."""
    if mask is None:
        return lambda part: None
    if mask.size == size and mask.pixels.dtype.kind == "u":
        return lambda part: mask_values(
            replace(mask, pixels=mask.pixels[part.slices], alpha=None),
            (part.bottom - part.top, part.right - part.left),
            call="denoise",
        )
    whole = mask_values(mask, size, call="denoise")
    return lambda part: whole[part.slices]


def _empty(scratch: Scratch | None, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    return np.empty(shape, dtype) if scratch is None else scratch.empty(shape, dtype)


def _release(scratch: Scratch | None) -> None:
    if scratch is not None:
        scratch.release()


def _graph_progress(meter: Meter, number: int, count: int) -> Callable[[float], None] | None:
    """Return a callback for the search of neighbours, which counts as the first half of a part."""
    if meter.callback is None:
        return None

    def relay(fraction: float) -> None:
        meter((number + 0.5 * fraction) / count)

    return relay


def _notes(options: DenoiseOptions) -> tuple[str, ...]:
    if options.search_radius is None or options.model not in DEEP_MODELS:
        return ()
    return (f"the model {options.model} has a window of its own: search_radius was not used",)


def _check(picture: Picture, name: str = "picture") -> None:
    height, width = picture.size
    if min(height, width) < SMALLEST:
        message = (
            f"denoise: the {name} (h={height}, w={width}) is smaller than {SMALLEST} x {SMALLEST}, too small for its patches. "
            "Use a larger one."
        )
        raise InputError(message)
    if picture.pixels.dtype.kind == "f":
        check_finite(picture.pixels, f"denoise: the {name}")
