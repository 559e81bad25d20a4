"""One row of the graph of patches: the neighbours of a single vertex, at once and without the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.graphs.patch import pad_frames
from glocal.graphs.signals import as_signal

_SPECTRUM_ROUNDING = 1e-12  # of a correlation by a Fourier transform in float64, as a share of the norms, with a margin
_MOST_VALUES = 1 << 22  # of patches that are compared at once


def nearest_patches(
    signal: Any,
    vertex: int,
    *,
    k: int = 25,
    patch: int = 3,
    coords: float = 0.0,
    search_radius: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches of one vertex: its row of `patch_graph(signal, ...)`.

    Parameters
    ----------
    signal : (n,) or (n, c) 1-D signal, or (h, w, c) image
        See `patch_graph`.
    vertex : int
        The vertex, in the order of rows: `y * w + x`.
    k, patch, coords, search_radius
        See `patch_graph`; here `patch` and `search_radius` are one number for all axes.

    Returns
    -------
    neighbors : (k,) int64
        The vertex itself first, then the nearest; ties go to the smaller index.
    distances : (k,) float32
        Cost: O(n c log n) for any patch, about a hundredth of a second at 512 x 512. `PatchRows` shares half of it
        between the vertices of a signal.

    Raises
    ------
    ArgumentError
        There is no such vertex, or an option cannot be used.

    Examples
    --------
    >>> neighbors, distances = nearest_patches(torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 5.0]), 0, k=3, patch=1)
    >>> neighbors.tolist(), distances.tolist()
    ([0, 2, 4], [0.0, 0.0, 0.0])
    """
    return PatchRows(signal, patch).row(vertex, k=k, coords=coords, search_radius=search_radius)


class PatchRows:
    """Rows of `patch_graph(signal, patch=patch, ...)`, each computed when it is asked for.

    The squared distance of two patches is `|p_i|^2 + |p_j|^2 - 2 <p_i, p_j>`. For one `i` and all `j`, the last term is a
    correlation, which a Fourier transform computes in a time that does not depend on the patch. Patches that can be among
    the nearest are compared again by their differences, as `patch_graph` does.

    Parameters
    ----------
    signal : (n,) or (n, c) 1-D signal, or (h, w, c) image
        See `patch_graph`.
    patch : int
        Side of the patches; odd.

    Raises
    ------
    ArgumentError
        `patch` cannot be used.
    """

    def __init__(self, signal: Any, patch: int = 3) -> None:
        if patch < 1 or patch % 2 == 0:
            message = f"nearest_patches: `patch` (={patch}) must be odd and positive. Use 3 or 7."
            raise ArgumentError(message)
        x = as_signal(signal, caller="nearest_patches", name="signal", ndim=(1, 2, 3)).detach().to("cpu", torch.float32)
        x = x.reshape(1, len(x), -1) if x.ndim < 3 else x
        self.height, self.width, _ = x.shape
        self.size = (patch if self.height > 1 else 1, patch)
        self._planes = pad_frames(x.unsqueeze(0), (1, *self.size))[0]
        values = self._planes.double()
        self._values = values - values.mean((1, 2), keepdim=True)  # small values, small rounding
        self._lengths = [_good_length(length) for length in values.shape[1:]]
        self._spectrum = torch.fft.rfft2(self._values, s=self._lengths)
        self._norms = _box_sums(self._values.square().sum(0), self.size)
        self._energy = float(self._values.square().sum())

    def row(
        self, vertex: int, *, k: int = 25, coords: float = 0.0, search_radius: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Find the `k` nearest patches of a vertex; see `nearest_patches`."""
        _check(self.height * self.width, vertex, k, coords, search_radius)
        row, column = divmod(int(vertex), self.width)
        reach = max(self.height, self.width) if search_radius is None else int(search_radius)
        rows = torch.arange(max(0, row - reach), min(self.height, row + reach + 1))
        columns = torch.arange(max(0, column - reach), min(self.width, column + reach + 1))
        if k > len(rows) * len(columns):
            message = (
                f"nearest_patches: `k` (={k}) must not be larger than the number of candidates "
                f"(={len(rows) * len(columns)}). Use a larger search_radius or a smaller k."
            )
            raise ArgumentError(message)
        places = torch.zeros(len(rows), len(columns))
        if coords:
            steps = (rows - row).square()[:, None] + (columns - column).square()
            places = steps.to(torch.float32) * float(np.float32(coords * coords))
        window = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
        chosen = self._candidates(row, column, window, places, k)
        at, across = rows[chosen // len(columns)], columns[chosen % len(columns)]
        squared = self._squared(row, column, at, across) + places.reshape(-1)[chosen]
        neighbors = at * self.width + across
        squared[neighbors == vertex] = -1  # the vertex itself comes first
        order = squared.argsort(stable=True)[:k]
        return neighbors[order], squared[order].clamp(min=0).sqrt()

    def _candidates(self, row: int, column: int, window: tuple[slice, slice], places: Tensor, k: int) -> Tensor:
        """Return, in ascending order, the positions of the window that can be among the `k` nearest.

        Left out is what is further away than the k-th by more than both ways to compute a distance can round.
        """
        tall, wide = self.size
        own = self._values[:, row : row + tall, column : column + wide]
        tall_length, wide_length = self._lengths
        turned = torch.fft.fft(torch.fft.rfft(own, n=wide_length), n=tall_length, dim=1)  # rows of zeros are left out
        products = (self._spectrum * turned.conj()).sum(0)
        correlation = torch.fft.irfft2(products, s=self._lengths)[window]
        norm = own.square().sum()
        about = (self._norms[window] + norm - 2 * correlation + places).reshape(-1)
        share = (own.numel() + 8) * torch.finfo(torch.float32).eps
        slack = about.abs() * share + _SPECTRUM_ROUNDING * (self._energy * float(norm)) ** 0.5 + _SPECTRUM_ROUNDING
        limit = (about + slack).topk(k, largest=False, sorted=True).values[-1]
        return (about - slack <= limit).nonzero().squeeze(1)

    def _squared(self, row: int, column: int, rows: Tensor, columns: Tensor) -> Tensor:
        """Sum the squared differences between the patch of a vertex and some others, (m,)."""
        tall, wide = self.size
        patches = self._planes.unfold(1, tall, 1).unfold(2, wide, 1)
        own = patches[:, row, column]
        at_once = max(1, _MOST_VALUES // own.numel())
        parts = [
            (patches[:, some, others] - own[:, None]).square().sum((0, 2, 3))
            for some, others in zip(rows.split(at_once), columns.split(at_once), strict=True)
        ]
        return torch.cat(parts)


def _good_length(length: int) -> int:
    """Return the next length without large prime factors: a small number times a power of two.

    >>> [_good_length(n) for n in (1, 31, 509, 320_001)]
    [1, 31, 512, 327680]
    """
    step = 1 << max(0, length.bit_length() - 5)
    return -(-length // step) * step


def _box_sums(values: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the sum over each box of a size that fits into (h, w).

    Differences of cumulative sums would be faster, but they round as the whole picture does, and a flat box would not be flat.
    """
    tall, wide = size
    return values.unfold(0, tall, 1).sum(-1).unfold(1, wide, 1).sum(-1)


def _check(n: int, vertex: int, k: int, coords: float, radius: int | None) -> None:
    if not 0 <= vertex < n:
        message = f"nearest_patches: `vertex` (={vertex}) must be from 0 to {n - 1}. Count y * w + x."
        raise ArgumentError(message)
    if not 1 <= k <= n:
        message = f"nearest_patches: `k` (={k}) must be from 1 to the number of vertices (={n}). Use a smaller k."
        raise ArgumentError(message)
    if not (coords >= 0 and np.isfinite(coords)):
        message = (
            f"nearest_patches: `coords` (={coords}) must be finite and not negative. Use 0 to leave positions out."
        )
        raise ArgumentError(message)
    if radius is not None and radius < 0:
        message = f"nearest_patches: `search_radius` (={radius}) must not be negative. Use 10, or None for everywhere."
        raise ArgumentError(message)
