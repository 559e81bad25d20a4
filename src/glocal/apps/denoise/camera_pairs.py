"""Pairs of noisy and clean photos of synthetic cameras, drawn once and stored on the device that trains."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from glocal.apps.denoise.camera import Camera, shoot
from glocal.apps.denoise.crops import Crops, Example, turned
from glocal.apps.denoise.profile import noise_maps, noise_profile

_CHUNK = 64  # photos of one shot
_WHITE = 0.08  # share of the pairs that have plain white noise instead, as from other sources
_CLEAN = 0.06  # share of the pairs without noise: what has none should stay as it is
_GRAY = 0.05
_RESIZED = 0.4
# The pixels of a camera are softer than those of a reduced photo. So a part of each photo is enlarged to the full side: between
# these fractions of the side, from the sharpest to the softest camera.
_SHARPEST, _SOFTEST = 1.0, 0.3
_LEVEL = 20 / 255  # the strongest white noise


class CameraPairs:
    """Photos of synthetic cameras, their clean twins and their estimated noise.

    Parameters
    ----------
    crops : Crops
        Colour photos. Their side, a multiple of 16, is also the side of the pairs.
    count : int
        The number of pairs.
    seed : int
        The seed of the crops, cameras and noise.

    Memory: 9 bytes for each pixel. Cost: O(count side^2), about 300 passes.
    """

    def __init__(self, crops: Crops, count: int, *, seed: int = 0) -> None:
        self.side, self.channels = crops.side, 3
        device = crops.pixels.device
        generator = torch.Generator(device).manual_seed(seed)
        chunks = [_pairs(crops, min(_CHUNK, count - start), generator) for start in range(0, count, _CHUNK)]
        noisy, clean, self.profiles = (torch.cat(parts) for parts in zip(*chunks, strict=True))
        # (count, 6, side, side) of float16: exact for whole numbers up to 255
        self.pixels = torch.cat([noisy, clean], 1)
        self.line = torch.arange(self.side, device=device)

    def example(self, draws: Tensor, noise: Tensor, sigma: float) -> Example:
        """Cut noisy and clean crops with the shape of `noise` at the positions that the uniform numbers `draws` (b, 7) select."""
        del sigma  # the noise is part of the pairs
        side = noise.shape[2]
        number = (draws[:, 0] * len(self.pixels)).long()
        top, left = ((draws[:, i] * (self.side - side + 1)).long().view(-1, 1, 1) for i in (1, 2))
        row, column = turned(self.line[:side], draws[:, 3:6] < 0.5)
        at = ((number.view(-1, 1, 1) * 6) * self.side + top + row) * self.side + left + column
        planes = torch.arange(6, device=at.device).view(1, 6, 1, 1) * self.side**2
        both = self.pixels.view(-1)[at[:, None] + planes].float() / 255
        noisy, clean = both[:, :3], both[:, 3:]
        level = (noisy - clean).square().mean((1, 2, 3)).sqrt()
        return Example(noisy, noise_maps(noisy, self.profiles[number]), clean, level)

    def __len__(self) -> int:
        return len(self.pixels)


@torch.no_grad()
def _pairs(crops: Crops, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw one chunk of pairs: noisy and clean (count, 3, side, side) times 255 as float16, and the noise profiles."""
    device, side = generator.device, crops.side

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, device=device, generator=generator)

    photos = crops.batch(uniform(count, 7))
    share, resize, amount = torch.rand(3, generator=_host(generator)).tolist()
    part = int(side * _SHARPEST * (_SOFTEST / _SHARPEST) ** share)
    sensor = round(side / (0.6 + 0.4 * amount) / 16) * 16 if resize < _RESIZED else side
    photos = photos[:, :, :part, :part]
    if part != sensor:
        size = (sensor, sensor)
        photos = functional.interpolate(photos, size=size, mode="bicubic", antialias=part > sensor).clamp(0, 1)
    noisy, clean = shoot(photos, Camera.draw(count, generator), generator, side=side)
    level = _LEVEL * uniform(count, 1, 1, 1)
    white = (clean + level * torch.randn(clean.shape, device=device, generator=generator)).clamp(0, 1)
    which = uniform(count, 1, 1, 1)
    noisy = torch.where(which < _WHITE, (white * 255).round() / 255, noisy)
    noisy = torch.where(which > 1 - _CLEAN, (clean * 255).round() / 255, noisy)
    gray = uniform(count, 1, 1, 1) < _GRAY
    noisy, clean = (torch.where(gray, x.mean(1, keepdim=True), x) for x in (noisy, clean))
    return (noisy * 255).half(), (clean * 255).half(), noise_profile(noisy)


def _host(generator: torch.Generator) -> torch.Generator:
    """Return a generator on the CPU whose numbers follow from those of `generator`."""
    seed = torch.randint(2**31, (1,), device=generator.device, generator=generator)
    return torch.Generator().manual_seed(int(seed))
