"""Plan: what denoising decides from a whole picture once, so that its parts can be computed anywhere, in any order.

The pixels are anything with a shape (h, w, c) and a dtype that gives an array for `pixels[top:bottom, left:right]`: an array
in memory, a memory-mapped file, or a file that is read by windows. They are never copied as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.apps.denoise.bands import (
    BAND_PIXELS,
    Window,
    bands,
    denoise_band,
    denoise_tile,
    halo,
    margin,
    tile_pixels,
    tiles,
)
from glocal.apps.denoise.calibration import Calibrated, calibrated
from glocal.apps.denoise.choice import Noise, choose, measure
from glocal.apps.denoise.cost import part_pixels
from glocal.apps.denoise.deep import DeepDenoiser
from glocal.apps.denoise.models import SHIPPED, load_deep, load_model
from glocal.apps.denoise.options import DenoiseOptions
from glocal.apps.denoise.parts import removed_parts
from glocal.errors import ArgumentError
from glocal.files.images.colors import white_of
from glocal.files.images.image_like import LargeMask
from glocal.files.images.picture import Array, row_bands, to_type
from glocal.machine import has_bfloat16

WHOLE = 1 << 16  # pictures up to so many pixels are searched as a whole
RADIUS = 10
GRAIN = 0.1  # of the finest luma noise that the model photo leaves
_CHROMA = 4.0  # colour differences are weaker than luminance: they are treated like a picture with more noise

_PEAK = 3.1  # times sigma: 99.9 % of the noise stay below, as of the pixels in `white_of`
# Rows: luminance, red - blue, green - magenta; orthonormal, so white noise stays white and as strong.
OPPONENT = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64)
OPPONENT = OPPONENT / OPPONENT.norm(dim=1, keepdim=True)


@dataclass(frozen=True, eq=False)
class Plan:
    """How one picture is denoised. It can be pickled.

    Attributes
    ----------
    shape
        (h, w, c) of the picture.
    white, sigma
        The value of white (see `white_of`), and the noise level in the picture's own units.
    noise
        What is known of the noise, in units of [0, 1].
    options
        The options, with the model that was chosen.
    nets
        A deep network for the picture's values, or a network for each opponent plane.
    mask
        The mask of a picture that is computed by `part`.
    """

    shape: tuple[int, int, int]
    white: float
    sigma: float
    noise: Noise
    options: DenoiseOptions
    search_radius: int | None
    nets: DeepDenoiser | tuple[Calibrated, ...] | None
    mask: LargeMask | None = None

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.nets is not None

    @property
    def halo(self) -> int | None:
        """How far around a window it is read, in pixels; None if every window needs the whole picture."""
        if self.nets is None:
            return 0
        if isinstance(self.nets, DeepDenoiser):
            return margin(self.nets.shape)
        architecture = self.nets[0].net.architecture
        if architecture.middle == "nonlocal" and self.search_radius is None:
            return None
        return halo(architecture, self.search_radius)

    def windows(self, *, pixels: int | None = None, rows: int | None = None) -> list[Window]:
        """Cut the picture into parts of about `pixels` pixels with their surroundings, or of `rows` rows.

        The parts change memory and time, never the result.
        """
        height, width, _ = self.shape
        if isinstance(self.nets, DeepDenoiser):
            return tiles(height, width, self.nets.shape, pixels=pixels or tile_pixels(self.nets), rows=rows)
        if self.halo is None:
            return [Window(0, height, 0, width)]
        return bands(height, width, pixels=pixels or BAND_PIXELS, rows=rows)

    def denoised(
        self,
        pixels: Any,
        window: Window,
        *,
        cover: Array | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Array:
        """Compute one window of the result.

        Parameters
        ----------
        pixels : see the module's text
            The whole picture; the window and its surroundings are read.
        window : Window
            Any part of the picture.
        cover : array (h', w') or None
            The mask of this window, in [0, 1].

        Returns
        -------
        array (h', w', c) of float32
            In the picture's own units. The same bits for any window.
        """
        values = to_type(np.asarray(pixels[window.slices]), np.dtype(np.float32))
        if self.nets is None:
            return values
        options, grain = self.options, self._grain
        larger = window.around(1, *self.shape[:2]) if grain else window  # grain depends on the next pixels
        result = self._network(pixels, larger, progress)
        if grain or options.luma < 1 or options.chroma < 1:
            removed = to_type(np.asarray(pixels[larger.slices]), np.dtype(np.float32)) - result
            part = removed_parts(removed, luma=options.luma, chroma=options.chroma, grain=grain)
            result = (
                values - part[window.top - larger.top :, window.left - larger.left :][: len(values), : values.shape[1]]
            )
        strength = options.strength
        if isinstance(self.nets, DeepDenoiser) and self.nets.shape.maps > 1:  # the other networks get a lower sigma
            strength *= self.noise.share
        if strength < 1:
            result = values + np.float32(strength) * (result - values)
        if cover is not None:
            weight = cover[:, :, None]
            result = np.where(weight == 0, values, values + weight * (result - values))
        return result

    def most_pixels(self, memory: int) -> int:
        """Return the size of the largest part that fits into this memory."""
        return part_pixels(self.options.model, memory) or 0

    def part(self, pixels: Any, place: tuple[int, int, int, int]) -> Array:
        """Compute the rectangle `place` (top, bottom, left, right) of the result; see `denoised`."""
        window = Window(*place)
        return self.denoised(pixels, window, cover=None if self.mask is None else self.mask[window.slices])

    @property
    def _grain(self) -> float:
        if self.options.grain is not None:
            return self.options.grain
        return GRAIN if self.options.model == "photo" else 0.0

    def _network(self, pixels: Any, window: Window, progress: Callable[[float], None] | None) -> Array:
        """Return a window of what the networks make of the picture, in its own units."""
        size, read = self.shape[:2], self._reader(pixels)
        if isinstance(self.nets, DeepDenoiser):
            level = self.noise.sigma if self.nets.shape.maps == 1 else self.noise.profile
            found = denoise_tile(read, size, window, self.nets, level)[: self.shape[2]]
        else:
            assert self.nets is not None
            planes = denoise_band(read, size, window, self.nets, search_radius=self.search_radius, progress=progress)
            found = planes if len(planes) == 1 else _mix(OPPONENT.T, planes)
        values: Array = found.permute(1, 2, 0).contiguous().cpu().numpy() * np.float32(self.white)
        return values

    def _reader(self, pixels: Any) -> Callable[[Window], Tensor]:
        """Return what the networks read: values in [0, 1], as opponent colours unless the network is deep."""
        deep = isinstance(self.nets, DeepDenoiser)

        def read(window: Window) -> Tensor:
            values = _unit(np.asarray(pixels[window.slices]), self.white)
            planes = torch.from_numpy(values).permute(2, 0, 1) if deep else to_planes(values)
            if isinstance(self.nets, DeepDenoiser):
                planes = planes.expand(self.nets.shape.channels, -1, -1)  # gray pictures for a colour network
            return planes.to(self.options.device)

        return read


def plan_for(
    pixels: Any, options: DenoiseOptions, *, flat: Any = None, mask: LargeMask | None = None, models: Path = SHIPPED
) -> Plan:
    """Decide the noise level and the networks for a picture.

    Parameters
    ----------
    pixels : see the module's text
    flat : the same of a photo of a flat area, or None
        Where the noise is measured.
    mask : LargeMask or None
        Where the picture changes, if its parts are computed one by one.

    Returns
    -------
    Plan
        Cost: two passes over the picture at most, in bands of 256 rows.

    Raises
    ------
    ModelError
        If the model is missing or damaged.
    ArgumentError
        If both the level and a flat area are given.
    """
    if flat is not None and options.sigma is not None:
        message = "denoise: give either `sigma` or `noise_profile`; both were given. A profile measures the level."
        raise ArgumentError(message)
    height, width, channels = pixels.shape
    white = white_of(pixels)  # the networks know pictures in [0, 1]
    if options.sigma is not None:
        white = _without_noise(white, options.sigma)
        noise = Noise.white(options.sigma / white)
    elif flat is not None:
        noise = measure(flat, white_of(flat))
    else:
        noise = measure(pixels, white)
        less = _without_noise(white, white * noise.sigma)
        if less < white:
            white, noise = less, measure(pixels, less)
    level = float(options.sigma or white * noise.sigma)
    options = replace(options, model=choose(options.model, noise, height * width, options.device, models))
    radius = options.search_radius
    if radius is None and height * width > WHOLE:
        radius = RADIUS
    nets: DeepDenoiser | tuple[Calibrated, ...] | None = None
    if level > 0 and options.strength > 0:
        deep = load_deep(options.model, channels, folder=models)
        if deep is None:
            nets = _networks(pixels, white, level / white, options, models)
        else:
            fast = has_bfloat16(options.device)
            nets = (deep.in_bfloat16() if fast else deep).to(options.device)
    return Plan((height, width, channels), white, level, noise, options, radius, nets, mask)


def _without_noise(white: float, sigma: float) -> float:
    """Return the white of a picture whose noise reaches beyond it: the noise is no larger range.

    >>> _without_noise(1.3, 0.1), _without_noise(1.0, 0.2)
    (1.0, 1.0)
    """
    return max(1.0, white - _PEAK * sigma)


def to_planes(values: Array) -> Tensor:
    """Convert (h, w, 1 or 3) to opponent planes (1 or 3, h, w) float32."""
    planes = torch.from_numpy(values).permute(2, 0, 1)
    return planes if len(planes) == 1 else _mix(OPPONENT, planes)


def _unit(pixels: Array, white: float) -> Array:
    values = to_type(pixels, np.dtype(np.float32))
    return values / np.float32(white) if white > 1 else np.ascontiguousarray(values)


def _bands(pixels: Any, white: float) -> Iterator[Tensor]:
    for rows in row_bands(pixels.shape[0]):
        yield to_planes(_unit(np.asarray(pixels[rows]), white))


def _networks(pixels: Any, white: float, sigma: float, options: DenoiseOptions, models: Path) -> tuple[Calibrated, ...]:
    """Return the network of each opponent plane. Luminance has negative values only in pictures with signs."""
    channels = pixels.shape[2]
    low, high, negative = [math.inf] * channels, [-math.inf] * channels, 0
    for planes in _bands(pixels, white):
        low = [min(a, float(plane.min())) for a, plane in zip(low, planes, strict=True)]
        high = [max(a, float(plane.max())) for a, plane in zip(high, planes, strict=True)]
        negative += int((planes[0] < -3 * sigma).sum())
    # Noise alone moves one value in 740 below -3 sigma.
    signed = negative > 0.01 * pixels.shape[0] * pixels.shape[1]
    light = _calibrated(sigma, sigma / math.sqrt(channels), options, models, low=low[0], high=high[0], signed=signed)
    if channels == 1:
        return (light,)
    chroma = _calibrated(sigma, _CHROMA * sigma, options, models, low=min(low[1:]), high=max(high[1:]), signed=True)
    return (light, chroma, chroma)


def _calibrated(
    sigma: float, level: float, options: DenoiseOptions, models: Path, *, low: float, high: float, signed: bool
) -> Calibrated:
    """Return the network trained nearest to `level`, for planes with the noise `sigma` and values from `low` to `high`.

    Luminance is `sqrt(3)` times as large as a gray picture with the same noise, so it is treated like one with less noise.
    Colour differences (`signed`) are around 0. The networks were trained on [0, 1], so these are shifted to its middle.
    """
    net = load_model(options.model, level, folder=models)
    offset = 0.5 * sigma / net.trained if signed else 0.0
    return calibrated(net.at_sigma(sigma).to(options.device), low=low, high=high, offset=offset)


def _mix(matrix: Tensor, planes: Tensor) -> Tensor:
    """Multiply (3, h, w) by a 3 x 3 matrix in float64, in an order that does not depend on the size."""
    a, b, c = planes.to(torch.float64)
    return torch.stack([(row[0] * a + row[1] * b + row[2] * c).to(torch.float32) for row in matrix.tolist()])
