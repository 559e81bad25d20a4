"""The deep graph denoiser: a small U-Net of residual blocks, some of which use similar places of the picture.

At half resolution the network builds its own graph: it learns a unit vector for each vertex, and every vertex is
joined to the most similar ones in a window. A few residual blocks use that graph. One network works for all noise levels:
`sigma` is one more input plane, and no layer has a bias, so `f(a y, a sigma) = a f(y, sigma)`.

Deviations from the paper: the paper's networks have two or three layers and a graph of noisy patches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glocal.errors import ArgumentError
from glocal.graphs.window import window_graph
from glocal.nn.ranked import GraphResidualBlock
from glocal.nn.residual import Downsample, ResidualBlock, Upsample, added, conv3x3


@dataclass(frozen=True)
class DeepShape:
    """The sizes of a deep denoiser.

    Attributes
    ----------
    channels
        The channels of the picture: 1 for gray, 3 for colour.
    widths
        Channels at full, half and quarter resolution.
    blocks
        Residual blocks: at full resolution (before and after), at half (before, after) and at quarter resolution.
    graph_blocks, redraw
        The number of residual blocks with a graph, and after how many of them the graph is built again (None: never).
    radius, neighbors, exclude
        The window at half resolution, see `glocal.window_graph`.
    embedding
        Length of the unit vectors, and channels of the graph convolution.
    maps
        The number of input planes that say how strong the noise is: 1 for white noise, 6 for a camera's (`profile.py`).
    """

    channels: int = 1
    widths: tuple[int, int, int] = (16, 64, 96)
    blocks: tuple[int, int, int, int] = (1, 2, 1, 3)
    graph_blocks: int = 3
    redraw: int | None = None
    radius: int = 12
    neighbors: int = 8
    exclude: int = 1
    embedding: int = 32
    maps: int = 1

    def __post_init__(self) -> None:
        for name in ("widths", "blocks"):  # lists, where they come from a file
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.channels not in (1, 3):
            message = f"DeepShape: `channels` (={self.channels}) must be 1 (gray) or 3 (colour). Convert the picture."
            raise ArgumentError(message)

    @property
    def halo(self) -> int:
        """The largest distance in pixels on which the result of a pixel can depend, a multiple of 4.

        >>> DeepShape().halo
        136
        """
        full, before, after, quarter = self.blocks
        searches = 1 + (self.redraw is not None)
        hops = self.graph_blocks * (self.radius + 2)  # a block: its neighbours, then the second convolution
        half = 2 * before + searches + hops + 2 * after
        pixels = (2 + 4 * full) + 2 * half + 4 * 2 * quarter + 8  # + 8: the cells of both lower resolutions
        return -(-pixels // 4) * 4


SHAPES = {
    "small": DeepShape(),
    "large": DeepShape(widths=(32, 128, 192), blocks=(1, 3, 1, 6), graph_blocks=4, redraw=2),
    "photo": DeepShape(channels=3, maps=6),
}


class DeepDenoiser(nn.Module):
    """Denoise pictures (b, c, h, w) by `y -> y + f(y, sigma)`, with white noise of standard deviation `sigma`.

    Both are in units of [0, 1].

    >>> net = DeepDenoiser(DeepShape(widths=(4, 8, 8)))
    >>> net(torch.rand(2, 1, 64, 64), torch.tensor([0.1, 0.2])).shape
    torch.Size([2, 1, 64, 64])
    """

    def __init__(self, shape: DeepShape) -> None:
        super().__init__()
        self.shape = shape
        full, half, quarter = shape.widths
        ends, before, after, low = shape.blocks
        self.head = conv3x3(shape.channels + shape.maps, full)
        self.full_in = nn.Sequential(*(ResidualBlock(full) for _ in range(ends)))
        self.down_half = Downsample(full, half)
        self.half_in = nn.Sequential(*(ResidualBlock(half) for _ in range(before)))
        self.down_quarter = Downsample(half, quarter)
        self.quarter = nn.Sequential(*(ResidualBlock(quarter) for _ in range(low)))
        self.up_half = Upsample(quarter, half)
        searches = 1 if shape.redraw is None else 2
        self.embeddings = nn.ModuleList(conv3x3(half, shape.embedding) for _ in range(searches))
        self.similar = nn.ModuleList(
            GraphResidualBlock(half, shape.neighbors, width=shape.embedding) for _ in range(shape.graph_blocks)
        )
        self.half_out = nn.Sequential(*(ResidualBlock(half) for _ in range(after)))
        self.up_full = Upsample(half, full)
        self.full_out = nn.Sequential(*(ResidualBlock(full) for _ in range(ends)))
        self.tail = conv3x3(full, shape.channels)
        self.tail.weight.data.mul_(0.1)

    def forward(self, noisy: Tensor, sigma: Tensor) -> Tensor:
        """Denoise (b, c, h, w) with sigma (b,) or noise maps (b, maps, h, w); h and w are multiples of 4.

        Cost: O(n) times the number of parameters.
        """
        _check(noisy, self.shape)
        level = sigma.to(noisy.dtype)
        if level.ndim == 1:
            level = level.view(-1, 1, 1, 1).expand(len(noisy), self.shape.maps, *noisy.shape[2:])
        at_full = self.full_in(self._head(torch.cat([noisy, level], 1)))
        at_half = self.half_in(self.down_half(at_full))
        x = added(at_half, self.up_half(self.quarter(self.down_quarter(at_half))))
        x = self.half_out(self._graph_blocks(x))
        x = self.full_out(added(at_full, self.up_full(x)))
        return noisy + self.tail(x).to(noisy.dtype)

    def in_bfloat16(self) -> DeepDenoiser:
        """Let all layers but the first compute in bfloat16."""
        self.to(torch.bfloat16)
        self.head.to(torch.float32)
        return self

    def _head(self, x: Tensor) -> Tensor:
        """Compute the first layer in float32 at least: it sees the picture, which bfloat16 would round by half a gray level.

        Autocast may still choose another dtype.
        """
        filters = self.head.weight
        filters = filters.to(torch.promote_types(filters.dtype, torch.float32))
        x = x.to(filters.dtype, memory_format=torch.channels_last)
        return nn.functional.conv2d(x, filters, padding=1).to(self.tail.weight.dtype)

    def _graph_blocks(self, x: Tensor) -> Tensor:
        shape = self.shape
        for number, block in enumerate(self.similar):
            if number in (0, shape.redraw):
                vectors = self.embeddings[min(number, 1)](x).permute(0, 2, 3, 1)
                unit = nn.functional.normalize(vectors.float(), dim=3, eps=1e-20)
                found = window_graph(unit, radius=shape.radius, k=shape.neighbors, exclude=shape.exclude)
            x = block(x, *found)
        return x


def _check(noisy: Tensor, shape: DeepShape) -> None:
    if noisy.ndim != 4 or noisy.shape[1] != shape.channels or noisy.shape[2] % 4 or noisy.shape[3] % 4:
        message = (
            f"DeepDenoiser: the picture (shape {tuple(noisy.shape)}) must be (b, {shape.channels}, h, w) with h and w "
            "multiples of 4. Pad it."
        )
        raise ArgumentError(message)
