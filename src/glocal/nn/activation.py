"""The two non-linearities of the paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BiasedReLU(nn.Module):
    """Compute `s(x, b) = max(0, x + b)` with one learned `b` per map (equation 7). The initial value of `b` is 0.

    >>> BiasedReLU(2)(torch.tensor([[-1.0, 2.0]]))
    tensor([[0., 2.]], grad_fn=<ReluBackward0>)
    """

    def __init__(
        self, channels: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.channels = channels
        self.bias = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set `b` to 0."""
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., c) to (..., c)."""
        return torch.relu(x + self.bias)

    def extra_repr(self) -> str:
        """Show the number of maps."""
        return f"{self.channels}"


class SoftThreshold(nn.Module):
    """Apply a two-sided soft threshold with learned `upper >= 0` and `lower <= 0` for each map (appendix B).

    `s(x)` is `x - upper` above `upper`, `x - lower` below `lower`, and 0 between them. Both thresholds start at 0, where
    the layer is the identity. Call `project()` after each optimiser step. (Clamping inside the forward pass would make
    the gradient vanish at 0, and the thresholds would never leave their initial value.)

    >>> layer = SoftThreshold(1)
    >>> with torch.no_grad(): _ = layer.upper.fill_(1), layer.lower.fill_(-2)
    >>> layer(torch.tensor([[3.0], [-1.0], [-5.0]])).T
    tensor([[ 2.,  0., -3.]], grad_fn=<PermuteBackward0>)
    """

    def __init__(
        self, channels: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.channels = channels
        self.upper = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.lower = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set both thresholds to 0."""
        nn.init.zeros_(self.upper)
        nn.init.zeros_(self.lower)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., c) to (..., c)."""
        return x - torch.clamp(x, self.lower, self.upper)

    @torch.no_grad()
    def project(self) -> None:
        """Move the thresholds back to the nearest allowed values."""
        self.upper.clamp_(min=0)
        self.lower.clamp_(max=0)

    def extra_repr(self) -> str:
        """Show the number of maps."""
        return f"{self.channels}"
