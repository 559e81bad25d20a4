"""Denoise whole pictures in bounded memory: bands of rows, each with the surrounding rows that its result depends on.

In the deep networks a pixel depends on `DeepShape.halo` rows. The paper's networks need fewer:

A pixel of the result depends on `size // 2` rows through the synthesis filter, from there on `search_radius` rows through
its similar patches, and from those on half a patch (for the graph) or `size // 2` rows (for the analysis filter). A band with
this many more rows on each side gives exactly the same bits as the whole picture, because every sum has the same terms in
the same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from glocal.apps.denoise.calibration import Calibrated
from glocal.apps.denoise.deep import DeepDenoiser
from glocal.apps.denoise.options import Architecture

_PIXELS = 1 << 19  # of a band: 0.5 GiB for the widest network
TILE_PIXELS = 1 << 21  # of a deep network, with what lies around the tile
_LEAST = 16  # sides of a picture for which every window holds enough vertices


def halo(architecture: Architecture, search_radius: int | None) -> int:
    """Return the number of rows that a band needs on each side in addition to its own.

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
    """Return the default number of rows of a band, for a picture of this width."""
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
        None searches the whole picture, which is then one band.
    rows : int or None
        Rows of a band; None chooses by memory.

    Returns
    -------
    Tensor, (c, h, w)
        The result does not depend on `rows`. Memory: O(rows w maps) in addition to the planes.
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
    """Denoise planes (c, h, w) with a deep network for c channels.

    The picture is padded by reflection to multiples of 4 and cut into tiles, because `halo` is large.

    Parameters
    ----------
    rows : int or None
        Rows of a band of full width; None cuts tiles by memory.

    Returns
    -------
    Tensor, (c, h, w)
        A view of (h, w, c). The result does not depend on `rows`: bit for bit for the shapes that ship, and up to rounding
        on the CPU with other widths. Memory: the result and one tile, at most `TILE_PIXELS` pixels with about 550 bytes
        each.
    """
    channels, height, width = planes.shape
    below, right = (max(_LEAST, -(-n // 4) * 4) - n for n in (height, width))
    whole = _continued(_continued(planes, 1, below), 2, right)
    around = -(-net.shape.halo // 16) * 16
    least = 4 * net.shape.radius  # a window at the border reaches twice as far to the inside
    side = max(least, math.isqrt(TILE_PIXELS) - 2 * around)
    fits = whole[0].numel() <= TILE_PIXELS
    across = _cuts(whole.shape[2], whole.shape[2] if fits or rows else side, around)
    down = _cuts(whole.shape[1], max(least, rows) if rows else whole.shape[1] if fits else side, around)
    level = torch.full((1,), sigma, dtype=planes.dtype, device=planes.device)
    result = torch.empty(height, width, channels, dtype=planes.dtype, device=planes.device).permute(2, 0, 1)
    for number, ((top, bottom, first, last), (left, end, begin, stop)) in enumerate(itertools.product(down, across)):
        found = net(whole[None, :, first:last, begin:stop], level)[0]
        place = result[:, top:bottom, left:end]
        place.copy_(found[:, top - first :, left - begin :][:, : place.shape[1], : place.shape[2]])
        if progress is not None:
            progress((number + 1) / (len(down) * len(across)))
    return result


def _cuts(n: int, size: int, around: int) -> list[tuple[int, int, int, int]]:
    """Cut an axis into equal parts of at most about `size`: (start, end) of each, without and with its surroundings."""
    step = -(-n // (-(-n // size) * 16)) * 16  # multiples of 16: all tiles see the same cells of the lower resolutions
    return [
        (start, min(n, start + step), max(0, start - around), min(n, start + step + around))
        for start in range(0, n, step)
    ]


def _continued(planes: Tensor, axis: int, more: int) -> Tensor:
    """Pad planes by `more` rows or columns: reflected with the edge, repeatedly if needed."""
    n = planes.shape[axis]
    place = torch.arange(n + more, device=planes.device).remainder(2 * n)
    return planes.index_select(axis, torch.minimum(place, 2 * n - 1 - place)) if more else planes


def _runs(nets: Sequence[Calibrated]) -> list[tuple[int, int]]:
    """Group adjacent planes with the same network, which are processed together."""
    starts = [i for i in range(len(nets)) if i == 0 or nets[i] is not nets[i - 1]]
    return list(zip(starts, [*starts[1:], len(nets)], strict=True))


def _part(progress: Callable[[float], object] | None, start: float, length: float) -> Callable[[float], None] | None:
    """Return a callback that reports the progress of the graph as the first half of a band."""
    if progress is None:
        return None

    def told(fraction: float) -> None:
        progress(start + 0.5 * length * fraction)

    return told
