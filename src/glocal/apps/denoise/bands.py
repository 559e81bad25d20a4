"""Whole pictures in bounded memory: rows in bands, each with the rows around it that its result depends on.

In the deep networks a pixel depends on `DeepShape.halo` rows. The paper's networks need fewer:

A pixel of the result looks `size // 2` rows through the synthesis filter, from there `search_radius` rows to its similar
patches, and from those half a patch (for the graph) or `size // 2` (for the analysis filter). A band that carries so many rows
more on each side gives its own rows exactly as the whole picture would, to the bit: every sum has the same terms in the
same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from glocal.apps.denoise.calibration import Calibrated
from glocal.apps.denoise.deep import DeepDenoiser
from glocal.apps.denoise.options import Architecture

_PIXELS = 1 << 19  # of a band: 0.5 GiB for the widest network
_DEEP_PIXELS = 1 << 20  # of a band of a deep network, without the rows around it
_LEAST = 16  # sides of a picture for which every window holds enough vertices


def halo(architecture: Architecture, search_radius: int | None) -> int:
    """Rows on each side that a band needs beside its own.

    >>> halo(Architecture("nonlocal"), 10)
    14
    """
    half = architecture.size // 2
    if architecture.middle == "local":
        return 3 * half
    if architecture.middle == "none":
        return 2 * half
    assert search_radius is not None
    return half + search_radius + max(half, architecture.patch // 2)


def band_rows(width: int) -> int:
    """How many rows a band of a picture of this width has by default."""
    return max(32, _PIXELS // width)


@torch.no_grad()
def denoise_planes(
    planes: Tensor,
    nets: Sequence[Calibrated],
    *,
    search_radius: int | None,
    rows: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> Tensor:
    """Denoise planes (c, h, w), plane `i` with `nets[i]`, on the graph of plane 0.

    Parameters
    ----------
    nets : one for each plane, all of one architecture
    search_radius : int or None
        None searches the whole picture, which then is one band.
    rows : int or None
        Rows of a band; None chooses by memory.

    Returns
    -------
    Tensor, (c, h, w). The result does not depend on `rows`. Memory O(rows w maps) beside the planes.
    """
    _, height, width = planes.shape
    sizes = nets[0].net.architecture
    whole = sizes.middle == "nonlocal" and search_radius is None
    step = height if whole else min(height, rows or band_rows(width))
    around = 0 if whole else halo(sizes, search_radius)
    result = torch.empty_like(planes)
    for top in range(0, height, step):
        bottom = min(height, top + step)
        first, last = max(0, top - around), min(height, bottom + around)
        band = planes[:, first:last].contiguous()
        told = _part(progress, top / height, (bottom - top) / height)
        graphs = nets[0].net.graphs(band[0], search_radius=search_radius, progress=told)
        for start, stop in _runs(nets):
            found = nets[start](band[start:stop].reshape(stop - start, -1, 1), graphs)
            kept = found.view(stop - start, last - first, width)[:, top - first : bottom - first]
            result[start:stop, top:bottom] = kept
        if progress is not None:
            progress(bottom / height)
    return result


@torch.no_grad()
def denoise_deep(
    planes: Tensor,
    net: DeepDenoiser,
    sigma: float,
    *,
    rows: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> Tensor:
    """Denoise planes (c, h, w) with a deep network, c that of the network.

    The picture is continued by reflection to multiples of 4.

    Parameters
    ----------
    rows : int or None
        Rows of a band, rounded up to a multiple of 16; None chooses by memory.

    Returns
    -------
    Tensor, (c, h, w). The result does not depend on `rows`. Memory O((rows + halo) w) times the network's width.
    """
    _, height, width = planes.shape
    right, below = (max(_LEAST, -(-n // 4) * 4) - n for n in (width, height))
    whole = _continued(_continued(planes, 1, below), 2, right)
    least = max(4 * net.shape.radius, 16)  # a window at the border reaches twice as far to the inside
    wanted = max(least, rows or _DEEP_PIXELS // width)
    step, around = -(-wanted // 16) * 16, -(-net.shape.halo // 16) * 16
    level = torch.full((1,), sigma, dtype=planes.dtype, device=planes.device)
    result = torch.empty_like(whole)
    for top in range(0, whole.shape[1], step):
        bottom = min(whole.shape[1], top + step)
        first, last = max(0, top - around), min(whole.shape[1], bottom + around)
        found = net(whole[None, :, first:last], level)[0]
        result[:, top:bottom] = found[:, top - first : bottom - first]
        if progress is not None:
            progress(bottom / whole.shape[1])
    return result[:, :height, :width]


def _continued(planes: Tensor, axis: int, more: int) -> Tensor:
    """Continue planes by `more` rows or columns: reflected with the edge, as often as needed."""
    n = planes.shape[axis]
    place = torch.arange(n + more, device=planes.device).remainder(2 * n)
    return planes.index_select(axis, torch.minimum(place, 2 * n - 1 - place)) if more else planes


def _runs(nets: Sequence[Calibrated]) -> list[tuple[int, int]]:
    """Neighbouring planes with the same network go through it together."""
    starts = [i for i in range(len(nets)) if i == 0 or nets[i] is not nets[i - 1]]
    return list(zip(starts, [*starts[1:], len(nets)], strict=True))


def _part(progress: Callable[[float], object] | None, start: float, length: float) -> Callable[[float], None] | None:
    """Progress of the graph, as the first half of a band's."""
    if progress is None:
        return None

    def told(fraction: float) -> None:
        progress(start + 0.5 * length * fraction)

    return told
