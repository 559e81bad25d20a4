"""The exact searches on a GPU. The results equal `reference_search` to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glocal.kernels import portable, portable_window, reference_search
from glocal.kernels.cuda import rank_kernels, window_sum_kernels
from glocal.kernels.cuda import search_kernels as triton_search
from glocal.kernels.cuda.launching import device_of
from glocal.kernels.matching import Matching

_COLUMNS = 64  # that one warp looks at at a time
_LARGEST, _MOST = 7, 64  # side of the patches whose additions are written out, and neighbours of a list
_WRITTEN = 512  # cells of the patches whose additions are written out
_SPARE = 8  # candidates beyond k: enough that few rows are searched again
_SORTED, _HELD = 17, 64  # neighbours and cells that one thread of the search by shifts keeps
_SHIFTS, _SUMS = 4096, 1 << 25  # shifts of that search, and column sums at a time (128 MiB)
_BLOCK = 128

Progress = Callable[[float], None] | None


def patch_neighbors(
    planes: Tensor,
    k: int,
    patch: tuple[int, int],
    coords: float,
    radius: int | None,
    progress: Progress = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches, by few launches: `progress` is not called. Memory O(n k)."""
    k = int(k)
    (c, height, width), (ph, pw) = planes.shape, patch
    if max(patch) > _LARGEST or k > _MOST:
        return portable.patch_neighbors(planes, k, patch, coords, radius, progress)
    h, w = height - ph + 1, width - pw + 1
    n = h * w
    neighbors = torch.empty(n, k, dtype=torch.int32, device=planes.device)
    squared = torch.empty(n, k, dtype=torch.float32, device=planes.device)
    factor = _squared_weight(coords)
    planes = planes.contiguous()
    if radius is not None and 1 < k <= _SORTED and c * ph <= _HELD and (2 * radius + 1) ** 2 <= _SHIFTS:
        _by_shifts(planes, neighbors, squared, patch, factor, min(int(radius), h - 1), min(int(radius), w - 1))
        return neighbors, squared
    reach = max(h, w) if radius is None else min(int(radius), max(h, w))
    with device_of(planes):
        triton_search.search[(n,)](
            planes, neighbors, squared, h, w, height * width, width, factor, reach, 0,
            C=c, PH=ph, PW=pw, K=k - 1, SLOTS=max(16, 1 << max(0, k - 2).bit_length()), BLOCK=_COLUMNS,
            num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return neighbors, squared


def _by_shifts(
    planes: Tensor, neighbors: Tensor, squared: Tensor, patch: tuple[int, int], factor: float, ry: int, rx: int
) -> None:
    """Search all shifts, band by band. Memory: O(n k) and column sums of a fixed amount."""
    (c, height, width), (ph, pw) = planes.shape, patch
    h, w, shifts = height - ph + 1, width - pw + 1, (2 * ry + 1) * (2 * rx + 1)
    rows = max(1, min(h, _SUMS // (shifts * width)))
    sums = torch.empty(shifts * rows * width, device=planes.device)
    with device_of(planes):
        for first in range(0, h, rows):
            count = min(rows, h - first)
            window_sum_kernels.column_sums[(-(-width // _BLOCK), count, 2 * ry + 1)](
                planes, sums, first, rows, h, height * width, width, ry, rx,
                C=c, PH=ph, BLOCK=_BLOCK, num_warps=4, enable_fp_fusion=False,
            )  # fmt: skip
            window_sum_kernels.nearest_of_row[(-(-w // _BLOCK), count)](
                sums, neighbors, squared, first, rows, h, w, width, factor, ry, rx,
                K=neighbors.shape[1] - 1, PW=pw, BLOCK=_BLOCK, num_warps=4, enable_fp_fusion=False,
            )  # fmt: skip


def knn(features: Tensor, k: int, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows of one matrix; the contract is `reference_search.knn`, bit for bit."""
    return match_rows(features, features, k, True, progress)


def match_rows(query: Tensor, source: Tensor, k: int, own: bool, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows; the contract is `reference_search.match_rows`, bit for bit. `progress` is not called.

    Cost: O(n m f) time, O((n + m) f + n k) memory.
    """
    if k > _MOST - _SPARE:
        return portable.match_rows(query, source, k, own, progress)
    rows = query.contiguous(), source.contiguous()
    return _ranked(rows, rows, k, own, torch.float64)


def match_patches(
    query: Tensor, source: Tensor, k: int, matching: Matching, progress: Progress = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches; the contract is `reference_search.match_patches`, bit for bit.

    `progress` is not called. Cost: O(n m c patch) time and O((n + m) c patch) memory over the whole source; with a search
    window of s places O(n s c patch) time and O(n k) memory.
    """
    (pt, ph, pw), c = matching.patch, query.shape[1]
    if max(ph, pw) > _LARGEST or pt * c * ph * pw > _WRITTEN or k > _MOST - _SPARE:
        return portable.match_patches(query, source, k, matching, progress)
    if matching.radius is not None:
        return _in_windows(query.contiguous(), source.contiguous(), k, matching)
    sides = (
        ((query, matching.stride),) if matching.own else ((query, matching.stride), (source, matching.source_stride))
    )
    cells = [reference_search.cells(frames, matching, stride).transpose(0, 1).flatten(1) for frames, stride in sides]
    places = [matching.query_places(query), matching.source_places(source)][: len(cells)]
    features = cells
    if matching.coords:
        features = [torch.cat([rows, at * matching.coords], 1) for rows, at in zip(cells, places, strict=True)]
    patches = _Patches(places[0], places[-1], _squared_weight(matching.coords), pt * c, ph, pw)
    return _ranked((features[0], features[-1]), (cells[0], cells[-1]), k, matching.own, torch.float32, patches)


def _in_windows(query: Tensor, source: Tensor, k: int, matching: Matching) -> tuple[Tensor, Tensor]:
    """Compare each vertex with all places of its window."""
    assert matching.radius is not None
    shape, (pt, ph, pw), (_, c, height, width) = matching.shape(query), matching.patch, query.shape
    n = math.prod(-(-length // step) for length, step in zip(shape, matching.stride, strict=True))
    others = k - matching.own
    neighbors = torch.empty(n, k, dtype=torch.int32, device=query.device)
    squared = torch.empty(n, k, dtype=torch.float32, device=query.device)
    reach = [min(r, length) for r, length in zip(matching.radius, shape, strict=True)]
    across = 2 * (reach[2] // matching.source_stride[2]) + 1
    with device_of(query):
        triton_search.search_window[(n,)](
            query, source, neighbors, squared, *shape, height * width, width, _squared_weight(matching.coords),
            *reach, *matching.stride, *matching.source_stride,
            C=c, PT=pt, PH=ph, PW=pw, K=others, OWN=int(matching.own), SLOTS=max(16, 1 << max(0, others - 1).bit_length()),
            BLOCK=max(16, min(_COLUMNS, 1 << (across - 1).bit_length())), num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return neighbors, squared


class _Patches(NamedTuple):
    """What the distances of patches need besides their cells (n, channels, ph, pw)."""

    here: Tensor
    there: Tensor
    factor: float
    channels: int
    ph: int
    pw: int


def _ranked(
    features: tuple[Tensor, Tensor],
    rows: tuple[Tensor, Tensor],
    k: int,
    own: bool,
    dtype: torch.dtype,
    patches: _Patches | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows.

    Products of rounded features choose a few more candidates than k; their distances are computed again as the definition
    says. Rows for which a bound on the rounding leaves open whether another belongs to them are searched by the
    definition alone.
    """
    query, source = (part.contiguous() for part in rows)
    (n, f), m, columns = query.shape, len(source), features[0].shape[1]
    middle = features[1].mean(0, dtype=torch.float64)
    sides = [_rounded(part, middle) for part in (features[:1] if features[0] is features[1] else features)]
    (rough, norms, shifts), (there, there_norms, there_shifts) = sides[0], sides[-1]
    error = 4 * (columns + 8) * torch.finfo(torch.float32).eps
    bounds = torch.stack([there_norms.max(), there_shifts.max(), torch.full_like(there_norms[0], error)])
    slots = 1 << (k + _SPARE - 1).bit_length()
    values = torch.empty(n, slots, device=query.device)
    indices = torch.empty(n, slots, dtype=torch.int32, device=query.device)
    neighbors = torch.empty(n, k, dtype=torch.int32, device=query.device)
    squared = torch.empty(n, k, dtype=dtype, device=query.device)
    unsure = torch.empty(n, dtype=torch.int8, device=query.device)
    places = (neighbors, neighbors) if patches is None else patches[:2]
    factor, channels, ph, pw = (0.0, 0, 0, 0) if patches is None else patches[2:]
    cells = {"C": channels, "PH": ph, "PW": pw}
    slack = 1e-12 if patches is None else (f + 8) * torch.finfo(torch.float32).eps
    with device_of(query):
        rank_kernels.nearest[(-(-n // 64),)](
            rough, there, there_norms.float(), values, indices, n, m, columns, SELF=own, SLOTS=slots,
            BLOCK_Q=64, BLOCK_S=128, BLOCK_F=min(64, max(16, 1 << (columns - 1).bit_length())), PRECISION="tf32",
            num_warps=4, num_stages=2,
        )  # fmt: skip
        rank_kernels.rerank[(n,)](
            query, source, *places, values, indices, norms, shifts, bounds, neighbors, squared, unsure, m, f, factor,
            **cells, SLACK=slack, SELF=own, K=k, SLOTS=slots, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
        again = unsure.nonzero().view(-1)
        if len(again):
            rank_kernels.exact[(len(again),)](
                query, source, *places, again, neighbors, squared, m, f, factor, **cells, SELF=own, K=k,
                SLOTS=max(2, 1 << (k - 1).bit_length()), BLOCK=256, num_warps=4, enable_fp_fusion=False,
            )  # fmt: skip
    return neighbors, squared


def _squared_weight(coords: float) -> float:
    """Square the weight of the places as the definition does, in float32."""
    return float(torch.tensor(coords * coords, dtype=torch.float32))


def _rounded(rows: Tensor, middle: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows about the middle with the 11 bits that the matrix unit keeps, their squares, and how far rounding moved them."""
    centred = rows.double() - middle
    bits = centred.float().view(torch.int32)
    rough = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    wide = rough.double()
    return rough, wide.square().sum(1), (centred - wide).square().sum(1).sqrt()


def window_neighbors(features: Tensor, k: int, radius: int, exclude: int) -> Tensor:
    """Find the `k` most similar vertices inside a window; the contract is `reference_search.window_neighbors`.

    Cost: O(b h w radius^2 f) time in one launch, O(b h w k) memory.
    """
    if k > _MOST:
        return portable_window.window_neighbors(features, k, radius, exclude)
    b, h, w, f = features.shape
    tile_h, tile_w = (4, 4) if h >= 3 else (1, 16)
    tiles_y, tiles_x = -(-h // tile_h), -(-w // tile_w)
    neighbors = torch.empty(b * h * w, k, dtype=torch.int32, device=features.device)
    with device_of(features):
        rank_kernels.window[(b * tiles_y * tiles_x,)](
            features.contiguous(), neighbors, h, w, tiles_y, tiles_x, min(radius, max(h, w)), exclude, f,
            K=k, SLOTS=max(2, 1 << (k - 1).bit_length()), TILE_H=tile_h, TILE_W=tile_w, CHUNK=128,
            BLOCK_F=min(64, max(16, 1 << (f - 1).bit_length())), PRECISION="tf32x3", num_warps=2, num_stages=1,
        )  # fmt: skip
    return neighbors
