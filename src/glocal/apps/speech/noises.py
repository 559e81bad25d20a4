"""Stationary noises that training adds to clean speech: white, coloured, hum and hiss, all synthesised."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RATE = 16000


def white(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Gaussian noise (b, n) of variance 1, on the generator's device."""
    return torch.randn(shape, generator=generator, device=generator.device)


def coloured(shape: tuple[int, int], generator: torch.Generator, *, slope: float | None = None) -> Tensor:
    """Noise (b, n) of variance 1 with the power `f^-slope`: 1 is pink, -1 is hiss.

    Without `slope`, each row draws its own from -1.5 to 2 and a gain that moves smoothly by up to 6 dB between eight
    points of the band, as rooms and microphones do.
    """
    b, n = shape
    spectrum = torch.fft.rfft(white(shape, generator))
    frequency = torch.linspace(0, 1, spectrum.shape[1], device=generator.device).clamp(min=60 / (RATE / 2))
    if slope is not None:
        return _unit(torch.fft.irfft(spectrum * frequency ** (-slope / 2), n=n))
    slopes = _uniform((b, 1), -1.5, 2.0, generator)
    points = _uniform((b, 1, 8), -0.3, 0.3, generator)
    wave = torch.nn.functional.interpolate(points, size=spectrum.shape[1], mode="linear", align_corners=True)[:, 0]
    return _unit(torch.fft.irfft(spectrum * frequency ** (-slopes / 2) * 10**wave, n=n))


def hum(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Mains hum (b, n): harmonics of 50 or 60 Hz that fall off at random rates, over a little white noise."""
    b, n = shape
    base = 50 + 10 * (torch.rand((b, 1, 1), generator=generator, device=generator.device) < 0.5).float()
    order = torch.arange(1, 13, device=generator.device).view(1, 12, 1)
    phase = _uniform((b, 12, 1), 0, 2 * math.pi, generator)
    size = _uniform((b, 12, 1), 0, 1, generator) * order ** -_uniform((b, 1, 1), 0.3, 1.5, generator)
    time = torch.arange(n, device=generator.device) / RATE
    tones = (size * torch.sin(2 * math.pi * base * order * time + phase)).sum(1)
    return _unit(_unit(tones) + _uniform((b, 1), 0.05, 0.7, generator) * white(shape, generator))


def mixture(shape: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise (b, n) of variance 1 and which rows are white (b,): about 55 % white, 30 % coloured, 15 % hum."""
    which = torch.rand((shape[0], 1), generator=generator, device=generator.device)
    noise = torch.where(which < 0.55, white(shape, generator), coloured(shape, generator))
    noise = torch.where(which > 0.85, hum(shape, generator), noise)
    return noise, which[:, 0] < 0.55


def at_snr(clean: Tensor, noise: Tensor, decibels: Tensor | float) -> Tensor:
    """Scale `noise` so that `clean + noise` has this signal-to-noise ratio, row by row.

    >>> n = at_snr(torch.ones(1, 4), torch.ones(1, 4), 20.0)
    >>> n.round(decimals=3)
    tensor([[0.1000, 0.1000, 0.1000, 0.1000]])
    """
    ratio = clean.square().mean(-1, keepdim=True) / noise.square().mean(-1, keepdim=True).clamp(min=1e-20)
    level = torch.as_tensor(decibels, device=clean.device).reshape(-1, 1)
    return noise * ratio.sqrt() * 10 ** (-level / 20)


def _unit(x: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-10)


def _uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)
