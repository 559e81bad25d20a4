"""Apply a changed palette to pixels: the paper's nearest entry, or a smooth field that does not posterise."""

from __future__ import annotations

import torch
from torch import Tensor

_HALF, _STEP = 128.0, 1.0
_SIDE = int(2 * _HALF / _STEP) + 1


def bandwidth(palette: Tensor) -> float:
    """Return the width `h` of the smooth mapping: 1.5 times the median distance to the fourth nearest entry, at least 2.

    A narrower field follows single entries and causes banding in gradients. A wider field averages distinct colours.

    >>> bandwidth(torch.tensor([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0]]))
    30.0
    """
    if len(palette) < 2:
        return 10.0
    ranked = torch.cdist(palette.double(), palette.double()).sort(1).values
    return max(2.0, 1.5 * float(ranked[:, min(4, len(palette) - 1)].median()))


def displacement(ab: Tensor, palette: Tensor, new: Tensor, *, width: float) -> Tensor:
    """Interpolate the palette's displacement `v_i = new_i - palette_i` smoothly over the `ab` plane.

    `v(x) = sum_i w_i v_i / sum_i w_i` with `w_i = exp(-|x - p_i|^2 / h^2)`. A mean never exceeds the values that it
    averages, so nothing overshoots. Far from all entries it is the displacement of the nearest entry, so nothing is
    extrapolated. (A local affine fit with the same weights was tried: in `benchmarks/color.py` it is not better.)

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
    Tensor, (m, 2)
        The displacements. Cost: O(m n) time and memory.

    Examples
    --------
    >>> palette = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    >>> displacement(torch.tensor([[5.0, 0.0], [90.0, 0.0]]), palette, palette + torch.tensor([1.0, 2.0]), width=8.0)
    tensor([[1., 2.],
            [1., 2.]])
    """
    return kernel_weights(ab, palette, width=width) @ (new - palette)


def kernel_weights(ab: Tensor, palette: Tensor, *, width: float) -> Tensor:
    """Return the weights `w_i / sum_j w_j` of the entries at each chrominance, (m, n).

    They are computed in logarithms, so that a colour far from all entries also has weights.
    """
    distances = torch.cdist(ab, palette, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.softmax(-(distances / width).square(), 1)


def field(palette: Tensor, new: Tensor, *, width: float) -> Tensor:
    """Return `displacement` on a grid of whole units over [-128, 128]^2, (2, 257, 257) float32, for `looked_up`."""
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
    """Return the index of the nearest palette entry for each chrominance (m, 2); ties go to the smaller. Cost: O(m n)."""
    return (torch.cdist(ab, palette, compute_mode="donot_use_mm_for_euclid_dist")).argmin(1)
