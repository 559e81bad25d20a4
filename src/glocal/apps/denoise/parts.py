"""Take away a part of the noise that was found: of the luma, of the colours, all but the fine grain."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from glocal.color_space import luma as luma_of


def removed_parts(removed: npt.NDArray[Any], *, luma: float, chroma: float, grain: float) -> npt.NDArray[Any]:
    """Return the part of the noise (h, w, 1 or 3) that is taken away.

    Parameters
    ----------
    luma, chroma : float
        The fractions of the brightness noise and of the colour noise that are taken away.
    grain : float
        The fraction of the finest luma noise (its difference to the mean of 3 x 3 pixels) that stays.

    Returns
    -------
    array, (h, w, 1 or 3) float32
        Cost: O(h w); memory: two copies.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(0, 0.1, (64, 64, 3)).astype(np.float32)
    >>> colors = removed_parts(noise, luma=0, chroma=1, grain=0)
    >>> bool(np.abs(luma_of(colors)).max() < 1e-6)
    True
    """
    if luma == chroma == 1 and grain == 0:
        return removed
    light = removed[:, :, 0] if removed.shape[2] == 1 else luma_of(removed)
    wanted = luma * (light - grain * _fine(light))
    return np.float32(chroma) * removed + (wanted - np.float32(chroma) * light)[:, :, None]


def _fine(light: npt.NDArray[Any]) -> npt.NDArray[Any]:
    plane = torch.from_numpy(np.ascontiguousarray(light))[None, None]
    mean = functional.avg_pool2d(plane, 3, 1, 1, count_include_pad=False)
    fine: npt.NDArray[Any] = (plane - mean)[0, 0].numpy()
    return fine
