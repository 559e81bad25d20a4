"""The networks `f2 . f1` (local) and `f2 . fnl . f1` (non-local) of appendix B, and the control with a local middle layer.

`f1` is a bank of filters on the pixel grid followed by a soft threshold. `f2` is a linear bank of filters that returns the
picture. The middle layer is one filter shared by all maps. Its non-local graph is built on the noisy picture.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn

from glocal.apps.denoise.options import PAPER_SIGMA, Architecture
from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.graphs.grid import grid_graph
from glocal.graphs.patch import patch_graph
from glocal.graphs.weights import NLMeans, normalize
from glocal.nn import GraphConv, SharedGraphConv, SoftThreshold
from glocal.nn.init import mean_and_noise


class ImageDenoiser(nn.Module):
    """`y -> f2(f_middle(f1(y)))` for a picture `y` with noise of standard deviation `sigma`.

    `f1(y) = s(h1 * y)` with the soft threshold `s`, `f2` linear, both on the grid with reflected borders. The non-local
    layer is `fnl(z) = sum_l g_il t_l z[j_l]` with `g` the normalised weights `exp(-alpha max(dist^2 / r - beta, 0))`.
    `alpha` and `beta` start at `1 / (0.40 sigma^2)` and `2 sigma^2` and are learned directly. (In units of the noise, `beta`
    changes too slowly at the paper's step size: 0.14 dB less.)

    `sigma` is the noise level of the input, `trained` the level of the training. They differ only after `at_sigma`.
    The network is positively homogeneous: `net.at_sigma(c sigma)(c y) = c net(y)` for every `c > 0`.

    >>> net = ImageDenoiser(Architecture("nonlocal"), seed=0)
    >>> y = torch.rand(12, 10)
    >>> net(y.reshape(-1, 1), net.graphs(y)).shape
    torch.Size([120, 1])
    """

    def __init__(self, architecture: Architecture, *, sigma: float = PAPER_SIGMA, seed: int = 0) -> None:
        super().__init__()
        if not sigma > 0:
            message = f"ImageDenoiser: `sigma` (={sigma}) must be positive. The paper uses 0.07."
            raise ArgumentError(message)
        self.architecture, self.sigma, self.trained = architecture, float(sigma), float(sigma)
        degree, maps = architecture.size**2, architecture.maps
        generator = torch.Generator().manual_seed(seed)
        self.analysis = mean_and_noise(GraphConv(1, maps, degree, bias=False), generator)
        self.threshold = SoftThreshold(maps)
        self.synthesis = mean_and_noise(GraphConv(maps, 1, degree, bias=False), generator)
        self.middle: SharedGraphConv | None = None
        self.rule: NLMeans | None = None
        if architecture.middle == "local":
            self.middle = SharedGraphConv(degree)
        if architecture.middle == "nonlocal":
            self.middle = SharedGraphConv(architecture.neighbors)
            self.rule = NLMeans(r=architecture.patch**2, alpha=1 / (0.40 * sigma**2), beta=2 * sigma**2)

    def graphs(
        self, noisy: Tensor, *, search_radius: int | None = None, progress: Callable[[float], None] | None = None
    ) -> dict[str, Graph]:
        """Return the graphs of a noisy picture (h, w): the grid and, if the network needs it, its similar patches.

        Cost: O(n d); with `search_radius` the patches cost O(n search_radius^2), without it up to O(n^2).
        """
        found = {"local": _grid(*noisy.shape, self.architecture.size, noisy.device)}
        if self.rule is not None:
            sizes = self.architecture
            found["similar"] = patch_graph(
                noisy.unsqueeze(-1),
                k=sizes.neighbors,
                patch=sizes.patch,
                search_radius=search_radius,
                progress=progress,
            )
        return found

    def forward(self, noisy: Tensor, graphs: Mapping[str, Graph]) -> Tensor:
        """Denoise (n, 1) or (batch, n, 1) on the graphs of the picture. Cost: O(n d maps)."""
        codes = self.threshold(self.analysis(noisy, graphs["local"]))
        if self.rule is not None and self.middle is not None:
            similar = graphs["similar"]
            assert similar.distances is not None
            weights = normalize(self.rule(similar.distances.to(noisy.dtype)))
            codes = self.middle(codes, similar.with_weights(weights))
        elif self.middle is not None:
            codes = self.middle(codes, graphs["local"])
        denoised: Tensor = self.synthesis(codes, graphs["local"])
        return denoised

    def at_sigma(self, sigma: float) -> ImageDenoiser:
        """Return a copy for another noise level: thresholds, `alpha` and `beta` are scaled, the filters are kept."""
        other, scale = copy.deepcopy(self), float(sigma) / self.sigma
        other.sigma = float(sigma)
        with torch.no_grad():
            other.threshold.upper.mul_(scale)
            other.threshold.lower.mul_(scale)
            if other.rule is not None:
                other.rule.alpha.mul_(scale**-2)
                other.rule.beta.mul_(scale**2)
        return other

    def project(self) -> None:
        """Move thresholds, `alpha` and `beta` back to the nearest allowed values. Call it after each step."""
        self.threshold.project()
        if self.rule is not None:
            self.rule.project()


@lru_cache(maxsize=4)
def _grid(height: int, width: int, size: int, device: torch.device) -> Graph:
    return grid_graph((height, width), size=size, device=device)
