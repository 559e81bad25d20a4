"""`glocal.denoise`: white noise out of photos, gray or colour, of any size, depth and noise level.

Deviations from the paper: it denoises gray pictures of 128 x 128 at one noise level. Here the networks are used at any level
by homogeneity, colours go through an orthonormal opponent transform (so that the noise is as strong in each channel) and share
the graph of their luminance, and large pictures look for similar patches within `search_radius`. The models "local"
and "nonlocal" are the paper's; "wide" has 32 filters of 5 x 5 and 16 neighbours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.apps.denoise.bands import denoise_planes
from glocal.apps.denoise.calibration import Calibrated, calibrated
from glocal.apps.denoise.models import SHIPPED, load_model
from glocal.apps.denoise.noise import estimate_sigma
from glocal.apps.denoise.options import DenoiseOptions, Device
from glocal.errors import DeviceError, InputError
from glocal.files.images.convert import picture_from
from glocal.files.images.picture import Picture, to_type, with_alpha

WHOLE = 1 << 16  # pictures up to so many pixels are searched as a whole
RADIUS = 10
SMALLEST = 8
_CHROMA = 4.0  # colour differences are weaker than luminance: they are treated like a picture with more noise

# Rows: luminance, red - blue, green - magenta; orthonormal, so white noise stays white and as strong.
OPPONENT = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64)
OPPONENT = OPPONENT / OPPONENT.norm(dim=1, keepdim=True)


@dataclass(frozen=True, eq=False)
class Denoised:
    """A denoised picture of the input's kind, the noise level assumed, whether that was estimated, and the time taken."""

    image: Any
    sigma: float
    estimated: bool
    model: str
    seconds: float
    picture: Picture
    removed: npt.NDArray[Any]


def denoise(
    image: Any,
    sigma: float | None = None,
    *,
    model: str = DenoiseOptions.model,
    strength: float = DenoiseOptions.strength,
    search_radius: int | None = DenoiseOptions.search_radius,
    device: Device = DenoiseOptions.device,
    rows: int | None = None,
    models: Path = SHIPPED,
    progress: Callable[[float], None] | None = None,
) -> Denoised:
    """Remove white noise from a picture.

    Parameters
    ----------
    image : array (h, w), (h, w, 1 to 4) of uint8, uint16 or float in [0, 1]; a PIL.Image; or a path
        Alpha and colour profile are kept; the picture's own values are denoised.
    sigma : float or None
        Standard deviation of the noise in units of [0, 1] (25/255 for "25"); None estimates it.
    model : "local", "nonlocal" (the paper's), "wide", or a `.safetensors` file of your own
    strength : float from 0 to 1
        How much of what was found to be noise is taken away.
    search_radius : int or None
        How far similar patches are looked for; None looks everywhere in pictures up to 65,536 pixels and 10 pixels far in
        larger ones.
    device : "cpu" or "cuda"
    rows : int or None
        Rows processed at a time. It changes memory and time, never the result.

    Returns
    -------
    Denoised. Time O(n search_radius^2); memory about six copies of the picture in float32 and one band.

    Raises
    ------
    InputError
        If the picture holds NaN, is under 8 x 8 pixels or cannot be read.
    ModelError
        If the weights are missing or damaged.

    >>> noisy = 0.5 + np.random.default_rng(0).normal(0, 0.1, (32, 32))
    >>> result = denoise(noisy, 0.1, model="local")
    >>> result.image.shape, bool(result.image.std() < noisy.std() / 2)
    ((32, 32, 1), True)
    """
    started = time.perf_counter()
    options = DenoiseOptions(sigma=sigma, model=model, strength=strength, search_radius=search_radius, device=device)
    picture = picture_from(image)
    _check(picture, options)
    values = to_type(picture.pixels, np.dtype(np.float32))
    planes = _to_planes(values)
    level = options.sigma or _estimate(planes)
    cleaned, done = values, picture
    if level > 0 and options.strength > 0:
        found = _denoised(planes, level, options, models, rows, progress)
        found = torch.lerp(planes, found, options.strength) if options.strength < 1 else found
        cleaned = _from_planes(found)
        pixels = to_type(cleaned, picture.pixels.dtype) if picture.pixels.dtype.kind == "u" else cleaned
        done = replace(picture, pixels=pixels.astype(picture.pixels.dtype, copy=False))
    seconds = time.perf_counter() - started
    return Denoised(_like(done), level, options.sigma is None, model, seconds, done, values - cleaned)


def residual_picture(result: Denoised) -> Picture:
    """What was removed, around middle gray and magnified so that four times sigma reaches black or white."""
    gain = 0.5 / (4 * max(result.sigma, 1e-6))
    shown = np.clip(0.5 + gain * result.removed, 0, 1).astype(np.float32)
    return Picture(pixels=to_type(shown, np.dtype(np.uint8)))


def _denoised(
    planes: Tensor,
    sigma: float,
    options: DenoiseOptions,
    models: Path,
    rows: int | None,
    progress: Callable[[float], None] | None,
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
    """The network trained nearest to `level`, for planes with the noise `sigma`.

    Luminance is `sqrt(3)` times as large as a gray picture with the same noise, so it is treated like one with less noise.
    Colour differences (`signed`) lie around 0; the networks know pictures in [0, 1], so these are moved to its middle.
    """
    net = load_model(options.model, level, folder=models)
    offset = 0.5 * sigma / net.trained if signed else 0.0
    net = net.at_sigma(sigma).to(options.device)
    return calibrated(net, low=float(planes.min()), high=float(planes.max()), offset=offset)


def _signed(plane: Tensor, sigma: float) -> bool:
    """Whether a plane has negative values of its own: noise alone brings one value in 740 below `-3 sigma`."""
    return float((plane < -3 * sigma).float().mean()) > 0.01


def _check(picture: Picture, options: DenoiseOptions) -> None:
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
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        message = f"denoise: the device {options.device!r} is not available here. Use cpu."
        raise DeviceError(message)


def _estimate(planes: Tensor) -> float:
    return estimate_sigma(planes[0].numpy())


def _to_planes(values: npt.NDArray[Any]) -> Tensor:
    """(h, w, 1 or 3) -> (1 or 3, h, w) float32, colours as opponents; row by row, so no float64 copy of the picture."""
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


def _like(picture: Picture) -> Any:
    """The picture as the kind of thing it was given as."""
    if picture.kind == "pil":
        from glocal.files.images.pillow_formats import to_pil

        return to_pil(picture)
    return with_alpha(picture.pixels, picture.alpha)
