"""Edge weights from distances, with one small class per formula, and the normalisation of equation 8.

Each object is called with distances (n, d) and returns weights (n, d): `graph.with_weights(normalize(rule(graph.distances)))`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glocal.errors import ArgumentError
from glocal.graph import Graph


def normalize(weights: Tensor) -> Tensor:
    """Scale the weights by equation 8, `g_ij = d w_ij / sum_k w_ik`, so that each row has the mean 1. Cost: O(n d).

    >>> normalize(torch.tensor([[1.0, 3.0]]))
    tensor([[0.5000, 1.5000]])
    """
    total = weights.sum(1, keepdim=True)
    if not torch.compiler.is_compiling() and bool((total <= 0).any()):
        row = int((total <= 0).reshape(-1).nonzero()[0])
        message = (
            f"normalize: all weights of vertex {row} are 0, so equation 8 is undefined. Give it one positive weight."
        )
        raise ArgumentError(message)
    return weights * (weights.shape[1] / total)


@dataclass(frozen=True)
class Gaussian:
    """`w = exp(-dist^2 / sigma^2)` with a fixed `sigma` (colour transfer, appendix A).

    >>> Gaussian(sigma=1.0)(torch.tensor([[0.0, 1.0]]))
    tensor([[1.0000, 0.3679]])
    """

    sigma: float

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            message = f"Gaussian: `sigma` (={self.sigma}) must be positive. The paper uses 0.25 for colour palettes."
            raise ArgumentError(message)

    def __call__(self, distances: Tensor) -> Tensor:
        """Turn distances (n, d) into weights (n, d). Cost: O(n d)."""
        return torch.exp(-(distances / self.sigma).square())


@dataclass(frozen=True)
class PercentileGaussian:
    """`w = exp(-min(dist, q_saturate)^2 / q_sigma^2)`, `q_p` the p-th percentile of all distances (style, section 3).

    Because distances saturate, pixels that have only distant neighbours stay connected. Percentiles interpolate
    linearly, as `numpy.percentile` does. If `q_sigma` is 0 (more than `sigma` per cent of the distances are 0),
    distances of 0 get the weight 1 and the others 0, which is the limit of the formula.
    """

    saturate: float = 80.0
    sigma: float = 75.0

    def __call__(self, distances: Tensor) -> Tensor:
        """Turn distances (n, d) into weights (n, d). Cost: O(n d)."""
        cap, scale = percentiles(distances, (self.saturate, self.sigma))
        if scale == 0:
            return (distances == 0).to(distances.dtype)
        return torch.exp(-(distances.clamp(max=cap) / scale).square())


def percentiles(values: Tensor, wanted: tuple[float, ...]) -> list[float]:
    """Compute percentiles of all values by linear interpolation (torch.quantile refuses more than 2^24 values).

    On the CPU the values are partitioned around the few ranks that are needed. On a GPU they are sorted, which is faster
    than the transfer to the CPU. Cost: O(n), and a copy.

    >>> percentiles(torch.tensor([3.0, 0.0, 2.0, 1.0]), (50.0, 100.0))
    [1.5, 3.0]
    """
    flat = values.detach().reshape(-1)
    places = [(len(flat) - 1) * q / 100 for q in wanted]
    ranks = [rank for place in places for rank in (int(place), min(int(place) + 1, len(flat) - 1))]
    if flat.is_cuda:
        found = flat.sort().values[ranks].tolist()
    else:
        parted = np.partition(flat.numpy(), sorted(set(ranks)))
        found = [float(parted[rank]) for rank in ranks]
    lows, highs = found[::2], found[1::2]
    return [low + (high - low) * (place - int(place)) for low, high, place in zip(lows, highs, places, strict=True)]


class NLMeans(nn.Module):
    """`w = exp(-alpha max(dist^2 / r - beta, 0))` with learned `alpha, beta >= 0` (denoising, equation B.2).

    `r` is the number of values in a patch. `alpha` and `beta` are the initial values, and `device` and `dtype` are those
    of these two parameters, as in `torch.nn`. Call `project()` after each step.
    """

    def __init__(
        self,
        *,
        r: int,
        alpha: float,
        beta: float,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if r < 1 or not alpha > 0 or not beta >= 0:
            message = f"NLMeans: `r` (={r}) and `alpha` (={alpha}) must be positive, `beta` (={beta}) not negative. See appendix B."
            raise ArgumentError(message)
        self.r, self._start = r, (float(alpha), float(beta))
        self.alpha = nn.Parameter(torch.empty((), device=device, dtype=dtype))
        self.beta = nn.Parameter(torch.empty((), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set `alpha` and `beta` to their initial values."""
        nn.init.constant_(self.alpha, self._start[0])
        nn.init.constant_(self.beta, self._start[1])

    def forward(self, distances: Tensor) -> Tensor:
        """Turn distances (n, d) into weights (n, d), differentiable in `alpha` and `beta`. Cost: O(n d)."""
        excess = (distances.square() / self.r - self.beta).clamp(min=0)
        return torch.exp(-self.alpha * excess)

    @torch.no_grad()
    def project(self) -> None:
        """Move `alpha` and `beta` back to the nearest allowed value."""
        self.alpha.clamp_(min=0)
        self.beta.clamp_(min=0)

    def extra_repr(self) -> str:
        """Show the size of a patch and the initial values."""
        return f"r={self.r}, alpha={self._start[0]:g}, beta={self._start[1]:g}"


def weighted(graph: Graph, rule: Gaussian | PercentileGaussian | NLMeans) -> Graph:
    """Return `graph` with the weights `normalize(rule(distances))`, which the paper's non-local layers use."""
    if graph.distances is None:
        message = "weighted: the graph has no `distances`. Build it with patch_graph or knn_graph."
        raise ArgumentError(message)
    return graph.with_weights(normalize(rule(graph.distances)))
