"""Noisy speech for training, mixed on the fly: recorded and synthetic noises, speeds, filters, rooms, hum and clipping.

Some excerpts have almost no noise, so that clean speech learns to stay as it is.

Everything is drawn on the device from (seed, step), so a training that stops and continues gets the same sounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as tf

RATE = 16000
_PEAK = 0.99
_AHEAD = 8  # steps that are drawn at once
_SPEEDS = (80, 84, 90, 96, 98, 100, 108, 112, 120)  # percent; lengths of 4 s then have fast Fourier transforms


class Recordings:
    """Recordings one after the other in a single int16 tensor, from which excerpts are drawn."""

    def __init__(self, sounds: Sequence[NDArray[np.int16]], device: torch.device | str) -> None:
        self.samples = torch.from_numpy(np.concatenate(sounds)).to(device)
        self.lengths = torch.tensor([len(s) for s in sounds], device=device)
        self.starts = self.lengths.cumsum(0) - self.lengths

    def excerpts(self, count: int, length: int, g: torch.Generator, *, by_file: bool) -> Tensor:
        """Draw excerpts (count, length) as float32; a recording that is too short is repeated.

        `by_file` draws each recording equally often; otherwise long ones are drawn more often.
        """
        device = self.samples.device
        chance = torch.ones_like(self.lengths, dtype=torch.float32) if by_file else self.lengths.float()
        which = torch.multinomial(chance, count, replacement=True, generator=g)
        sizes = self.lengths[which].unsqueeze(1)
        first = (torch.rand(count, 1, generator=g, device=device) * sizes).long()
        at = self.starts[which].unsqueeze(1) + (first + torch.arange(length, device=device)) % sizes
        return self.samples[at].float() / 32768


class Mixer:
    """Draws batches of (clean, noisy) speech.

    Several steps are drawn at once, because on a GPU many small operations take as long as a few large ones.

    Parameters
    ----------
    speech, noise : Recordings
        What is mixed, 16 kHz mono.
    length : int
        Samples of an excerpt.
    seed : int
        The seed and the step decide every random number.
    """

    def __init__(self, speech: Recordings, noise: Recordings, length: int, seed: int = 0) -> None:
        self.speech, self.noise, self.length, self.seed = speech, noise, length, seed
        self.device = speech.samples.device
        self.generator = torch.Generator(self.device)
        self.ahead: tuple[tuple[int, int], Tensor, Tensor] | None = None

    def draw(self, batch: int, step: int) -> tuple[Tensor, Tensor]:
        """Clean and noisy excerpts, (b, n) each. The clean one has the room and the filter of the noisy one."""
        place = batch, step // _AHEAD
        if self.ahead is None or self.ahead[0] != place:
            self.ahead = (place, *self._several(batch * _AHEAD, step // _AHEAD))
        _, clean, noisy = self.ahead
        return clean[step % _AHEAD :: _AHEAD], noisy[step % _AHEAD :: _AHEAD]

    def _several(self, rows: int, number: int) -> tuple[Tensor, Tensor]:
        g = self.generator.manual_seed(self.seed * 1_000_003 + number)
        clean = self._gaps(self.stretched(self.speech, rows, _SPEEDS[2:-2], g, by_file=False), g)
        clean = filtered(clean, self._curves(rows, 6.0, g))
        clean = torch.where(self._chance(rows, 0.25, g), rooms(clean, g), clean)
        noise = self.noises(rows, g)
        level = self._uniform(rows, -5, 20, g)
        level = torch.where(self._chance(rows, 0.08, g), level + 25, level)
        level = torch.where(self._chance(rows, 0.08, g), level + 60, level)  # clean speech, which must not change
        noise = noise * (rms(clean) / rms(noise) * 10 ** (-level / 20))
        clean = torch.where(self._chance(rows, 0.02, g), torch.zeros_like(clean), clean)
        gain = 10 ** (-self._uniform(rows, 10, 35, g) / 20) / rms(clean + noise)
        clean, noisy = clean * gain, (clean + noise) * gain
        down = (_PEAK / noisy.abs().amax(1, keepdim=True).clamp(min=1e-6)).clamp(max=1)
        clean, noisy = clean * down, noisy * down
        ceiling = noisy.abs().amax(1, keepdim=True) * self._uniform(rows, 0.3, 0.9, g)
        clipped = torch.where(self._chance(rows, 0.04, g), noisy.clamp(-ceiling, ceiling), noisy)
        narrow = self._chance(rows, 0.06, g)
        return torch.where(narrow, _half_band(clean), clean), torch.where(narrow, _half_band(clipped), clipped)

    def noises(self, rows: int, g: torch.Generator) -> Tensor:
        """Noise (rows, n): recorded, or babble, notes, knocks, or synthetic; with filters, rooms, swells, hiss and hum."""
        real = self.stretched(self.noise, rows, _SPEEDS, g, by_file=True)
        other = self.stretched(self.noise, rows, _SPEEDS, g, by_file=True)
        other = other / rms(other) * 10 ** (-self._uniform(rows, 0, 15, g) / 20)
        real = torch.where(self._chance(rows, 0.35, g), real / rms(real) + other, real / rms(real))
        real = torch.where(self._chance(rows, 0.3, g), real.flip(1), real)
        places = torch.randperm(rows, generator=g, device=self.device)
        crowd, music, knocks, _ = places.split([rows // 8, rows // 16, rows // 16, rows - rows // 8 - 2 * (rows // 16)])
        if len(music):
            real[crowd], real[music] = self.babble(len(crowd), g), self.notes(len(music), g)
            real[knocks] = real[knocks] * 0.2 + self.knocks(len(knocks), g)
        tilt = self._slopes(rows, -4, 2, g) * self._chance(rows, 0.4, g)
        real = filtered(real, self._curves(rows, 8.0, g) + tilt)
        real = torch.where(self._chance(rows, 0.3, g), rooms(real, g), real)
        real = torch.where(self._chance(rows, 0.2, g), real * self.swells(rows, g), real)
        white = torch.randn(rows, self.length, generator=g, device=self.device)
        coloured = filtered(white, self._slopes(rows, -8, 4, g))
        synthetic = torch.where(self._chance(rows, 0.75, g), white, coloured)
        noise = torch.where(self._chance(rows, 0.4, g), synthetic / rms(synthetic), real / rms(real))
        hiss = coloured / rms(coloured) * 10 ** (-self._uniform(rows, 5, 25, g) / 20)
        noise = torch.where(self._chance(rows, 0.25, g), noise + hiss, noise)
        hum = self.hum(rows, g) * 10 ** (-self._uniform(rows, 0, 20, g) / 20)
        return torch.where(self._chance(rows, 0.06, g), noise + hum, noise)

    def stretched(
        self, source: Recordings, rows: int, speeds: tuple[int, ...], g: torch.Generator, *, by_file: bool
    ) -> Tensor:
        """Excerpts that are played at one of `speeds`, in percent; pitch and speed change together."""
        host = torch.Generator().manual_seed(g.initial_seed())
        drawn = torch.randint(len(speeds), (_AHEAD,), generator=host).tolist()
        parts = []
        for part, place in zip(torch.arange(rows).chunk(_AHEAD), drawn, strict=False):
            taken = source.excerpts(len(part), self.length * speeds[place] // 100, g, by_file=by_file)
            parts.append(_resampled(taken, self.length))
        return torch.cat(parts)

    def babble(self, rows: int, g: torch.Generator) -> Tensor:
        """Return three to six voices at once."""
        voices = self.speech.excerpts(6 * rows, self.length, g, by_file=False)
        voices = (voices / rms(voices)).unflatten(0, (6, rows)) * 10 ** (-self._uniform(6, 0, 10, g) / 20).unsqueeze(2)
        voices[3:] *= (torch.rand(3, rows, 1, generator=g, device=self.device) < 0.6).float()
        return voices.sum(0)

    def notes(self, rows: int, g: torch.Generator) -> Tensor:
        """Return four instruments that play random notes of 0.15 to 0.6 s with a few harmonics and a decay: a simple music."""
        time = torch.arange(self.length, device=self.device) / RATE
        total = torch.zeros(rows, self.length, device=self.device)
        for _ in range(4):
            beat = time / self._uniform(rows, 0.15, 0.6, g)
            note = beat.long()
            pitch = torch.randint(36, 84, (rows, int(self.length / RATE / 0.15) + 2), generator=g, device=self.device)
            phase = (2 * math.pi / RATE) * (440 * 2 ** ((pitch.gather(1, note) - 69) / 12)).cumsum(1)
            size = torch.rand(5, rows, 1, generator=g, device=self.device)
            tone = torch.stack([size[k] / (k + 1) * torch.sin((k + 1) * phase) for k in range(5)]).sum(0)
            total = total + tone * torch.exp(-(beat - note) * self._uniform(rows, 0.5, 5, g))
        return total / rms(total)

    def knocks(self, rows: int, g: torch.Generator) -> Tensor:
        """Return short sounds at random times, one to ten a second: a burst of noise with three tones, all decaying."""
        time = torch.arange(RATE // 4, device=self.device) / RATE
        often = self._uniform(rows, 1, 10, g) / RATE
        struck = torch.rand(rows, self.length, generator=g, device=self.device) < often
        size = torch.randn(rows, self.length, generator=g, device=self.device) * struck
        size[:, 0] += 1  # at least one
        sound = self._uniform(rows, 0, 1, g) * torch.randn(rows, len(time), generator=g, device=self.device)
        for _ in range(3):
            pitch = 100 * 60 ** self._uniform(rows, 0, 1, g)
            sound = sound + self._uniform(rows, 0, 2, g) * torch.sin(2 * math.pi * pitch * time)
        sound = sound * torch.exp(-time / (0.002 * 40 ** self._uniform(rows, 0, 1, g)))
        n = self.length + len(time)
        out = torch.fft.irfft(torch.fft.rfft(size, n=n) * torch.fft.rfft(sound, n=n), n=n)[:, : self.length]
        return out / rms(out)

    def swells(self, rows: int, g: torch.Generator) -> Tensor:
        """Return gains (rows, n) that change by up to 12 dB up and down, several times in a few seconds."""
        points = 12 * (2 * torch.rand(rows, 1, 2 + 3 * self.length // RATE, generator=g, device=self.device) - 1)
        return 10 ** (tf.interpolate(points, size=self.length, mode="linear", align_corners=True)[:, 0] / 20)

    def hum(self, batch: int, g: torch.Generator) -> Tensor:
        """Return the hum of the mains (batch, n): 50 or 60 Hz and its harmonics."""
        base = (50 + 10 * self._chance(batch, 0.5, g)) * self._uniform(batch, 0.98, 1.02, g)
        time = torch.arange(self.length, device=self.device) / RATE
        total = torch.zeros(batch, self.length, device=self.device)
        for harmonic in range(1, 8):
            phase = self._uniform(batch, 0, 2 * math.pi, g)
            size = torch.rand(batch, 1, generator=g, device=self.device) / harmonic
            total = total + size * torch.sin(2 * math.pi * harmonic * base * time + phase)
        return total / rms(total)

    def _gaps(self, clean: Tensor, g: torch.Generator) -> Tensor:
        """Silence one end of some excerpts, so that training also has noise without speech."""
        at = torch.rand(len(clean), 1, generator=g, device=self.device) * self.length
        ramp = torch.sigmoid((torch.arange(self.length, device=self.device) - at) / 200)
        turned = torch.where(self._chance(len(clean), 0.5, g), ramp, 1 - ramp)
        return torch.where(self._chance(len(clean), 0.15, g), clean * turned, clean)

    def _curves(self, batch: int, decibels: float, g: torch.Generator) -> Tensor:
        points = decibels * (2 * torch.rand(batch, 1, 8, generator=g, device=self.device) - 1)
        return tf.interpolate(points, size=257, mode="linear", align_corners=True)[:, 0]

    def _slopes(self, batch: int, low: float, high: float, g: torch.Generator) -> Tensor:
        """Gains (batch, 257) in dB that fall or rise by a random number of decibels an octave."""
        octaves = torch.log2(torch.arange(1, 258, device=self.device) / 128)
        return octaves * self._uniform(batch, low, high, g)

    def _uniform(self, batch: int, low: float, high: float, g: torch.Generator) -> Tensor:
        return low + (high - low) * torch.rand(batch, 1, generator=g, device=self.device)

    def _chance(self, batch: int, chance: float, g: torch.Generator) -> Tensor:
        return torch.rand(batch, 1, generator=g, device=self.device) < chance


def rms(x: Tensor) -> Tensor:
    """Return the root mean square of each row, (b, 1); never 0."""
    return x.square().mean(1, keepdim=True).sqrt().clamp(min=1e-5)


def filtered(x: Tensor, curve: Tensor) -> Tensor:
    """Filter (b, n) by gains in dB, (b, 257) from 0 to 8 kHz, with zero phase."""
    spectrum = torch.fft.rfft(x)
    gain = tf.interpolate(curve.unsqueeze(1), size=spectrum.shape[1], mode="linear", align_corners=True)[:, 0]
    return torch.fft.irfft(spectrum * 10 ** (gain / 20), n=x.shape[1])


def rooms(x: Tensor, g: torch.Generator) -> Tensor:
    """Add the reverberation of simple rooms to (b, n): the direct sound and a tail of noise that decays in 0.1 to 0.6 s."""
    b, n = x.shape
    length = RATE // 2
    time = torch.arange(length, device=x.device) / RATE
    decay = 0.1 + 0.5 * torch.rand(b, 1, generator=g, device=x.device)
    tail = torch.randn(b, length, generator=g, device=x.device) * 10 ** (-3 * time / decay)
    tail[:, :32] = 0
    tail = tail / tail.square().sum(1, keepdim=True).sqrt()
    share = 10 ** (-(3 + 15 * torch.rand(b, 1, generator=g, device=x.device)) / 20)
    size = n + length
    wet = torch.fft.irfft(torch.fft.rfft(x, n=size) * torch.fft.rfft(tail, n=size), n=size)[:, :n]
    return x + share * wet


def _resampled(x: Tensor, length: int) -> Tensor:
    """Resample rows (b, m) to (b, length) by their Fourier transform."""
    if x.shape[1] == length:
        return x
    spectrum, bins = torch.fft.rfft(x), length // 2 + 1
    spectrum = tf.pad(spectrum, (0, max(0, bins - spectrum.shape[1])))[:, :bins]
    return torch.fft.irfft(spectrum, n=length) * (length / x.shape[1])


def _half_band(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x)
    half = spectrum.shape[1] // 2
    return torch.fft.irfft(tf.pad(spectrum[:, :half], (0, spectrum.shape[1] - half)), n=x.shape[1])
