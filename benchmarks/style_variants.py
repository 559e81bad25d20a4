"""The variants of style transfer that `style_quality.py` compares: what each changes in a common base.

The base is the preset "painterly" as it was before the comparison. Most variants are other values of `StyleOptions`.
Other changes use a hook, which may replace the terms of a level before it is minimised, or another feature image for the
graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from style_regions import alike, regions
from torch import Tensor

from glocal.apps.style import solve
from glocal.apps.style.edges import edge_share
from glocal.apps.style.levels import resized
from glocal.apps.style.terms import Anchor
from glocal.graph import Graph
from glocal.graphs.grid import BOUNDARIES
from glocal.nn.functional import graph_conv
from glocal.optim.objectives import WeightedSum, balance, value_and_gradient

Hook = Callable[[Any, int, WeightedSum, Tensor], None]


@dataclass(frozen=True)
class Variant:
    """A row of the table: its description, the options of `BASE` that it changes, and its other changes.

    inside : a `with` around the run, made from photo and painting. It gives further arguments for `stylize`.
    peer : the longer sides of the levels of `style_gatys.py`, which is run instead; for results of 512 pixels.
    preset : a preset to start from instead of `BASE`.
    features : computes from Lab the image (h, w, c) whose patches the graph compares; None for Lab itself.
    coords : weight of the coordinates in the graph's features.
    """

    about: str
    changes: dict[str, Any] = field(default_factory=dict)
    preset: str | None = None
    hook: Hook | None = None
    features: Callable[[Tensor], Tensor] | None = None
    coords: float = 1.0
    inside: Callable[[Any, Any], AbstractContextManager[dict[str, Any]]] | None = None
    peer: tuple[int, ...] = ()


@dataclass(frozen=True)
class View:
    """Another local network: `side` x `side` filters, on a picture shrunk by `shrink`, or with `taps` random taps."""

    side: int
    shrink: int = 1
    taps: int = 0
    maps: int = 64


def views(*kinds: View) -> Hook:
    """Add a Gram distance for each view, balanced like the others."""

    def hook(run: Any, level: int, objective: WeightedSum, start: Tensor) -> None:
        shape = run.shapes[level]
        paintings = [resized(p, solve.painting_shape(p, shape, run.options.style_scale)) for p in run.task.paintings]
        seen = run.frame.seen(paintings[0] / 100)
        for number, kind in enumerate(kinds):
            least = min(*shape, *seen.shape[:2]) // kind.shrink
            if kind.side // 2 >= least:
                continue  # the filter is larger than the picture at this level
            generator = torch.Generator().manual_seed(1000 * run.options.seed + number)
            see = _seer(kind, seen, run.options.whiten, generator)
            target = see(seen).detach()
            name = f"view {number}"

            def term(z: Tensor, see: Callable[[Tensor], Tensor] = see, target: Tensor = target) -> Tensor:
                return (see(z.view(*shape, 3)) - target).square().sum()

            objective.terms[name] = term  # type: ignore[index]
            objective.factors[name] = balance({name: term}, start)[name]  # type: ignore[index]

    return hook


def _seer(kind: View, painting: Tensor, whiten: float, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Draw the view's filters; return the function from an image (h, w, 3) to its Gram matrix."""
    count = kind.taps or kind.side**2
    offsets = torch.randint(-(kind.side // 2), kind.side // 2 + 1, (count, 2), generator=generator)
    filters = torch.randn(3 * count, kind.maps, generator=generator, dtype=torch.float64)
    bias = torch.randn(kind.maps, generator=generator).to(painting)

    def shrunk(image: Tensor) -> Tensor:
        planes = image.permute(2, 0, 1)[None]
        return F.avg_pool2d(planes, kind.shrink, ceil_mode=True) if kind.shrink > 1 else planes

    def patches(planes: Tensor, rows: Tensor | None = None) -> Tensor:
        if kind.taps:
            graph = _scattered(planes.shape[2:], offsets, planes.device)
            return planes[0].flatten(1).T[graph.neighbors[rows].long()].permute(0, 2, 1).flatten(1)
        padded = F.pad(planes, [kind.side // 2] * 4, mode="reflect")
        flat = padded.unfold(2, kind.side, 1).unfold(3, kind.side, 1)
        y, x = rows // planes.shape[3], rows % planes.shape[3]
        return flat[0][:, y, x].permute(1, 0, 2, 3).flatten(1)

    small = shrunk(painting)
    n = small.shape[2] * small.shape[3]
    rows = torch.arange(0, n, max(1, n // 4000), device=painting.device)
    every = patches(small, rows).double().cpu()
    if whiten and every.shape[1] < 1000:
        values, vectors = torch.linalg.eigh(torch.cov(every.T))
        filters = (vectors * values.clamp(min=1e-4 * float(values[-1])).pow(-whiten / 2)) @ vectors.T @ filters
    filters = filters / ((every - every.mean(0)) @ filters).std(0).clamp(min=1e-12)
    taps = filters.to(painting)
    graphs: dict[tuple[int, ...], Graph] = {}

    def see(image: Tensor) -> Tensor:
        planes = shrunk(image)
        if kind.taps:
            key = tuple(planes.shape[2:])
            graphs[key] = graphs.get(key) or _scattered(key, offsets, planes.device)
            maps = graph_conv(
                planes[0].flatten(1).T, graphs[key], taps.view(3, count, -1).permute(1, 0, 2).contiguous()
            )
            maps = F.relu(maps + bias)
        else:
            padded = F.pad(planes, [kind.side // 2] * 4, mode="reflect")
            maps = F.relu(F.conv2d(padded, taps.T.view(-1, 3, kind.side, kind.side), bias))[0].flatten(1).T
        return maps.T @ maps / len(maps)

    return see


def _scattered(shape: tuple[int, ...], offsets: Tensor, device: Any = "cpu") -> Graph:
    """Every pixel and the pixels at the same random offsets from it."""
    h, w = shape
    y = BOUNDARIES["reflect"](torch.arange(h).view(h, 1, 1) + offsets[:, 0], h)
    x = BOUNDARIES["reflect"](torch.arange(w).view(1, w, 1) + offsets[:, 1], w)
    return Graph((y * w + x).reshape(h * w, -1).to(device))


def _photo(run: Any, level: int) -> Tensor:
    return resized(run.task.photo, run.shapes[level])


def blurred(image: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of (h, w, c)."""
    reach = min(round(3 * sigma), min(image.shape[:2]) - 1)
    line = torch.exp(-(torch.arange(-reach, reach + 1.0) ** 2) / (2 * sigma**2)).to(image)
    line = line / line.sum()
    planes = F.pad(image.permute(2, 0, 1)[:, None], [reach] * 4, mode="reflect")
    return F.conv2d(F.conv2d(planes, line.view(1, 1, -1, 1)), line.view(1, 1, 1, -1))[:, 0].permute(1, 2, 0)


def edge_tv(weight: float) -> Hook:
    """Total variation that counts less across the photo's edges: `w = 1 / (1 + edge)`, of mean 1."""

    def hook(run: Any, level: int, objective: WeightedSum, start: Tensor) -> None:
        shape = run.shapes[level]
        w = 1 / (1 + edge_share(_photo(run, level)).view(shape))
        w = (w / w.mean()).unsqueeze(-1)

        def term(z: Tensor) -> Tensor:
            image = (z @ run.frame.color).view(*shape, 3)
            return ((image[1:] - image[:-1]).abs() * w[1:]).sum() + (image[:, 1:] - image[:, :-1]).abs().mul(
                w[:, 1:]
            ).sum()

        objective.terms["tv"], objective.factors["tv"] = term, weight  # type: ignore[index]

    return hook


def edge_anchor(weight: float) -> Hook:
    """Add a second anchor, of reach 1, at the photo's edges; the option `anchor_edges` came from it."""

    def hook(run: Any, level: int, objective: WeightedSum, start: Tensor) -> None:
        first: Anchor = objective.terms["anchor"]  # type: ignore[assignment]
        term = replace(first, reach=1, share=edge_share(_photo(run, level)))
        objective.terms["edges"] = term  # type: ignore[index]
        objective.factors["edges"] = weight * balance({"edges": term}, start)["edges"]  # type: ignore[index]

    return hook


def blur_anchor(run: Any, level: int, objective: WeightedSum, start: Tensor) -> None:
    """Compare the luminance blurred by 2 pixels instead of averages over the graph."""
    first: Anchor = objective.terms["anchor"]  # type: ignore[assignment]
    shape = run.shapes[level]

    def term(z: Tensor) -> Tensor:
        away = ((run.frame.back(z) - first.target) * first.channels).view(*shape, 3)
        return blurred(away, 2.0).square().sum() / len(z)

    objective.terms["anchor"] = term  # type: ignore[index]
    objective.factors["anchor"] = run.options.anchor * balance({"anchor": term}, start)["anchor"]  # type: ignore[index]


def histogram_tone(run: Any, level: int, objective: WeightedSum, start: Tensor) -> None:
    """Match the anchor's luminance to the painting's whole histogram, not only its mean and spread."""
    first: Anchor = objective.terms["anchor"]  # type: ignore[assignment]
    light = run.task.paintings[0][..., 0].flatten().sort().values / 100
    ranks = first.target[:, 0].argsort().argsort().to(light) / max(1, len(first.target) - 1)
    target = first.target.clone()
    target[:, 0] = light[(ranks * (len(light) - 1)).round().long()]
    term = Anchor(first.graph, target, first.channels, first.frame, first.reach)
    objective.terms["anchor"] = term  # type: ignore[index]
    objective.factors["anchor"] = run.options.anchor * balance({"anchor": term}, start)["anchor"]  # type: ignore[index]


def even_balance(run: Any, level: int, objective: WeightedSum, start: Tensor) -> None:
    """Balance by the root mean square of each gradient instead of its largest entry (which is about six times that)."""
    for name, term in objective.terms.items():
        if name != "tv":
            _, gradient = value_and_gradient(term, start)
            weight = run.options.anchor if name == "anchor" else 1.0
            objective.factors[name] = weight / (6 * float(gradient.square().mean().sqrt()))  # type: ignore[index]


def with_gradients(lab: Tensor) -> Tensor:
    """Lab and the two differences of luminance."""
    light = lab[..., :1]
    dy = F.pad(light.diff(dim=0), (0, 0, 0, 0, 0, 1))
    dx = F.pad(light.diff(dim=1), (0, 0, 0, 1))
    return torch.cat([lab, dy, dx], -1)


BASE = {
    "iterations": 120, "ease": 0.8, "tv": 0.001, "maps": 64, "filters": ((5, 1), (5, 2), (5, 4), (5, 8)), "colors": "centred",
    "whiten": 0.3, "anchor": 0.3, "anchor_reach": 6, "anchor_color": 0.3, "balance": "gradient",
}  # fmt: skip
SIZES = (3, 5, 7, 11, 15, 23, 37, 55)  # Ustyuzhaninov et al. 2016
_WHOLE = ((3, 1), (5, 1), (7, 1), (11, 1))
_DILATED = ((5, 1), (5, 2), (5, 4), (5, 8))


def _shrunk(*factors: int, maps: int = 64, side: int = 5) -> Hook:
    return views(*(View(side, shrink=factor, maps=maps) for factor in factors))


def _scattered_taps(*sides: int) -> Hook:
    return views(*(View(side, taps=25) for side in sides))


def _soft(lab: Tensor) -> Tensor:
    return blurred(lab, 1.5)


def both(*hooks: Hook) -> Hook:
    """Run one hook after the other."""

    def hook(run: Any, level: int, objective: WeightedSum, start: Tensor) -> None:
        for one in hooks:
            one(run, level, objective, start)

    return hook


VARIANTS: dict[str, Variant] = {
    "base": Variant("the base: 5x5 filters with dilations 1, 2, 4 and 8"),
    "preset": Variant(
        'the preset "painterly": mixed 3 7, and an anchor at edges of 0.15 of the other', preset="painterly"
    ),
    "preset edges": Variant("the preset with an anchor at edges of 0.3", {"anchor_edges": 0.3}, "painterly"),
    "paper": Variant("the paper's preset", {"size": 512}, "paper"),
    "shrunk4": Variant("5x5 filters on the picture shrunk 1, 2, 4, 8 times", {"filters": ()}, hook=_shrunk(1, 2, 4, 8)),
    "shrunk5": Variant("the same and 16 times", {"filters": ()}, hook=_shrunk(1, 2, 4, 8, 16)),
    "dilated2+shrunk": Variant(
        "dilations 1, 2, and shrunk 4, 8, 16", {"filters": ((5, 1), (5, 2))}, hook=_shrunk(4, 8, 16)
    ),
    "dilated3": Variant("dilations 1, 2, 4", {"filters": _DILATED[:3]}),
    "dilated5": Variant("dilations 1, 2, 4, 8, 13: a reach of 53 pixels", {"filters": (*_DILATED, (5, 13))}),
    "sparse": Variant(
        "25 random taps in squares of 3 to 55", {"filters": ()}, hook=views(*(View(s, taps=25) for s in SIZES))
    ),
    "large": Variant("whole filters of 8 sizes from 3 to 55", {"filters": ()}, hook=views(*map(View, SIZES))),
    "sizes": Variant("whole filters of 3, 5, 7 and 11", {"filters": _WHOLE}),
    "mixed": Variant(
        "whole 5x5 filters, and 25 random taps in squares of 11, 23 and 55",
        {"filters": ((5, 1),)},
        hook=_scattered_taps(11, 23, 55),
    ),
    "mixed 3 7": Variant(
        "whole 3x3 and 7x7 filters, and 25 random taps in squares of 15 and 37",
        {"filters": ((3, 1), (7, 1))},
        hook=_scattered_taps(15, 37),
    ),
    "sizes smooth": Variant(
        "filters of 3, 5, 7 and 11, blurred graph, histogram of luminance",
        {"filters": _WHOLE},
        hook=histogram_tone,
        features=_soft,
    ),
    "mixed smooth": Variant(
        "mixed, blurred graph, histogram of luminance",
        {"filters": ((5, 1),)},
        hook=both(_scattered_taps(11, 23, 55), histogram_tone),
        features=_soft,
    ),
    "mixed edges": Variant(
        "mixed, blurred graph, second anchor at edges",
        {"filters": ((5, 1),)},
        hook=both(_scattered_taps(11, 23, 55), edge_anchor(0.1)),
        features=_soft,
    ),
    "maps32": Variant("32 maps", {"maps": 32}),
    "maps128": Variant("128 maps", {"maps": 128}),
    "white0": Variant("no whitening", {"whiten": 0.0}),
    "white5": Variant("whitening 0.5", {"whiten": 0.5}),
    "reach2": Variant("anchor of reach 2", {"anchor_reach": 2}),
    "edges": Variant("a second anchor of reach 1 at the photo's edges", hook=edge_anchor(0.1)),
    "blur": Variant("anchor on a blur of 2 pixels", hook=blur_anchor),
    "tone": Variant("anchor with the painting's histogram of luminance", hook=histogram_tone),
    "color1": Variant("anchor on colours as on luminance", {"anchor_color": 1.0}),
    "even": Variant("gradients balanced by their mean square", hook=even_balance),
    "edge tv": Variant("edge-aware total variation 0.003", hook=edge_tv(0.003)),
    "local": Variant("no non-local network (the anchor stays)", {"networks": "local"}),
    "patch5": Variant("graph of 5x5 patches", {"patch": 5}),
    "coords3": Variant("coordinates at 3 in the graph", coords=3.0),
    "blurred": Variant("graph of a picture blurred by 1.5 pixels", features=_soft),
    "gradients": Variant("graph of colours and gradients", features=with_gradients),
    "coarse16": Variant("one more level, from 16 pixels", {"coarsest": 16}),
    "patches 0": Variant("`patches`, structure 0", {"structure": 0.0}, "patches"),
    "patches 0.3": Variant("`patches`, structure 0.3", {"structure": 0.3}, "patches"),
    "patches": Variant("`patches` (structure 0.5)", preset="patches"),
    "patches 0.7": Variant("`patches`, structure 0.7", {"structure": 0.7}, "patches"),
    "patches 1": Variant("`patches`, structure 1", {"structure": 1.0}, "patches"),
    "alike 0": Variant("`patches`, as many more sweeps, no bonus", preset="patches", inside=partial(alike, 0.0)),
    "alike 1": Variant("`patches`, similar places alike, bonus 1", preset="patches", inside=partial(alike, 1.0)),
    "alike 4": Variant("`patches`, similar places alike, bonus 4", preset="patches", inside=partial(alike, 4.0)),
    "regions": Variant(
        "`patches`, three regions of each picture in pairs", preset="patches", inside=partial(regions, 3)
    ),
    "painterly": Variant("`painterly`", preset="painterly"),
    "brush": Variant("`brush`", preset="brush"),
    "brush 0.25": Variant("`brush`, structure 0.25", {"structure": 0.25}, "brush"),
    "brush long": Variant("`brush` with 300 iterations at each level", {"ease": 1.0}, "brush"),
    "bold": Variant("`bold`", preset="bold"),
    "bold 0.25": Variant("`bold`, structure 0.25", {"structure": 0.25}, "bold"),
    "paper 512": Variant("`paper` at 512 pixels", preset="paper"),
    "gatys": Variant("Gatys et al., VGG-16", peer=(512,)),
    "gatys 3": Variant("Gatys et al. in three scales, 128, 256 and 512 pixels", peer=(128, 256, 512)),
}
