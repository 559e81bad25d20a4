"""The paper's two networks for sound (appendix B): analysis, soft threshold, a middle layer, linear synthesis.

Both have 5 taps and 10 maps. The middle layer, 10 -> 10 without bias, works on the local graph (the samples before and
after) or on the graph of similar 25-sample segments; the number of filter coefficients is the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.graphs.grid import grid_graph
from glocal.graphs.patch import patch_graph
from glocal.graphs.weights import NLMeans, weighted
from glocal.nn.activation import SoftThreshold
from glocal.nn.conv import GraphConv
from glocal.nn.init import mean_and_noise
from glocal.nn.sequential import GraphSequential

TAPS, MAPS, SEGMENT = 5, 10, 25
SIGMA = 0.12  # the noise level of the training of both, for peaks of 1
MIDDLES = ("local", "nonlocal")


class SampleNet(nn.Module):
    """`f2(f(s(f1(y))))`: samples in, samples out, at the noise level `SIGMA`.

    Parameters
    ----------
    middle : "local" or "nonlocal"
        The graph of the middle layer `f`.
    seed : int
        The seed of the filters. One filter of the first and of the last layer, and one for each map of the middle layer,
        is the constant 1/5; the others are drawn from N(0, 0.01^2). So the middle layer starts near the mean of each map,
        as the paper's one shared filter for images does. (With a single constant filter in the middle, some seeds end
        0.1 dB lower.)

    Examples
    --------
    >>> SampleNet("local")(torch.zeros(1, 100)).shape
    torch.Size([1, 100])
    """

    def __init__(self, middle: str, *, seed: int = 0) -> None:
        super().__init__()
        if middle not in MIDDLES:
            message = f"SampleNet: `middle` (={middle!r}) is unknown. Choose one of {', '.join(MIDDLES)}."
            raise ArgumentError(message)
        self.middle = middle
        generator = torch.Generator().manual_seed(seed)
        sizes = ((1, MAPS), (MAPS, MAPS), (MAPS, 1))  # without biases: the threshold replaces the first
        first, second, last = (
            mean_and_noise(GraphConv(c, m, TAPS, bias=False), generator, each_map=True) for c, m in sizes
        )
        self.net = GraphSequential((first, "local"), SoftThreshold(MAPS), (second, middle), (last, "local"))
        self.rule = NLMeans(r=SEGMENT, alpha=1 / SIGMA**2, beta=0.0) if middle == "nonlocal" else None

    def forward(self, y: Tensor, similar: Graph | None = None) -> Tensor:
        """y (b, n) -> (b, n). All rows share `similar` (by default made from their mean). Cost: O(b n), and the search."""
        graphs = {"local": _line(y.shape[1], y.device)}
        if self.rule is not None:
            similar = similar_segments(y.mean(0)) if similar is None else similar
            graphs["nonlocal"] = weighted(similar, self.rule)
        out: Tensor = self.net(y.unsqueeze(-1), graphs)
        return out.squeeze(-1)

    def project(self) -> None:
        """Move thresholds, alpha and beta back to allowed values. Call it after each optimiser step."""
        self.net.project()
        if self.rule is not None:
            self.rule.project()


def similar_segments(y: Tensor, *, search_radius: int | None = None) -> Graph:
    """Return the graph of the non-local layer: each sample of (n,) and the 5 with the most similar 25-sample surroundings."""
    return patch_graph(y, k=TAPS, patch=SEGMENT, search_radius=search_radius)


_lines: dict[tuple[int, torch.device], Graph] = {}


def _line(n: int, device: torch.device) -> Graph:
    """Return the local graph of `n` samples. The last graph is cached, because clips and blocks have one length."""
    if (n, device) not in _lines:
        _lines.clear()
        _lines[n, device] = grid_graph((n,), size=TAPS, device=device)
    return _lines[n, device]
