"""The paper's baseline: soft thresholding of Haar wavelet coefficients, the threshold chosen on validation pictures.

The paper does not say how many levels it uses nor whether the transform is shift-invariant. Here the number of levels is
chosen together with the threshold, and both transforms are offered: the orthonormal one (as "the Haar wavelet basis" suggests)
and the stationary one, which is the mean of the first over all shifts of the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LEVELS = (1, 2, 3, 4)
FACTORS = tuple(round(0.5 + 0.1 * step, 1) for step in range(31))  # of sigma


@dataclass(frozen=True)
class HaarChoice:
    """What `tune` chose, and the mean PSNR in dB it reached on the validation pictures."""

    threshold: float
    levels: int
    stationary: bool
    validation: float


def haar_denoise(noisy: Array, *, threshold: float, levels: int, stationary: bool) -> Array:
    """Soft-threshold all details of a picture (h, w): `s(d) = sign(d) max(|d| - threshold, 0)`; the coarse part stays.

    Sides must be multiples of `2^levels`. Cost: O(h w), times `levels` for the stationary transform.

    >>> round(haar_denoise(np.full((4, 4), 0.5), threshold=0.1, levels=1, stationary=False)[0, 0].item(), 6)
    0.5
    """
    import pywt

    if stationary:
        found = pywt.swt2(noisy, "haar", level=levels, trim_approx=True)
        back = pywt.iswt2
    else:
        found = pywt.wavedec2(noisy, "haar", mode="periodization", level=levels)
        back = lambda c, wavelet: pywt.waverec2(c, wavelet, mode="periodization")  # noqa: E731
    kept = [tuple(pywt.threshold(band, threshold, mode="soft") for band in level) for level in found[1:]]
    return np.asarray(back([found[0], *kept], "haar"))


def tune(truths: Sequence[Array], noisies: Sequence[Array], *, sigma: float, stationary: bool) -> HaarChoice:
    """Choose levels and threshold (0.5 to 3.5 `sigma` in steps of 0.1) by the mean PSNR over validation pictures."""
    best: HaarChoice | None = None
    for levels in LEVELS:
        for factor in FACTORS:
            scores = [
                _psnr(haar_denoise(y, threshold=factor * sigma, levels=levels, stationary=stationary), x)
                for x, y in zip(truths, noisies, strict=True)
            ]
            mean = float(np.mean(scores))
            if best is None or mean > best.validation:
                best = HaarChoice(factor * sigma, levels, stationary, mean)
    assert best is not None
    return best


def _psnr(found: Array, truth: Array) -> float:
    return float(-10 * np.log10(np.mean((found - truth) ** 2)))
