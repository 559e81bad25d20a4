"""The random one-layer networks: their filters, their graphs and their Gram matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glocal import nn
from glocal.apps.style.options import StyleOptions
from glocal.apps.style.palette import guided
from glocal.graph import Graph
from glocal.graphs.grid import BOUNDARIES, grid_graph
from glocal.graphs.patch import patch_graph
from glocal.graphs.weights import PercentileGaussian, normalize, weighted

_WINDOW = 8  # pixels to each side: a window is wider than a JPEG block
_SAMPLE = 20_000  # number of patches from which the whitening is estimated


@dataclass(frozen=True, eq=False)
class Network:
    """One layer `F = max(0, conv(x) + bias)` and the description of its graph.

    `side` and `dilation` describe a local network; `side` is 0 for the non-local one. `offsets` (d, 2) are the steps
    down and right to the taps of a network whose taps do not fill a square.
    """

    name: str
    side: int
    dilation: int
    filters: Tensor
    bias: Tensor
    offsets: Tensor | None = None

    @property
    def local(self) -> bool:
        """Whether the network uses the pixel grid. Otherwise it uses the graph of similar patches."""
        return self.side > 0

    def to(self, like: Tensor | torch.dtype) -> Network:
        """Return the network with the dtype and on the device of `like`."""
        return replace(self, filters=self.filters.to(like), bias=self.bias.to(like))


def draw_networks(options: StyleOptions, generator: torch.Generator) -> list[Network]:
    """Draw filters and biases independently from N(0, 1): local networks first, then the non-local one.

    All networks are drawn for every value of `options.networks`, so that leaving one out does not change the other.
    """
    whole = [(side, dilation, None) for side, dilation in options.filters]
    some = [(side, 1, scattered(side, options.degree, generator)) for side in options.scattered]
    drawn = []
    for side, dilation, offsets in [*whole, *some, (0, 1, None)]:
        degree = options.degree if side == 0 else side * side if offsets is None else len(offsets)
        layer = nn.init.standard_normal(nn.GraphConv(3, options.maps, degree).double(), generator)
        assert layer.bias is not None
        detail = " scattered" if offsets is not None else f" dilation {dilation}" if dilation > 1 else ""
        name = f"local {side}x{side}{detail}" if side else "nonlocal"
        drawn.append(Network(name, side, dilation, layer.filters.detach(), layer.bias.detach(), offsets))
    wanted = {"both": (True, False), "local": (True,), "nonlocal": (False,)}[options.networks]
    return [network for network in drawn if network.local in wanted]


def scattered(side: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` different steps (d, 2) in a square of `side` pixels, in raster order; all of them if it has fewer.

    >>> scattered(3, 25, torch.Generator()).tolist()[:2]
    [[-1, -1], [-1, 0]]
    """
    cells = torch.randperm(side * side, generator=generator)[:count].sort().values
    return torch.stack([cells // side, cells % side], 1) - side // 2


def photo_graph(lab: Tensor, options: StyleOptions) -> Graph:
    """Return the non-local graph of an image (h, w, 3) in Lab (L from 0 to 100), with the weights of section 3 and equation 8.

    Neighbours are searched in float32. For a float64 image they are sorted again by distances in float64, so that a run
    in float64 has no float32 in its weights.
    """
    if options.even > 0:
        lab = evened(lab, options.even)
    graph = patch_graph(lab, k=options.degree, patch=options.patch, coords=1.0)
    if lab.dtype == torch.float64:
        distances = _distances(lab, graph.neighbors.long(), options.patch)
        order = torch.cat([distances[:, :1] - 1, distances[:, 1:]], 1).argsort(dim=1, stable=True)
        graph = Graph(graph.neighbors.gather(1, order), None, distances.gather(1, order))
    return weighted(graph, PercentileGaussian())


def evened(lab: Tensor, variance: float) -> Tensor:
    """Return (h, w, 3) without ripples below this variance: a guided filter of each channel by itself.

    Where a sky has nothing but JPEG blocks, the graph would follow them, and strokes would turn into mazes. Edges stay,
    because there the variance is far higher. Cost: O(h w).
    """
    return torch.cat([guided(lab[..., c : c + 1], lab[..., c], _WINDOW, variance) for c in range(3)], -1)


def _distances(lab: Tensor, neighbors: Tensor, patch: int) -> Tensor:
    h, w, _ = lab.shape
    cells = lab.reshape(-1, 3)[grid_graph((h, w), size=patch, device=lab.device).neighbors.long()].flatten(1)
    places = torch.arange(h * w, device=lab.device)
    features = torch.cat([cells, torch.stack([places // w, places % w], 1).to(lab)], 1)
    return torch.stack([(features - features[column]).square().sum(1).sqrt() for column in neighbors.T], 1)


def thinned(graph: Graph, step: int) -> Graph:
    """Return the graph with every `step`-th column, starting with the vertex itself, and normalised weights.

    Repeated averages over this graph reach as far as over the full graph, at a fraction of the cost.
    """
    weights = None if graph.weights is None else normalize(graph.weights[:, ::step].contiguous())
    return Graph(graph.neighbors[:, ::step].contiguous(), weights)


def graph_for(network: Network, shape: tuple[int, int], nonlocal_graph: Graph | None) -> Graph:
    """Return the graph of `network` on an image of this shape."""
    if network.offsets is not None:
        return _steps_graph(shape, network.offsets.to(network.filters.device))
    if network.local:
        device = network.filters.device
        return grid_graph(shape, size=network.side, dilation=network.dilation, device=device)
    assert nonlocal_graph is not None
    return nonlocal_graph


def _steps_graph(shape: tuple[int, int], offsets: Tensor) -> Graph:
    """Connect every pixel to the pixels at these offsets, reflected at the borders."""
    h, w = shape
    down, right = (torch.arange(n, device=offsets.device) for n in (h, w))
    y = BOUNDARIES["reflect"](down.view(h, 1, 1) + offsets[:, 0], h)
    x = BOUNDARIES["reflect"](right.view(1, w, 1) + offsets[:, 1], w)
    return Graph((y * w + x).view(h * w, len(offsets)))


def mean_gram(x: Tensor, graph: Graph, network: Network, shares: Tensor | None = None) -> Tensor:
    """Compute `F'F / n`: x (n, 3) -> (m, m). For regions with shares (r, n), `F' diag(share) F / sum(share)`: (r, m, m).

    It is divided by the size, so that a photo and a painting of different sizes can be compared. Differentiable.
    """
    parts = None if shares is None else mean_one(shares)
    found = nn.functional.gram(x.to(network.filters), graph, network.filters, network.bias, parts)
    return found / graph.num_vertices


def mean_one(shares: Tensor) -> Tensor:
    """Scale the shares (r, n) of each region to the mean 1."""
    return shares / shares.mean(1, keepdim=True)


def target_gram(x: Tensor, graph: Graph, network: Network, shares: Tensor | None = None) -> Tensor:
    """Compute `mean_gram` of a painting in float64, because the photo's will come close to it. Without gradient."""
    weights = None if graph.weights is None else graph.weights.double()
    return mean_gram(x.double(), graph.with_weights(weights), network.to(torch.float64), shares)


def whitened(network: Network, paintings: list[tuple[Tensor, Graph]], amount: float) -> Network:
    """Draw new filters from N(0, C^-amount), where `C` is the covariance of the paintings' patches of the network.

    With `amount = 1` fine strokes count as much as broad areas, which have most of a painting's variance. Directions
    with less than 1e-4 of the largest variance are noise, and are treated as if they had that variance.
    """
    if amount == 0:
        return network
    rows = []
    for x, graph in paintings:
        step = max(1, graph.num_vertices // _SAMPLE)
        some = torch.arange(0, graph.num_vertices, step, device=x.device)
        patches = x[graph.neighbors[some].long()]
        if graph.weights is not None:
            patches = patches * graph.weights[some].to(x.dtype).unsqueeze(-1)
        rows.append(patches.reshape(len(some), -1).to("cpu", torch.float64))
    every = torch.cat(rows)
    values, vectors = torch.linalg.eigh(torch.cov(every.T))
    scale = values.clamp(min=1e-4 * float(values[-1])).pow(-amount / 2)
    flat = network.filters.reshape(len(scale), -1)
    drawn = (vectors * scale) @ vectors.T @ flat.to("cpu", torch.float64)
    # Responses to the painting get the variance 1 that the biases have.
    spread = (every - every.mean(0)) @ drawn
    drawn = drawn / spread.std(0).clamp(min=1e-12)
    filters = drawn.view(network.filters.shape).to(flat)
    return replace(network, filters=filters)
