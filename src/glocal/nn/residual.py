"""Blocks for deep networks on pictures: a residual block, downsampling and upsampling by 2.

They work on (b, c, h, w) and have no biases: a network of them is positively homogeneous, `f(a x) = a f(x)` for every
`a > 0`. A convolution here is a `GraphConv` on the lattice `grid_graph((h, w), size=3, boundary="zero")`; `lattice_filters`
converts its parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

Device = torch.device | str | None


def conv3x3(
    in_channels: int, out_channels: int, *, device: Device = None, dtype: torch.dtype | None = None
) -> nn.Conv2d:
    """Make a 3 x 3 convolution without bias that keeps the size and pads the picture with zeros."""
    return nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False, device=device, dtype=dtype)


def lattice_filters(conv: nn.Conv2d) -> Tensor:
    """Return the filters (d, c, m) of the `GraphConv` that equals a convolution on a lattice.

    >>> lattice_filters(conv3x3(4, 8)).shape
    torch.Size([9, 4, 8])
    """
    return conv.weight.flatten(2).permute(2, 1, 0)


class ResidualBlock(nn.Module):
    """Compute `x + conv(relu(conv(x)))` with 3 x 3 convolutions: (b, c, h, w) -> the same. Cost O(n c^2).

    >>> import torch
    >>> ResidualBlock(8)(torch.rand(1, 8, 5, 7)).shape
    torch.Size([1, 8, 5, 7])
    """

    def __init__(self, channels: int, *, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.in_channels = self.out_channels = channels
        self.first = conv3x3(channels, channels, device=device, dtype=dtype)
        self.second = conv3x3(channels, channels, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new filters; the block is then near the identity."""
        start_residual(self.first, self.second)

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the two convolutions to x."""
        return added(x, self.second(self.first(x).relu_()))


class Downsample(nn.Conv2d):
    """Halve the resolution with 2 x 2 filters without overlap: (b, c, h, w) -> (b, m, h / 2, w / 2).

    >>> import torch
    >>> Downsample(8, 16)(torch.rand(1, 8, 6, 4)).shape
    torch.Size([1, 16, 3, 2])
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_channels, out_channels, 2, stride=2, bias=False, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new filters that keep the variance of the signal."""
        super().reset_parameters()  # its draws are part of what a seed gives
        nn.init.kaiming_normal_(self.weight, nonlinearity="linear")


class Upsample(nn.ConvTranspose2d):
    """Double the resolution with the transpose of `Downsample`: (b, c, h, w) -> (b, m, 2 h, 2 w).

    >>> import torch
    >>> Upsample(16, 8)(torch.rand(1, 16, 3, 2)).shape
    torch.Size([1, 8, 6, 4])
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_channels, out_channels, 2, stride=2, bias=False, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new filters that keep the variance of the signal."""
        super().reset_parameters()  # its draws are part of what a seed gives
        nn.init.normal_(self.weight, std=self.in_channels**-0.5)


def added(x: Tensor, change: Tensor) -> Tensor:
    """Return `x + change`, in the memory of `change` if it has the dtype of x; under autocast it may be less precise."""
    return change.add_(x) if change.dtype == x.dtype else x + change


def start_residual(first: nn.Conv2d, second: nn.Conv2d) -> None:
    """Initialise a block near the identity: He initialisation for the first layer, a tenth of it for the second."""
    nn.init.kaiming_normal_(first.weight, nonlinearity="relu")
    nn.init.kaiming_normal_(second.weight, nonlinearity="relu")
    second.weight.data.mul_(0.1)
