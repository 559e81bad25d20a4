"""The decision-directed Wiener filter: the classical baseline for every comparison of speech denoisers."""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.apps.speech.stft import analysis_window, spectra, synthesis


def wiener(
    samples: Tensor, *, sigma: float, window: int = 512, hop: int = 128, memory: float = 0.98, floor_db: float = -25.0
) -> Tensor:
    """Filter white noise of known `sigma` out of (b, n) frame by frame (Ephraim and Malah's a-priori SNR).

    `gamma = |Y|^2 / N`, `xi_t = memory |G Y|^2_(t-1) / N + (1 - memory) max(gamma_t - 1, 0)`, `G = xi / (1 + xi)`,
    with `N = sigma^2 sum(window^2)` and `xi` not under `floor_db`. Returns (b, n). Cost: that of the transform.

    >>> float(wiener(torch.zeros(1, 4000), sigma=0.1).abs().max())
    0.0
    """
    spectrum = spectra(samples, window=window, hop=hop)
    noise = sigma**2 * analysis_window(window, device=samples.device).square().sum()
    after = spectrum.abs().square() / noise  # the a-posteriori SNR
    least = 10 ** (floor_db / 10)
    gains = torch.empty_like(after)
    previous = torch.ones_like(after[:, 0])
    for t in range(after.shape[1]):
        before = memory * previous + (1 - memory) * (after[:, t] - 1).clamp(min=0)
        before = before.clamp(min=least)
        gains[:, t] = before / (1 + before)
        previous = gains[:, t].square() * after[:, t]
    return synthesis(spectrum * gains, window=window, hop=hop, length=samples.shape[-1])
