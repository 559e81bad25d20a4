"""Exact patch neighbours on the CPU, compiled by Numba. What they are is said in `reference`, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu import neighbor_blocks, neighbor_pairs


def patch_neighbors(
    planes: Tensor,
    k: int,
    patch: tuple[int, int],
    coords: float,
    radius: int | None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches of every pixel: itself, then by (squared distance, vertex index).

    `d2(i, j) = sum_(v, u in patch) sum_c (x_c[i + (v, u)] - x_c[j + (v, u)])^2 + coords^2 |i - j|^2`

    Parameters
    ----------
    planes : Tensor, (c, h + ph - 1, w + pw - 1) float32
        The channels, already padded by half a patch on each side. A 1-D signal has h = ph = 1.
    radius : int or None
        Only candidates with `|dy| <= radius` and `|dx| <= radius`; None means the whole image.
    progress : callable, optional
        Called from time to time, in the calling thread, with the fraction that was begun.

    Returns
    -------
    neighbors (n, k) int32 and squared distances (n, k) float32, the same for any number of threads. Cost: over the
    whole image without coordinates O(n^2 c) time and O(n k) memory; else see `neighbor_blocks`.

    Examples
    --------
    >>> patch_neighbors(torch.tensor([[[1.0, 5.0, 2.0]]]), 2, (1, 1), 0.0, None)
    (tensor([[0, 2],
            [1, 2],
            [2, 0]], dtype=torch.int32), tensor([[0., 1.],
            [0., 9.],
            [0., 1.]]))
    """
    h, w = planes.shape[1] - patch[0] + 1, planes.shape[2] - patch[1] + 1
    if k == 1:
        return torch.arange(h * w, dtype=torch.int32).unsqueeze(1), torch.zeros(h * w, 1)
    if np.float32(coords * coords) == 0 and (radius is None or radius >= max(h, w) - 1):
        return neighbor_pairs.patch_neighbors(planes, k, patch, progress)
    return neighbor_blocks.patch_neighbors(planes, k, patch, coords, radius, progress)
