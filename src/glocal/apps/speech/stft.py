"""Spectra of frames and their inverse, with the square root of a Hann window on both sides, so that nothing is lost."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as tf


def analysis_window(window: int, *, device: torch.device | str = "cpu") -> Tensor:
    """Return the square root of the periodic Hann window, (window,)."""
    return torch.hann_window(window, periodic=True, device=device).sqrt()


def spectra(samples: Tensor, *, window: int, hop: int) -> Tensor:
    """Short-time Fourier transform of (b, n) -> complex (b, t, window // 2 + 1), t = ceil(n / hop) + window / hop - 1.

    Frame `i` is centred on sample `(i + 1) hop - window / 2`; the signal is reflected at both ends (or padded with
    zeros where it is shorter than a window). Cost: O(n window / hop log window).
    """
    n = samples.shape[-1]
    tail = -n % hop
    edge = window - hop
    mode = "reflect" if n > edge + tail else "constant"
    padded = tf.pad(samples.unsqueeze(1), (edge, edge + tail), mode=mode).squeeze(1)
    cells = padded.unfold(-1, window, hop)
    return torch.fft.rfft(cells * analysis_window(window, device=samples.device))


def power_of(spectrum: Tensor) -> Tensor:
    """Return `|z|^2` of complex numbers, without a square root."""
    return spectrum.real.square() + spectrum.imag.square()


def synthesis(spectrum: Tensor, *, window: int, hop: int, length: int) -> Tensor:
    """Return the signal (b, length) of `spectra`: overlap-add of the windowed inverse transforms. Exact if nothing changed.

    >>> x = torch.rand(1, 1000)
    >>> torch.allclose(synthesis(spectra(x, window=512, hop=128), window=512, hop=128, length=1000), x, atol=1e-5)
    True
    """
    cells = torch.fft.irfft(spectrum, n=window) * analysis_window(window, device=spectrum.device)
    return _added(cells, hop, length)


def overlap_add(values: Tensor, *, window: int, hop: int, length: int) -> Tensor:
    """Return a smooth signal (b, length) that follows one value for each frame, (b, t); constants stay constant."""
    hann = torch.hann_window(window, periodic=True, device=values.device)
    return _added(hann * values.unsqueeze(-1), hop, length)


def _added(cells: Tensor, hop: int, length: int) -> Tensor:
    """Add overlapping frames (b, t, window), one every `hop` samples, and cut the signal (b, length) out of the sum."""
    window = cells.shape[-1]
    times = window // hop  # frames that overlap
    pieces = cells.unflatten(-1, (times, hop)).unbind(2)
    # sums of shifted copies: the gradient of torch's `fold` is several times slower
    summed = sum(tf.pad(piece, (0, 0, k, times - 1 - k)) for k, piece in enumerate(pieces))
    assert isinstance(summed, Tensor)
    edge = window - hop
    return summed.flatten(1)[:, edge : edge + length] * (2 * hop / window)
