"""The baseline of the paper's appendix B: soft thresholding of Haar wavelet coefficients, tuned on validation data.

The paper does not say how many levels it uses, nor whether the transform is shift-invariant. Here the number of levels can
be tuned together with the threshold, and there are two transforms: the orthonormal one, as "the Haar wavelet basis"
suggests, and the stationary one, which is the mean of the first over all shifts of the signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.errors import ArgumentError

Array = npt.NDArray[Any]
_HALF = 0.5**0.5


@dataclass(frozen=True)
class HaarChoice:
    """What `tune` chose, and the mean PSNR in dB (for signals in [0, 1]) that it reached on the validation data."""

    threshold: float
    levels: int
    stationary: bool
    validation: float


def haar_denoise(noisy: Array, *, threshold: float, levels: int, stationary: bool = False) -> Array:
    """Soft-threshold all details of a signal (n,) or picture (h, w): `s(d) = sign(d) max(|d| - threshold, 0)`.

    The coarse part stays as it is.

    Parameters
    ----------
    noisy : array, (n,) or (h, w)
        A signal of any length, or a picture whose sides are multiples of `2^levels`.
    threshold : float
        In units of the orthonormal coefficients.
    levels : int
        How often the coarse part is split again. A short signal has fewer: `log2(n)` at most.
    stationary : bool
        Average over all shifts (periodic). A signal (n,) then also needs a multiple of `2^levels`.

    Returns
    -------
    array
        The dtype is that of the input, at least float32. Cost: O(size), times `levels` for the stationary transform.

    Raises
    ------
    ArgumentError
        A side does not fit.

    Examples
    --------
    >>> haar_denoise(np.array([1.0, 1.1, 1.0, 0.9]), threshold=1.0, levels=5).round(3)
    array([1., 1., 1., 1.])
    """
    x = noisy if noisy.dtype.kind == "f" else noisy.astype(np.float64)
    if x.ndim == 1 and not stationary:
        return _orthonormal(x, threshold, min(levels, int(np.log2(len(x)))))
    if any(side % 2**levels for side in x.shape):
        message = f"haar_denoise: the sides {x.shape} must be multiples of 2^levels (={2**levels}). Use fewer levels."
        raise ArgumentError(message)
    return _stationary(x, threshold, levels, 1) if stationary else _orthonormal(x, threshold, levels)


def tune(
    truths: Sequence[Array],
    noisies: Sequence[Array],
    *,
    sigma: float,
    factors: Sequence[float],
    levels: Sequence[int],
    stationary: bool = False,
) -> HaarChoice:
    """Choose levels and threshold (one of `factors` times `sigma`) with the highest mean PSNR on validation data.

    A mean of signal-to-noise ratios has its maximum at the same place. Cost: `len(factors) len(levels)` transforms of
    every signal.
    """
    choices = []
    for depth, factor in product(levels, factors):
        found = [haar_denoise(y, threshold=factor * sigma, levels=depth, stationary=stationary) for y in noisies]
        scores = [-10 * np.log10(np.mean((a - b) ** 2)) for a, b in zip(found, truths, strict=True)]
        choices.append(HaarChoice(factor * sigma, depth, stationary, float(np.mean(scores))))
    return max(choices, key=lambda choice: choice.validation)


def _orthonormal(x: Array, threshold: float, levels: int) -> Array:
    if levels == 0:
        return x
    if x.ndim == 1 and len(x) % 2:  # an odd signal repeats its last value
        return _orthonormal(np.append(x, x[-1:]), threshold, levels)[:-1]
    parts = _split([x], lambda part, axis: (_every(part, axis, 0), _every(part, axis, 1)))
    coarse = _orthonormal(parts[0], threshold, levels - 1)
    parts = [coarse, *(_shrunk(part, threshold) for part in parts[1:])]
    for axis in reversed(range(x.ndim)):
        parts = [_woven(a, b, axis) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _stationary(x: Array, threshold: float, levels: int, step: int) -> Array:
    """Transform without subsampling, shrink, and average the two inverse transforms."""
    if levels == 0:
        return x
    parts = _split([x], lambda part, axis: (part, np.roll(part, -step, axis)))
    coarse = _stationary(parts[0], threshold, levels - 1, 2 * step)
    parts = [coarse, *(_shrunk(part, threshold) for part in parts[1:])]
    for axis in reversed(range(x.ndim)):
        parts = [
            0.5 * _HALF * (a + b + np.roll(a - b, step, axis)) for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _split(parts: list[Array], halves: Any) -> list[Array]:
    """Compute sums and differences along one axis after the other; the sum of sums comes first."""
    for axis in range(parts[0].ndim):
        pairs = [halves(part, axis) for part in parts]
        parts = [part for a, b in pairs for part in (_HALF * (a + b), _HALF * (a - b))]
    return parts


def _every(x: Array, axis: int, first: int) -> Array:
    return x[(slice(None),) * axis + (slice(first, None, 2),)]


def _woven(a: Array, b: Array, axis: int) -> Array:
    shape = list(a.shape)
    shape[axis] *= 2
    out = np.empty(shape, a.dtype)
    _every(out, axis, 0)[...] = _HALF * (a + b)
    _every(out, axis, 1)[...] = _HALF * (a - b)
    return out


def _shrunk(details: Array, threshold: float) -> Array:
    return np.sign(details) * np.maximum(np.abs(details) - threshold, 0)
