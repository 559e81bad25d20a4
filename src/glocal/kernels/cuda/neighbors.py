"""The exact patch search on a GPU. The result equals `reference.patch_neighbors` to the bit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal.kernels import portable
from glocal.kernels.cuda import search_kernels as triton_search
from glocal.kernels.cuda.operations import device_of

_COLUMNS = 64  # that one warp looks at at a time
_LARGEST, _MOST = 7, 64  # side of the patches whose additions are written out, and neighbours of a list


def patch_neighbors(
    planes: Tensor,
    k: int,
    patch: tuple[int, int],
    coords: float,
    radius: int | None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches, in one launch: `progress` is not called. Memory O(n k)."""
    k = int(k)
    (c, height, width), (ph, pw) = planes.shape, patch
    if max(patch) > _LARGEST or k > _MOST:
        return portable.patch_neighbors(planes, k, patch, coords, radius, progress)
    h, w = height - ph + 1, width - pw + 1
    n, slots = h * w, max(16, 1 << max(0, k - 2).bit_length())
    neighbors = torch.empty(n, k, dtype=torch.int32, device=planes.device)
    squared = torch.empty(n, k, dtype=torch.float32, device=planes.device)
    factor = float(torch.tensor(coords * coords, dtype=torch.float32))
    reach = max(h, w) if radius is None else min(int(radius), max(h, w))
    with device_of(planes):
        triton_search.search[(n,)](
            planes.contiguous(), neighbors, squared, h, w, height * width, width, factor, reach, 0,
            C=c, PH=ph, PW=pw, K=k - 1, SLOTS=slots, BLOCK=_COLUMNS, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return neighbors, squared
