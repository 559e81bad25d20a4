"""Find out what noise a picture has, and choose the network for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.apps.denoise.noise import sampled_rows, sigma_of
from glocal.apps.denoise.profile import BINS, PLANES, SCALES, noise_profile, noise_share
from glocal.files.images.picture import to_type
from glocal.files.model_files import read_index

# White noise reads alike at every scale. In photos of cameras the colours read more at half resolution than at full: at least
# 1.3 times for synthetic cameras, at most 1.3 times for white noise of 5 of 255 or more (held-out photos).
_COARSE_CHROMA = 1.4
_WEAK_CHROMA = 0.35  # of the luma: less than white noise has (0.4 or more), as JPEG removes weak noise of the colours
_COARSE_LUMA = 1.9  # of gray pictures, whose texture reads like coarse noise
# The white noise that networks of white noise should assume for camera noise: chosen with `small` on synthetic cameras.
_LEVEL = 1.2  # times the coarsest reading of the colours, but at least
_LEAST, _POWER = 4 / 255, 0.4  # _LEAST (255 x)^_POWER for the finest reading x of the luma
_PIXELS = 1 << 20  # larger pictures are read on evenly spaced strips: enough patches, and 240 bytes for each pixel
_STRIP = 64
_LARGE = 1 << 26  # pixels up to which the large network takes some seconds on a GPU


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of a picture.

    Attributes
    ----------
    sigma
        Its standard deviation, or that of the white noise that a network has to assume to remove it.
    camera
        Whether it is the noise of a camera (coarse, or different in luma and chroma) instead of white noise.
    profile
        The readings of `noise_profile`, (1, 2, 3, 8).
    share
        How much of the readings is noise and not texture (`noise_share`). `photo` changes the picture by this part only.
    """

    sigma: float
    camera: bool
    profile: Tensor
    share: float = 1.0

    @staticmethod
    def white(sigma: float) -> Noise:
        """Return white noise of a known level.

        >>> Noise.white(0.1).camera
        False
        """
        return Noise(sigma, camera=False, profile=torch.full((1, PLANES, SCALES, BINS), sigma))


def measure(pixels: Any, white: float = 1.0) -> Noise:
    """Estimate the noise of a picture.

    Parameters
    ----------
    pixels : anything with a shape (h, w, 1 or 3) that gives an array for `pixels[top:bottom]`
        The picture. Large ones are read on evenly spaced strips.
    white : float
        The value of white.

    Returns
    -------
    Noise
        In units of [0, 1]. Cost: O(h w), for at most a million pixels.

    Examples
    --------
    >>> noise = measure(np.random.default_rng(0).normal(0.5, 0.1, (96, 96, 3)).astype(np.float32))
    >>> round(noise.sigma, 1), noise.camera
    (0.1, False)
    """
    height, width, channels = pixels.shape
    strips = [_unit(np.asarray(pixels[top:bottom]), white) for top, bottom in _strips(height, width)]
    planes = torch.from_numpy(np.stack(strips)).permute(0, 3, 1, 2)
    profile = noise_profile(planes.expand(-1, 3, -1, -1), together=True)
    (fine, half, _), (fine_color, half_color, coarse_color) = profile[0].mean(2).tolist()
    if channels == 3 and coarse_color > 0:
        camera = half_color > _COARSE_CHROMA * fine_color or fine_color < _WEAK_CHROMA * fine
        level = max(_LEVEL * coarse_color, _LEAST * (255 * fine) ** _POWER)
    else:  # gray, or three equal channels
        camera = half > _COARSE_LUMA * fine
        level = _LEAST * (255 * fine) ** _POWER
    if not camera:
        return Noise(_white_level(pixels, white), camera=False, profile=profile)
    share = float(noise_share(planes.expand(-1, 3, -1, -1), together=True))
    return Noise(level * share, camera=True, profile=profile, share=share)


def choose(model: str, noise: Noise, pixels: int, device: str, folder: Path) -> str:
    """Return the name of the model to use: `model` itself, or for "auto" the best one for this noise that is installed.

    White noise: `large` on a GPU for up to 67 megapixels, otherwise `small`. Camera noise: `photo`.
    """
    if model != "auto":
        return model
    shipped = read_index(folder)
    if noise.camera and "image-photo" in shipped:
        return "photo"
    affordable = device != "cpu" and pixels <= _LARGE
    return "large" if affordable and "image-large-color" in shipped else "small"


def _white_level(pixels: Any, white: float) -> float:
    """Estimate the standard deviation of white noise from the luminance `(R + G + B) / sqrt(3)`, which keeps it."""
    height, width, channels = pixels.shape
    rows = [_unit(np.asarray(pixels[top:bottom]), white) for top, bottom in sampled_rows(height, width)]
    return sigma_of(np.concatenate(rows).sum(2) / np.float32(math.sqrt(channels)))


def _strips(height: int, width: int) -> list[tuple[int, int]]:
    """Return the rows that are read: all of them, or evenly spaced strips of a large picture."""
    if height * width <= _PIXELS or height <= _STRIP:
        return [(0, height)]
    count = max(1, _PIXELS // (_STRIP * width))
    return [(int(top), int(top) + _STRIP) for top in np.linspace(0, height - _STRIP, count)]


def _unit(pixels: npt.NDArray[Any], white: float) -> npt.NDArray[Any]:
    values = to_type(pixels, np.dtype(np.float32))
    return np.ascontiguousarray(values) if white <= 1 else values / np.float32(white)
