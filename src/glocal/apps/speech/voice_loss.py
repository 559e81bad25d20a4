"""The loss that `VoiceNet` is trained with: SI-SDR, compressed spectra at three resolutions, and envelopes of bands."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from glocal.apps.speech.metrics import si_sdr
from glocal.apps.speech.mixing import RATE, rms

_WINDOWS = (256, 512, 1024)
_POWER = 0.3
_TINY = 1e-7
_SEGMENT = 24  # frames of 16 ms: the 0.38 s of STOI
_FAINT = 1e-3  # segments that are 30 dB below the loudest are not compared


def voice_loss(out: Tensor, clean: Tensor, noisy: Tensor) -> Tensor:
    """`-0.07 SI-SDR + 10 (0.7 |magnitudes| + 0.3 |complex|) + 3 (1 - correlation of envelopes)`.

    The second term is the squared distance of compressed spectra, averaged over three windows. The third is close to
    STOI, a measure of how well speech is understood. For rows without speech only the spectra count. Signals (b, n) are
    first divided by the level of the noisy one. Cost: O(n log n).
    """
    scale = 1 / rms(noisy)
    out, clean = out * scale, clean * scale
    heard = (clean.square().mean(1) > 1e-6).to(out.dtype)
    ratio = si_sdr(out, clean).clamp(max=40) * heard
    total = -0.07 * ratio.sum() / heard.sum().clamp(min=1)
    for size in _WINDOWS:
        a, b = (_spectra(s, size) for s in (out, clean))
        pa, pb = (z.square().sum(-1) + _TINY for z in (a, b))
        ma, mb = pa ** (_POWER / 2), pb ** (_POWER / 2)
        za, zb = (z * (m / p.sqrt()).unsqueeze(-1) for z, m, p in ((a, ma, pa), (b, mb, pb)))
        near = 0.7 * (ma - mb).square().mean() + 0.3 * (za - zb).square().sum(-1).mean()
        total = total + 10 * near / len(_WINDOWS)
        if size == 2 * _WINDOWS[0] and pa.shape[1] >= _SEGMENT:
            total = total + 3 * (1 - _agreement(pa, pb))
    return total


def _spectra(signal: Tensor, size: int) -> Tensor:
    """Spectra of overlapping frames as real numbers, (b, t, size // 2 + 1, 2)."""
    window = torch.hann_window(size, device=signal.device) * (1.6 / size**0.5)
    # not torch.stft: the gradient of its frames is summed in an order that changes from run to run
    return torch.view_as_real(torch.fft.rfft(signal.unfold(-1, size, size // 2) * window))


def _agreement(power: Tensor, wanted: Tensor) -> Tensor:
    """Mean correlation of the envelopes of 15 bands in segments of 0.38 s; power spectra (b, t, 257)."""
    bands = third_octaves(power.shape[-1], power.device)
    a, b = ((p @ bands + _TINY).sqrt().unfold(1, _SEGMENT, _SEGMENT // 4) for p in (power, wanted))
    loud = b.square().sum((2, 3))
    used = (loud > _FAINT * loud.amax(1, keepdim=True)).to(a.dtype) * (loud > 1e-3)
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    both = (a * b).sum(-1) / ((a.square().sum(-1) + _TINY) * (b.square().sum(-1) + _TINY)).sqrt()
    return (both.mean(2) * used).sum() / used.sum().clamp(min=1)


@lru_cache(maxsize=4)
def third_octaves(bins: int, device: torch.device | str = "cpu") -> Tensor:
    """Return which of `bins` frequencies from 0 to 8 kHz belong to which of 15 bands of a third octave from 150 Hz on.

    >>> third_octaves(257).sum(0)[[0, 7, 14]]
    tensor([ 1.,  6., 28.])
    """
    frequency = torch.linspace(0, RATE / 2, bins)
    centre = 150 * 2 ** (torch.arange(15) / 3)
    inside = (frequency[:, None] >= centre * 2 ** (-1 / 6)) & (frequency[:, None] < centre * 2 ** (1 / 6))
    return inside.float().to(device)
