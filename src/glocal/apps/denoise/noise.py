"""Estimate the noise level of a picture from the picture alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.errors import InputError

_SIDE = 2048  # larger planes are estimated on evenly spaced rows of tiles, which is enough for the median
_DB2 = tuple(np.float32((a + b * 3**0.5) / 32**0.5) for a, b in ((-1, -1), (3, 1), (-3, 1), (1, -1)))  # its high-pass
_NORMAL_MEDIAN = 0.6744897501960817  # of |x| for a standard normal x


def estimate_sigma(plane: npt.NDArray[Any]) -> float:
    """Return the standard deviation of white noise in a plane (h, w), in the plane's own units.

    `sigma = median |d| / 0.6745`, where `d` are the finest diagonal coefficients of a Daubechies wavelet with two vanishing
    moments. Smooth parts and most edges do not affect them, noise does. Coefficients that are 0 up to rounding (saturated
    areas, borders of one colour) are left out. Textures partly count as noise, so low noise is overestimated. Noise that is
    not white (JPEG, enlarged pictures) is underestimated.

    Cost: O(h w). Raises InputError for planes under 4 x 4.

    >>> noise = np.random.default_rng(0).normal(0, 0.1, (256, 256))
    >>> round(estimate_sigma(0.5 + noise), 2)
    0.1
    """
    height, width = plane.shape
    if min(height, width) < 4:
        message = f"estimate_sigma: the picture (h={height}, w={width}) is too small to estimate its noise. Give sigma."
        raise InputError(message)
    rows = [plane[top:bottom] for top, bottom in sampled_rows(height, width)]
    return sigma_of(rows[0] if len(rows) == 1 else np.concatenate(rows))


def sampled_rows(height: int, width: int) -> list[tuple[int, int]]:
    """Return the rows (start, end) of a plane that are enough to estimate its noise: all of them if it is not large.

    >>> sampled_rows(100, 100)
    [(0, 100)]
    """
    step = max(1, (height * width) // (_SIDE * _SIDE))
    return [(top, min(height, top + 32)) for top in range(0, height, 32 * step)] if step > 1 else [(0, height)]


def sigma_of(rows: npt.NDArray[Any]) -> float:
    """Return the noise level of `estimate_sigma` from the sampled rows (m, w) of a plane."""
    diagonal = _details(_details(rows.astype(np.float32)).T)
    rounding = 1e-6 * float(np.abs(rows).max())
    seen = diagonal[np.abs(diagonal) > rounding]
    return float(np.median(np.abs(seen)) / _NORMAL_MEDIAN) if seen.size else 0.0


def _details(plane: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the finest detail coefficients along the columns of (h, w); borders are reflected. Shape ((h + 3) // 2, w)."""
    height, taps = len(plane), len(_DB2)
    wide = np.pad(plane, ((taps - 1, taps - 1), (0, 0)), mode="symmetric")
    stop = 2 * ((height + 3) // 2)
    parts = [tap * wide[taps - j : taps - j + stop : 2] for j, tap in enumerate(_DB2)]
    return np.add.reduce(parts)
