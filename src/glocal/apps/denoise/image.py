"""`glocal.denoise`: remove white noise from photos, gray or colour, of any size, depth and noise level.

Deviations from the paper: it denoises gray pictures of 128 x 128 at one noise level. Here the networks are used at any level
by homogeneity. Colours are transformed by an orthonormal opponent transform, so that the noise is equal in each channel, and
share the graph of their luminance. In large pictures similar patches are searched within `search_radius`. The models "local"
and "nonlocal" are the paper's; "wide" has 32 filters of 5 x 5 and 16 neighbours; "small" is a deep network on a graph
that it builds from learned features.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.apps.denoise.bands import denoise_deep, denoise_planes
from glocal.apps.denoise.calibration import Calibrated, calibrated
from glocal.apps.denoise.models import SHIPPED, load_deep, load_model
from glocal.apps.denoise.noise import estimate_sigma
from glocal.apps.denoise.options import DEEP_MODELS, DenoiseOptions
from glocal.errors import InputError
from glocal.files.images.colors import white_of
from glocal.files.images.kinds import ImageLike, Layout, as_picture, mask_values
from glocal.files.images.picture import Picture, to_type, type_of
from glocal.files.provenance import build_recipe
from glocal.files.results import ImageResult, image_inputs
from glocal.machine import computing_on
from glocal.options import takes_options
from glocal.progress import Callback, Meter

WHOLE = 1 << 16  # pictures up to so many pixels are searched as a whole
RADIUS = 10
SMALLEST = 8
_CHROMA = 4.0  # colour differences are weaker than luminance: they are treated like a picture with more noise

# Rows: luminance, red - blue, green - magenta; orthonormal, so white noise stays white and as strong.
OPPONENT = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64)
OPPONENT = OPPONENT / OPPONENT.norm(dim=1, keepdim=True)


@dataclass(frozen=True, eq=False, repr=False)
class Denoised(ImageResult):
    """A denoised picture. See `Result` for the fields of all results.

    Attributes
    ----------
    sigma, estimated
        The noise level that was assumed, in units of [0, 1], and whether it was estimated.
    values
        The result as float32 in the picture's own colours, (h, w, 1 or 3).
    removed
        The input minus the result, as float32.
    """

    sigma: float = field(kw_only=True)
    estimated: bool = field(kw_only=True)
    model: str = field(kw_only=True)
    values: npt.NDArray[Any] = field(kw_only=True)
    changed: bool = field(default=True, kw_only=True)

    @cached_property
    def removed(self) -> npt.NDArray[Any]:
        """The removed noise, (h, w, 1 or 3) float32."""
        removed: npt.NDArray[Any] = to_type(self.original.pixels, np.dtype(np.float32)) - self.values
        return removed

    def at_depth(self, depth: str) -> Picture:
        """Return the result with the profile and metadata of the input."""
        dtype = self.original.pixels.dtype if depth == "keep" else type_of(depth)
        if not self.changed:
            return replace(self.original, pixels=to_type(self.original.pixels, dtype))
        return replace(self.original, pixels=to_type(self.values, dtype))


@takes_options(DenoiseOptions, positional=("sigma",))
def denoise(
    image: ImageLike,
    *,
    options: DenoiseOptions,
    mask: ImageLike | None = None,
    layout: Layout | None = None,
    rows: int | None = None,
    models: Path = SHIPPED,
    progress: Callback | None = None,
) -> Denoised:
    """Remove white noise from a picture.

    Parameters
    ----------
    image : array (h, w), (h, w, 1 to 4) of uint8, uint16 or float in [0, 1]; tensor; a PIL.Image; or a path
        Alpha and colour profile are kept. The picture's own values are denoised, without a colour conversion.
    {options}
    options : DenoiseOptions
        All options at once. Single options change it.
    mask : image or None
        Denoise only where it is white, with a soft edge where it is gray. A mask of another size is scaled.
    layout : "HWC", "CHW" or None
        Order of the axes of arrays and tensors; a tensor (3, h, w) needs "CHW".
    rows : int or None
        Rows processed at a time. It changes memory and time, never the result.
    progress : callable(Progress) or None
        Called during the work.

    Returns
    -------
    Denoised
        Time: O(n search_radius^2). Memory: about six copies of the picture in float32 and one band.

    Raises
    ------
    InputError
        If the picture contains NaN, is smaller than 8 x 8 pixels or cannot be read.
    ModelError
        If the weights are missing or damaged.

    Examples
    --------
    >>> noisy = 0.5 + np.random.default_rng(0).normal(0, 0.1, (32, 32))
    >>> result = denoise(noisy, 0.1, model="local")
    >>> result.image.shape, bool(result.image.std() < noisy.std() / 2)
    ((32, 32), True)
    """
    started = time.perf_counter()
    picture = as_picture(image, call="denoise", name="image", layout=layout)
    _check(picture)
    shade = None if mask is None else as_picture(mask, call="denoise", name="mask", layout=layout)
    inputs, arguments = _sources(picture, shade, options)
    values = to_type(picture.pixels, np.dtype(np.float32))
    with (
        computing_on("denoise", options.device),
        Meter(progress, expected=seconds_for(picture.size, options.model)) as meter,
    ):
        white = white_of(picture.pixels)  # the networks know pictures in [0, 1]
        given = values / np.float32(white) if white > 1 else values
        planes = _to_planes(given)
        level = float(options.sigma or white * _estimate(planes))
        changed = level > 0 and options.strength > 0
        if changed:
            found = _cleaned(given, planes, level / white, options, models, rows, meter if meter.callback else None)
            cleaned = found * np.float32(white)
            if options.strength < 1:
                cleaned = values + np.float32(options.strength) * (cleaned - values)
            if shade is not None:
                cover = mask_values(shade, picture.size, call="denoise")[:, :, None]
                cleaned = np.where(cover == 0, values, values + cover * (cleaned - values))
            values = cleaned
    return Denoised(
        seconds=time.perf_counter() - started,
        recipe=build_recipe("denoise", options, inputs=inputs, arguments=arguments),
        notes=(*picture.notes, *_notes(options)),
        original=picture,
        given=image,
        layout=layout,
        sigma=level,
        estimated=options.sigma is None,
        model=options.model,
        values=values,
        changed=changed,
    )


def _sources(
    picture: Picture, mask: Picture | None, options: DenoiseOptions
) -> tuple[list[str | tuple[str, str]], dict[str, Any]]:
    """Return the inputs and arguments of the recipe; a model of the user's own is an input."""
    files, pixels = image_inputs({"photo": picture} if mask is None else {"photo": picture, "mask": mask})
    arguments: dict[str, Any] = {"positional": [str(picture.path)] if picture.path is not None else []}
    arguments["mask"] = str(mask.path) if mask is not None and mask.path is not None else None
    inputs: list[Any] = [*files]
    if options.model.endswith(".safetensors") and Path(options.model).is_file():
        inputs.append(options.model)
    return inputs, arguments | ({"pixels_sha256": pixels} if pixels else {})


def seconds_for(size: tuple[int, int], model: str) -> float:
    """Estimate the seconds for a picture of this height and width: a few seconds per megapixel."""
    return 3 + (1e-5 if model in DEEP_MODELS else 4e-6) * size[0] * size[1]


def residual_picture(result: Denoised) -> Picture:
    """Draw the removed noise around middle gray, scaled so that four times sigma is black or white."""
    gain = 0.5 / (4 * max(result.sigma, 1e-6))
    shown = np.clip(0.5 + gain * result.removed, 0, 1).astype(np.float32)
    return Picture(pixels=to_type(shown, np.dtype(np.uint8)))


def _notes(options: DenoiseOptions) -> tuple[str, ...]:
    if options.search_radius is None or options.model not in DEEP_MODELS:
        return ()
    return (f"the model {options.model} has a window of its own: search_radius was not used",)


def _cleaned(
    values: npt.NDArray[Any],
    planes: Tensor,
    sigma: float,
    options: DenoiseOptions,
    models: Path,
    rows: int | None,
    progress: Callable[[float], object] | None,
) -> npt.NDArray[Any]:
    """Return the values (h, w, c) without noise. A deep network takes them directly, the others as opponent colours."""
    deep = load_deep(options.model, len(planes), folder=models)
    if deep is None:
        return _from_planes(_denoised(planes, sigma, options, models, rows, progress))
    given = torch.from_numpy(values).permute(2, 0, 1).to(options.device)
    found = denoise_deep(given, deep.to(options.device), sigma, rows=rows, progress=progress)
    return found.permute(1, 2, 0).contiguous().cpu().numpy()


def _denoised(
    planes: Tensor,
    sigma: float,
    options: DenoiseOptions,
    models: Path,
    rows: int | None,
    progress: Callable[[float], object] | None,
) -> Tensor:
    nets = [
        _calibrated(
            planes[:1], sigma, sigma / math.sqrt(len(planes)), options, models, signed=_signed(planes[0], sigma)
        )
    ]
    if len(planes) == 3:
        nets += [_calibrated(planes[1:], sigma, _CHROMA * sigma, options, models, signed=True)] * 2
    radius = options.search_radius
    if radius is None and planes[0].numel() > WHOLE:
        radius = RADIUS
    moved = planes.to(options.device)
    return denoise_planes(moved, nets, search_radius=radius, rows=rows, progress=progress).to(planes.device)


def _calibrated(
    planes: Tensor, sigma: float, level: float, options: DenoiseOptions, models: Path, *, signed: bool
) -> Calibrated:
    """Return the network trained nearest to `level`, for planes with the noise `sigma`.

    Luminance is `sqrt(3)` times as large as a gray picture with the same noise, so it is treated like one with less noise.
    Colour differences (`signed`) are around 0. The networks were trained on [0, 1], so these are shifted to its middle.
    """
    net = load_model(options.model, level, folder=models)
    offset = 0.5 * sigma / net.trained if signed else 0.0
    net = net.at_sigma(sigma).to(options.device)
    return calibrated(net, low=float(planes.min()), high=float(planes.max()), offset=offset)


def _signed(plane: Tensor, sigma: float) -> bool:
    """Whether a plane has negative values without noise: noise alone moves one value in 740 below `-3 sigma`."""
    return float((plane < -3 * sigma).float().mean()) > 0.01


def _check(picture: Picture) -> None:
    height, width = picture.size
    if min(height, width) < SMALLEST:
        message = (
            f"denoise: the picture (h={height}, w={width}) is smaller than {SMALLEST} x {SMALLEST}, too small for its patches. "
            "Use a larger one."
        )
        raise InputError(message)
    if picture.pixels.dtype.kind == "f" and not np.isfinite(picture.pixels).all():
        bad = int((~np.isfinite(picture.pixels)).sum())
        message = f"denoise: the picture holds {bad} value(s) that are NaN or infinite. Replace them first."
        raise InputError(message)


def _estimate(planes: Tensor) -> float:
    return estimate_sigma(planes[0].numpy())


def _to_planes(values: npt.NDArray[Any]) -> Tensor:
    """Convert (h, w, 1 or 3) to opponent planes (1 or 3, h, w) float32, row by row, without a float64 copy."""
    height, width, channels = values.shape
    planes = torch.empty(channels, height, width)
    for top in range(0, height, 256):
        part = torch.from_numpy(values[top : top + 256]).permute(2, 0, 1)
        planes[:, top : top + 256] = part if channels == 1 else _mix(OPPONENT, part)
    return planes


def _from_planes(planes: Tensor) -> npt.NDArray[Any]:
    """Undo `_to_planes`."""
    channels, height, width = planes.shape
    values = torch.empty(height, width, channels)
    for top in range(0, height, 256):
        part = planes[:, top : top + 256]
        values[top : top + 256] = (part if channels == 1 else _mix(OPPONENT.T, part)).permute(1, 2, 0)
    return values.numpy()


def _mix(matrix: Tensor, planes: Tensor) -> Tensor:
    return torch.einsum("ij,jhw->ihw", matrix, planes.to(torch.float64)).to(torch.float32)
