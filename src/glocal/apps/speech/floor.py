"""Estimate the noise level: in every band around every frame, and as one number for the whole signal."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as tf

_QUANTILE = 0.2
_SKIP = 4
_SILENT = 1e-12  # mean square of a frame without any sound, not even noise: padding, muted parts


def noise_floor(power: Tensor, *, reach: int, step: int) -> Tensor:
    """Return the noise power in every band, from the quiet fifth of the frames nearby: (b, t, f) -> (b, t, f).

    At every `step`-th frame, the 0.2-quantile of `power` over the frames up to `reach` before and after (every fourth
    one, since they overlap), divided by `-ln 0.8`, which is that quantile for noise of power 1; then averaged over
    5 bands, and interpolated between the steps. Silent frames (digital zeros) do not count.

    A frame's floor depends on frames at most `reach + step` away, so blocks with that much context give what the
    whole signal gives. Cost: O(t f reach / step log reach).
    """
    b, t, f = power.shape
    centres = torch.arange(0, t + step, step, device=power.device)
    around = torch.arange(-(reach // _SKIP) * _SKIP, reach + 1, _SKIP, device=power.device)
    index = centres.unsqueeze(1) + around
    counted = (index >= 0) & (index < t)
    index = index.clamp(0, t - 1)
    silent = power.mean(-1) < _SILENT * f
    counted = counted & ~silent[:, index]  # (b, centres, window)
    cells = power[:, index].masked_fill(~counted.unsqueeze(-1), math.inf)
    rank = ((counted.sum(-1) - 1).clamp(min=0) * _QUANTILE).long()
    ordered = (
        torch.from_numpy(np.sort(cells.detach().numpy(), axis=2))
        if cells.device.type == "cpu"
        else cells.sort(2).values
    )
    quiet = ordered.gather(2, rank.view(b, -1, 1, 1).expand(-1, -1, 1, f)).squeeze(2)
    quiet = torch.where(torch.isfinite(quiet), quiet, 0.0) / -math.log(1 - _QUANTILE)
    smooth = tf.avg_pool1d(tf.pad(quiet, (2, 2), mode="replicate"), 5, stride=1)
    smooth = smooth.clamp(min=_SILENT).maximum(1e-6 * smooth.amax(-1, keepdim=True))
    place = torch.arange(t, device=power.device)
    low, share = place // step, (place % step / step).view(1, t, 1)
    return smooth[:, low] * (1 - share) + smooth[:, low + 1] * share


def segment_levels(samples: Tensor, *, length: int = 320) -> Tensor:
    """Return the mean squares of `(y[i] - y[i + 1]) / sqrt(2)` over segments of `length` samples: (..., n) -> (segments,).

    This difference keeps the power of white noise and removes most of the power of speech. Silent segments are left out.
    The last, shorter segment counts only if it is the only one. Cost: O(n).
    """
    steps = samples.diff(dim=-1).reshape(-1, samples.shape[-1] - 1) if samples.shape[-1] > 1 else samples.reshape(-1, 1)
    whole = steps.shape[1] // length * length or steps.shape[1]
    cells = steps[:, :whole].reshape(-1, min(length, whole))
    levels = cells.square().mean(1) / 2
    return levels[levels > _SILENT]


def sigma_of(levels: Tensor) -> float:
    """Return the standard deviation of white noise, from the quiet fifth of the segment levels; 0 if there are none.

    The mean of the levels up to their 0.2-quantile is a little under the power of the noise; `_BIAS` corrects it.
    """
    if len(levels) == 0:
        return 0.0
    ordered = levels.sort().values
    quiet = ordered[: max(1, math.ceil(len(ordered) * _QUANTILE))]
    bias = _BIAS if len(ordered) >= 5 else 1.0
    return math.sqrt(float(quiet.mean()) / bias)


# Mean of the lowest fifth of the levels of unit white noise, 320 samples each: 1 - 1.4 sqrt(3 / 320), by simulation.
_BIAS = 0.865
