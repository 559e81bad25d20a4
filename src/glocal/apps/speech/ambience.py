"""A natural floor under denoised speech: no cell of time and frequency falls further below the input than asked.

With `Y` a cell of the input's short-time spectrum, `Z` that of the denoised sound and `a = 10^(-decibels / 20)`, the cell becomes
`Z` where `|Z| >= a |Y|`, and `a Y` elsewhere. Pauses keep the sound of the room, quietly; cells that hold speech stay as they are.
This differs from `strength`, which puts the same share of the noise back everywhere, under the speech too.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech.blocks import Plan
from glocal.apps.speech.models import Denoiser
from glocal.apps.speech.stft import power_of, spectra, synthesis

_WINDOW, _HOP = 512, 128


class AmbienceDenoiser:
    """A denoiser whose output falls at most `decibels` below its input."""

    def __init__(self, denoiser: Denoiser, decibels: float) -> None:
        self.denoiser, self.share = denoiser, 10 ** (-decibels / 20)
        plan = denoiser.plan
        grid = math.lcm(plan.grid, _HOP)  # frames lie in the same places in every block
        context = -(-(plan.context + _WINDOW) // grid) * grid
        self.plan = Plan(0, context, plan.fade, grid).with_block(plan.block)

    def __call__(self, samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        """Denoise rows `first` to `last` of (n, c). Cost: that of the denoiser and three transforms."""
        left, right = max(0, first - _WINDOW), min(len(samples), last + _WINDOW)
        out = self.denoiser(samples, left, right)
        wet, dry = (
            spectra(torch.from_numpy(np.ascontiguousarray(rows.T)), window=_WINDOW, hop=_HOP)
            for rows in (out[:, :-1], samples[left:right])
        )
        kept = torch.where(power_of(wet) < self.share**2 * power_of(dry), self.share * dry, wet)
        clean = synthesis(kept, window=_WINDOW, hop=_HOP, length=right - left).T.numpy()
        gain = np.maximum(out[:, -1:], np.float32(self.share))
        return np.concatenate([clean, gain], axis=1)[first - left : last - left]
