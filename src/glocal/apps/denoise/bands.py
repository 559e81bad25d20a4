"""Denoise a part of a picture: read it with the surroundings that its result depends on, and keep the part itself.

In the deep networks a pixel depends on the pixels up to `DeepShape.halo` away. The paper's networks need fewer:

A pixel of the result depends on `size // 2` rows through the synthesis filter, from there on `search_radius` rows through
its similar patches, and from those on half a patch (for the graph) or `size // 2` rows (for the analysis filter). The same
holds for columns. A part with these surroundings gives exactly the same bits as the whole picture, because every sum has
the same terms in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glocal.apps.denoise.calibration import Calibrated
from glocal.apps.denoise.cost import TILE_MEMORY, tile_bytes
from glocal.apps.denoise.deep import DeepDenoiser, DeepShape
from glocal.apps.denoise.options import Architecture
from glocal.apps.denoise.profile import REACH, noise_maps

BAND_PIXELS = 1 << 19  # of a band: 0.5 GiB for the widest network
_LEAST = 16  # sides of a picture for which every window holds enough vertices
_CELL = 16  # tiles of a deep network start at multiples of this: all see the same cells of the lower resolutions


class Window(NamedTuple):
    """A rectangle of pixels: the rows from `top` to before `bottom`, the columns from `left` to before `right`."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """The index of the window in a picture (h, w, ...)."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def around(self, more: int, height: int, width: int) -> Window:
        """Return the window with `more` pixels on each side, as far as the picture reaches."""
        return Window(
            max(0, self.top - more),
            min(height, self.bottom + more),
            max(0, self.left - more),
            min(width, self.right + more),
        )

    def inside(self, planes: Tensor, larger: Window) -> Tensor:
        """Cut out the part (c, h', w') of planes that were computed for a larger window."""
        top, left = self.top - larger.top, self.left - larger.left
        return planes[:, top : top + self.bottom - self.top, left : left + self.right - self.left]


Read = Callable[[Window], Tensor]
"""Gives the planes (c, h', w') of a window."""


def halo(architecture: Architecture, search_radius: int | None) -> int:
    """Return the number of rows and columns that a part needs on each side in addition to its own.

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


def bands(height: int, width: int, *, pixels: int = BAND_PIXELS, rows: int | None = None) -> list[Window]:
    """Cut a picture into bands of full width with at most about `pixels` pixels or exactly `rows` rows."""
    step = min(height, rows or max(32, pixels // width))
    return [Window(top, min(height, top + step), 0, width) for top in range(0, height, step)]


def tiles(height: int, width: int, shape: DeepShape, *, pixels: int, rows: int | None = None) -> list[Window]:
    """Cut a picture into tiles for a deep network, each with at most about `pixels` pixels including its surroundings.

    Of all grids that fit, the one with the fewest pixels in surroundings is used. A picture with fewer pixels is one tile.
    With `rows`, the tiles are bands of full width.
    """
    least = 4 * shape.radius
    if rows:
        down, across = _cuts(height, max(least, rows)), [(0, width)]
    elif height * width <= pixels:
        down, across = [(0, height)], [(0, width)]
    else:
        down, across = (
            _cuts(n, step) for n, step in zip((height, width), _steps(height, width, shape, pixels), strict=True)
        )
    return [Window(*rows_, *columns) for rows_, columns in itertools.product(down, across)]


def tile_pixels(net: DeepDenoiser) -> int:
    """Return the pixels of a tile and its surroundings that fit: into `TILE_MEMORY`, or half of a GPU's free memory."""
    weight = net.tail.weight
    each = tile_bytes(net.shape.widths[0], short=weight.dtype == torch.bfloat16)
    if weight.device.type != "cuda":
        return TILE_MEMORY // each
    free = torch.cuda.mem_get_info(weight.device)[0]
    unused = torch.cuda.memory_reserved(weight.device) - torch.cuda.memory_allocated(weight.device)
    # The graph layer needs as much again there. More than 2^25 pixels gain nothing, and counts above 2^31 would not fit.
    return min(1 << 25, (free + unused) // (4 * each))


def _steps(height: int, width: int, shape: DeepShape, pixels: int) -> tuple[int, int]:
    """Return the height and width of the tiles that have the fewest pixels in their surroundings."""
    more, least = margin(shape), 4 * shape.radius

    def larger(n: int, count: int) -> int:
        """Return the length of the longest of `count` parts of an axis, with its surroundings."""
        return -(-n // (count * _CELL)) * _CELL + more * min(count - 1, 2)

    found = []
    for across in range(1, -(-width // least) + 1):
        counts = range(1, -(-height // least) + 1)
        down = next((count for count in counts if larger(height, count) * larger(width, across) <= pixels), counts[-1])
        computed = (height + 2 * more * (down - 1)) * (width + 2 * more * (across - 1))
        found.append((max(pixels, larger(height, down) * larger(width, across)), computed, down, across))
    _, _, down, across = min(found)
    return -(-height // down), -(-width // across)


@torch.no_grad()
def denoise_band(
    read: Read,
    size: tuple[int, int],
    window: Window,
    nets: Sequence[Calibrated],
    *,
    search_radius: int | None,
    progress: Callable[[float], None] | None = None,
) -> Tensor:
    """Denoise the planes of a window of a picture of this size, plane `i` with `nets[i]`, on the graph of plane 0.

    Parameters
    ----------
    nets : one for each plane, all of one architecture
    search_radius : int or None
        None searches the whole picture, whatever the window is.

    Returns
    -------
    Tensor, (c, h', w')
        The same bits for any window. Memory: O(h' w' maps).
    """
    sizes = nets[0].net.architecture
    whole = sizes.middle == "nonlocal" and search_radius is None
    larger = Window(0, size[0], 0, size[1]) if whole else window.around(halo(sizes, search_radius), *size)
    planes = read(larger).contiguous()
    graphs = nets[0].net.graphs(planes[0], search_radius=search_radius, progress=progress)
    found = [nets[i](planes[i:j].reshape(j - i, -1, 1), graphs).view(j - i, *planes.shape[1:]) for i, j in _runs(nets)]
    return window.inside(torch.cat(found), larger)


@torch.no_grad()
def denoise_tile(read: Read, size: tuple[int, int], window: Window, net: DeepDenoiser, noise: float | Tensor) -> Tensor:
    """Denoise the planes of a window of a picture of this size with a deep network.

    The picture is continued by reflection to multiples of 4. `noise` is sigma, or for a network with noise maps the profile
    (1, 2, 3, 8) that `noise_profile` returns.

    Returns
    -------
    Tensor, (c, h', w')
        The same bits for any window with the shapes that ship; up to rounding on the CPU with other widths. Memory:
        `cost.tile_bytes` for each pixel of the window and its surroundings.
    """
    height, width = (max(_LEAST, -(-n // 4) * 4) for n in size)
    # At the border of the picture the window of a vertex reaches twice as far to the inside.
    top, bottom = _reaching(window.top, window.bottom, height, net.shape)
    left, right = _reaching(window.left, window.right, width, net.shape)
    larger = Window(top, bottom, left, right)
    planes = _continued(read, size, larger)
    given = noise if isinstance(noise, Tensor) else torch.full((1,), noise)
    given = given.to(planes.device, planes.dtype)
    found = net(planes[None], noise_maps(planes[None], given) if net.shape.maps > 1 else given)
    return window.inside(found[0], larger)


@torch.no_grad()
def denoise_deep(planes: Tensor, net: DeepDenoiser, noise: float | Tensor) -> Tensor:
    """Denoise planes (c, h, w) with a deep network for c channels, tile by tile; see `denoise_tile`."""
    size = (planes.shape[1], planes.shape[2])
    result = torch.empty_like(planes)
    for window in tiles(*size, net.shape, pixels=tile_pixels(net)):
        result[:, *window.slices] = denoise_tile(lambda part: planes[:, *part.slices], size, window, net, noise)
    return result


def margin(shape: DeepShape) -> int:
    """Return how far around a tile a deep network is computed: its halo and that of its noise maps, in whole cells."""
    return -(-(shape.halo + (REACH if shape.maps > 1 else 0)) // _CELL) * _CELL


def _reaching(start: int, end: int, n: int, shape: DeepShape) -> tuple[int, int]:
    """Return the first and last pixel along an axis that the result from `start` to `end` can depend on."""
    more, least = margin(shape), 4 * shape.radius
    first = max(0, min(start, n - least) // _CELL * _CELL - more)
    last = min(n, -(-max(end, least) // _CELL) * _CELL + more)
    return first, last


def _cuts(n: int, size: int) -> list[tuple[int, int]]:
    """Cut an axis into equal parts of at most about `size`."""
    step = -(-n // (-(-n // size) * _CELL)) * _CELL
    return [(start, min(n, start + step)) for start in range(0, n, step)]


def _continued(read: Read, size: tuple[int, int], window: Window) -> Tensor:
    """Read a window that may reach beyond the bottom and the right: reflected with the edge, repeatedly if needed."""
    rows, columns = (_reflected(window[2 * i], window[2 * i + 1], size[i]) for i in (0, 1))
    there = Window(int(rows.min()), int(rows.max()) + 1, int(columns.min()), int(columns.max()) + 1)
    planes = read(there)
    if window.bottom > size[0]:
        planes = planes.index_select(1, (rows - there.top).to(planes.device))
    if window.right > size[1]:
        planes = planes.index_select(2, (columns - there.left).to(planes.device))
    return planes


def _reflected(start: int, end: int, n: int) -> Tensor:
    place = torch.arange(start, end).remainder(2 * n)
    return torch.minimum(place, 2 * n - 1 - place)


def _runs(nets: Sequence[Calibrated]) -> list[tuple[int, int]]:
    """Group adjacent planes with the same network, which are processed together."""
    starts = [i for i in range(len(nets)) if i == 0 or nets[i] is not nets[i - 1]]
    return list(zip(starts, [*starts[1:], len(nets)], strict=True))
