"""From a changed palette to changed pixels: the paper's nearest entry, and a smooth field that does not posterise."""

from __future__ import annotations

import torch
from torch import Tensor

RIDGE = 0.1
"""How strongly the local fit leans towards a plain mean of displacements; see `displacement`."""

_HALF, _STEP = 128.0, 1.0
_SIDE = int(2 * _HALF / _STEP) + 1


def bandwidth(palette: Tensor) -> float:
    """The width `h` of the smooth mapping: 1.5 times the median distance to the fourth nearest entry, at least 2.

    Narrower, the field follows single entries and gradients band; wider, distinct colours are averaged.

    >>> bandwidth(torch.tensor([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0]]))
    30.0
    """
    if len(palette) < 2:
        return 10.0
    ranked = torch.cdist(palette.double(), palette.double()).sort(1).values
    return max(2.0, 1.5 * float(ranked[:, min(4, len(palette) - 1)].median()))


def displacement(ab: Tensor, palette: Tensor, new: Tensor, *, width: float, ridge: float = RIDGE) -> Tensor:
    """Interpolate the palette's displacement `v_i = new_i - palette_i` over the `ab` plane by local affine fits.

    At `x`, with weights `w_i ~ exp(-|x - p_i|^2 / h^2)`, means `p~, v~` and the weighted covariances `S_pp, S_vp`:
    `v(x) = v~ + S_vp (S_pp + ridge h^2 I)^-1 (x - p~)`, the ridge-regularised weighted least-squares fit.
    `ridge = inf` gives the weighted mean. Far from all entries the weights gather on the nearest one, both covariances
    vanish and its own displacement remains: nothing is extrapolated.

    Parameters
    ----------
    ab : Tensor, (m, 2)
        Chrominances.
    palette, new : Tensor, (n, 2)
        The palette before and after.
    width : float
        `h`, in the same units.

    Returns
    -------
    Tensor, (m, 2). Cost: O(m n) time and memory.

    >>> palette = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    >>> displacement(torch.tensor([[5.0, 0.0], [90.0, 0.0]]), palette, palette + torch.tensor([1.0, 2.0]), width=8.0)
    tensor([[1., 2.],
            [1., 2.]])
    """
    v = new - palette
    logits = -(torch.cdist(ab, palette, compute_mode="donot_use_mm_for_euclid_dist") / width).square()
    w = torch.softmax(logits, 1)  # in logarithms, so that a colour far from all entries still has weights
    mean_p, mean_v = w @ palette, w @ v
    if ridge == float("inf"):
        return mean_v
    outer = (palette.unsqueeze(2) * palette.unsqueeze(1)).flatten(1)
    cross = (v.unsqueeze(2) * palette.unsqueeze(1)).flatten(1)
    s_pp = (w @ outer).unflatten(1, (2, 2)) - mean_p.unsqueeze(2) * mean_p.unsqueeze(1)
    s_vp = (w @ cross).unflatten(1, (2, 2)) - mean_v.unsqueeze(2) * mean_p.unsqueeze(1)
    a, b, d = (s_pp[:, i, j] + (ridge * width * width if i == j else 0) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, y = (ab - mean_p).unbind(1)  # Cramer's rule: a batch of 2 x 2 systems is slow in LAPACK
    fit = torch.stack([d * x - b * y, a * y - b * x], 1) / (a * d - b * b).unsqueeze(1)
    return mean_v + (s_vp * fit.unsqueeze(1)).sum(2)


def field(palette: Tensor, new: Tensor, *, width: float) -> Tensor:
    """`displacement` on a grid of whole units over [-128, 128]^2, (2, 257, 257) float32, for `looked_up`."""
    axis = torch.linspace(-_HALF, _HALF, _SIDE, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    parts = [displacement(part, palette.double(), new.double(), width=width) for part in grid.split(16384)]
    return torch.cat(parts).T.reshape(2, _SIDE, _SIDE).float().contiguous()


def looked_up(ab: Tensor, table: Tensor) -> Tensor:
    """Read a `field` at chrominances (m, 2), bilinearly. Cost: O(m), whatever the palette's size."""
    place = (ab.flip(-1) / _HALF).reshape(1, 1, -1, 2)
    found = torch.nn.functional.grid_sample(table[None], place, padding_mode="border", align_corners=True)
    return found[0, :, 0].T


def nearest(ab: Tensor, palette: Tensor) -> Tensor:
    """The number of the nearest palette entry for each chrominance (m, 2), ties to the smaller number. Cost: O(m n)."""
    return (torch.cdist(ab, palette, compute_mode="donot_use_mm_for_euclid_dist")).argmin(1)
