"""Measures of the distance between a denoised and a clean signal, in decibels."""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-20


def snr(estimate: Tensor, clean: Tensor) -> Tensor:
    """Signal-to-noise ratio `10 log10(|x|^2 / |x - y|^2)` along the last axis; `x` clean, `y` estimate. Cost: O(n).

    >>> snr(torch.tensor([1.1, 0.0]), torch.tensor([1.0, 0.0])).round(decimals=3)
    tensor(20.)
    """
    error = (clean - estimate).square().sum(-1)
    return 10 * torch.log10((clean.square().sum(-1) + _TINY) / (error + _TINY))


def si_sdr(estimate: Tensor, clean: Tensor) -> Tensor:
    """Scale-invariant signal-to-distortion ratio along the last axis: the SNR after the best gain. Cost: O(n).

    `10 log10(|a x|^2 / |a x - y|^2)` with `a = <x, y> / |x|^2` and both signals made zero-mean.

    >>> si_sdr(torch.tensor([3.0, -3.3]), torch.tensor([1.0, -1.0])) > 60
    tensor(True)
    """
    y = estimate - estimate.mean(-1, keepdim=True)
    x = clean - clean.mean(-1, keepdim=True)
    gain = (x * y).sum(-1, keepdim=True) / (x.square().sum(-1, keepdim=True) + _TINY)
    target = gain * x
    rest = (target - y).square().sum(-1)
    return 10 * torch.log10((target.square().sum(-1) + _TINY) / (rest + _TINY))
