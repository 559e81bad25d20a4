"""What a search for patches between two signals is asked for. All backends read it from here.

A signal is a tensor of frames (t + pt - 1, c, h + ph - 1, w + pw - 1), float32, already padded by half a patch on each
side. An image is one frame with pt = 1; a 1-D signal is one row of one frame.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

Sizes = tuple[int, int, int]


class Matching(NamedTuple):
    """How patches are compared, and which."""

    patch: Sizes
    coords: float = 0.0
    """Weight of the place. Places are counted in frames and pixels, whatever the strides."""
    radius: Sizes | None = None
    """Only candidates with `|dt|, |dy|, |dx|` up to these; None means all."""
    stride: Sizes = (1, 1, 1)
    """The query vertices are those whose place along each axis is a multiple of this."""
    source_stride: Sizes = (1, 1, 1)
    """The same for the source."""
    own: bool = False
    """Whether vertex i of the query is vertex i of the source. Then it comes first among its neighbours."""

    def shape(self, frames: Tensor) -> Sizes:
        """Count the patches of a padded signal along each axis, before any stride."""
        t, _, h, w = frames.shape
        pt, ph, pw = self.patch
        return t - pt + 1, h - ph + 1, w - pw + 1

    def query_places(self, frames: Tensor) -> Tensor:
        """List (t, y, x) of the query vertices in raster order: (n, 3) int64."""
        return _places(self.shape(frames), self.stride, frames.device)

    def source_places(self, frames: Tensor) -> Tensor:
        """List (t, y, x) of the source vertices in raster order: (m, 3) int64."""
        return _places(self.shape(frames), self.source_stride, frames.device)


def _places(shape: Sizes, stride: Sizes, device: torch.device) -> Tensor:
    axes = (torch.arange(0, n, step, device=device) for n, step in zip(shape, stride, strict=True))
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
