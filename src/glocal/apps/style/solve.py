"""The solver: Lab images in, a Lab image out. It does not depend on files or terminals.

For each level from coarse to fine, it sets up equation 10 (the painting's Gram matrices, the photo's graph) and
minimises it, starting from the enlarged result of the previous level.

The image is always kept in float64. The networks compute in the dtype of the inputs. Only at the coarse levels, where
one wrong sign has the largest effect and an iteration is cheapest, they compute in float64 too. So the losses follow
those of float64 (docs/style.md shows how closely).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from glocal.apps.style.edges import edge_share
from glocal.apps.style.estimate import done_before, iterations_at
from glocal.apps.style.levels import fitted, level_shapes, resized
from glocal.apps.style.networks import Network, draw_networks, graph_for, photo_graph, target_gram, thinned, whitened
from glocal.apps.style.options import StyleOptions
from glocal.apps.style.terms import Anchor, ColorFrame, GramDistance, TotalVariation, color_frame
from glocal.color_match import matched
from glocal.graph import Graph
from glocal.kernels import select
from glocal.kernels.cpu.reuse import reusing
from glocal.kernels.cpu.threads import undisturbed
from glocal.optim.coarse_to_fine import coarse_to_fine
from glocal.optim.history import History
from glocal.optim.lbfgs import Minimum, lbfgs
from glocal.optim.objectives import Objective, WeightedSum, balance
from glocal.progress import Progress

HISTORY = 10  # number of pairs in the history of L-BFGS
_FIRST_STEP = 0.01  # one per cent of the range of Lab / 100
COARSE = 4096  # levels of up to this many pixels are computed in float64
_ANCHOR_STEP = 4  # the anchor averages over every fourth neighbour
CALL_SECONDS = 0.4  # the shortest time between two calls of the callback


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run: the level (from 0), the iterations done there, and the image in Lab.

    `exact` holds the state of L-BFGS, so that the run continues to the same bytes as without an interruption. Without
    it the run continues from the image only.
    """

    level: int
    iteration: int
    lab: Tensor
    exact: dict[str, Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """The images of a transfer: (h, w, 3) in Lab with L from 0 to 100, all with one dtype and on one device.

    Attributes
    ----------
    weights
        One for each painting, with the sum 1.
    shares
        Pairs (share of the photo (h, w), shares of each painting) with values in [0, 1]; empty for whole images.
    start
        The initial image, or None for noise.
    """

    photo: Tensor
    paintings: tuple[Tensor, ...]
    weights: tuple[float, ...] = (1.0,)
    shares: tuple[tuple[Tensor, tuple[Tensor, ...]], ...] = ()
    start: Tensor | None = None
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """The image in Lab, the losses of each level, the seconds of each phase, and whether the caller stopped the run."""

    lab: Tensor
    losses: tuple[tuple[float, ...], ...]
    phases: dict[str, float]
    stopped: bool


@dataclass(eq=False)
class _Run:
    """The data that all levels of one run share."""

    task: Task
    options: StyleOptions
    callback: Callable[[Progress], bool | None] | None
    generator: torch.Generator
    networks: list[Network]
    frame: ColorFrame
    shapes: list[tuple[int, int]]
    phases: dict[str, float] = field(default_factory=dict)
    factors: tuple[int, dict[str, float]] | None = None  # the level before, and the factors of its terms
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        start = time.perf_counter()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start


def solve(task: Task, options: StyleOptions, callback: Callable[[Progress], bool | None] | None = None) -> Solution:
    """Transfer the style of the paintings to the photo, at the photo's own size.

    `callback` gets a `Progress` with the current image in Lab a few times a second. If it returns True, the run stops.
    Cost of an iteration at n pixels: O(n m (d c + m)) for each network of m maps and degree d.
    """
    generator = torch.Generator().manual_seed(options.seed)
    networks = [network.to(task.photo) for network in draw_networks(options, generator)]
    h, w = task.photo.shape[:2]
    frame = color_frame([p / 100 for p in task.paintings], list(task.weights), options.colors)
    run = _Run(task, options, callback, generator, networks, frame, level_shapes((h, w), options.coarsest))
    first = task.checkpoint.level if task.checkpoint else 0
    problems = [partial(_problem, run, level) for level in range(first, len(run.shapes))]
    with undisturbed():
        found = coarse_to_fine(problems, lambda k, objective, start: _minimise(run, first + k, objective, start))
    level = first + len(found) - 1
    lab = _lab(run, level, found[-1].x)
    stopped = found[-1].reason == "stopped"
    return Solution(resized(lab, (h, w)), tuple(m.losses for m in found), run.phases, stopped)


def _lab(run: _Run, level: int, z: Tensor) -> Tensor:
    """Return the image as Lab, with the dtype of the photo."""
    return (run.frame.back(z).view(*run.shapes[level], 3) * 100).to(run.task.photo)


def _dtype(run: _Run, shape: tuple[int, int]) -> torch.dtype:
    """Return the dtype of the networks at a level."""
    return torch.float64 if shape[0] * shape[1] <= COARSE else run.task.photo.dtype


def _problem(run: _Run, level: int, previous: Tensor | None) -> tuple[WeightedSum, Tensor]:
    """Set up equation 10 at one level, and return it with the initial image."""
    shape = run.shapes[level]
    options, task = run.options, run.task
    photo = resized(task.photo, shape)
    start = _start(run, level, previous)
    with run.phase("graph"):
        needed = options.anchor > 0 or options.networks != "local"
        graph = photo_graph(photo, options) if needed else None
    grams = _gram_distances(run, shape, graph)
    terms: dict[str, Objective] = dict(grams)
    grown = _grown(run, level) if options.balance == "once" else {}
    tv = options.tv
    if options.balance == "relative":
        norms = {name: float(term.target.square().sum()) for name, term in grams.items()}
        factors = {name: 1 / (max(norm, 1e-30) * len(grams)) for name, norm in norms.items()}
        tv = options.tv / len(start)
    elif grown:
        factors = {name: grown[name] for name in terms}
    else:
        with run.phase("balance"):
            factors = balance(terms, start)
    if options.tv > 0:
        terms["tv"], factors["tv"] = TotalVariation(shape, run.frame), tv
    if options.anchor > 0:
        assert graph is not None
        target = _toned(photo, task) / 100
        fixed = 1 / max(float(target[..., 0].var()), 1e-4)
        for name, (anchor, weight) in _anchors(run, level, photo, target, thinned(graph, _ANCHOR_STEP)).items():
            terms[name] = anchor
            if grown:
                factors[name] = grown[name] * options.anchor_ease
            else:
                scale = fixed if options.balance == "relative" else balance({name: anchor}, start)[name]
                factors[name] = weight * scale
    if exact := _exact(run, level):
        factors = dict(zip(terms, exact["factors"].tolist(), strict=True))
    run.factors = level, factors
    return WeightedSum(terms, factors, run.phases), start


def _grown(run: _Run, level: int) -> dict[str, float]:
    """Return the factors of the level before for this one, where balance is made once; at the first level, nothing.

    The paper's Gram matrices are sums over the n pixels, ours are means. With the same `gamma` for sums, the factor of
    a distance between means grows with n^2, and its gradient at one pixel with n.
    """
    if level == 0 or _exact(run, level):  # a checkpoint has the factors of its level
        return {}
    if run.factors is None:  # the run goes on from an image alone: balance again where it began
        _problem(first := replace(run, task=replace(run.task, checkpoint=None)), 0, None)
        run.factors = first.factors
    assert run.factors is not None
    before, factors = run.factors
    growth = (math.prod(run.shapes[level]) / math.prod(run.shapes[before])) ** 2
    return {name: factor * growth for name, factor in factors.items()}


def _anchors(run: _Run, level: int, photo: Tensor, target: Tensor, graph: Graph) -> dict[str, tuple[Anchor, float]]:
    """Return the anchor on averages, and the one on single pixels at the photo's edges, each with its weight."""
    options = run.options
    channels = target.new_tensor([1.0, options.anchor_color, options.anchor_color])
    weight = options.anchor * options.anchor_ease**level
    far = Anchor(graph, target.reshape(-1, 3), channels, run.frame, options.anchor_reach)
    if options.anchor_edges == 0:
        return {"anchor": (far, weight)}
    near = replace(far, reach=1, share=edge_share(photo))
    return {"anchor": (far, weight), "edges": (near, weight * options.anchor_edges)}


def _gram_distances(run: _Run, shape: tuple[int, int], graph: Graph | None) -> dict[str, GramDistance]:
    """Return one distance for each network, with its target from the paintings."""
    task, options = run.task, run.options
    paintings = [resized(p, painting_shape(p, shape, options.style_scale)) for p in task.paintings]
    sizes = [(p.shape[0], p.shape[1]) for p in paintings]
    with run.phase("graph"):
        theirs = [photo_graph(p, options) if options.networks != "local" else None for p in paintings]
    seen = [run.frame.seen(p.reshape(-1, 3).double() / 100) for p in paintings]
    dtype = _dtype(run, shape)
    shares = _shares([mine for mine, _ in task.shares], shape, dtype)
    their_shares = [
        _shares([others[k] for _, others in task.shares], size, torch.float64) for k, size in enumerate(sizes)
    ]
    distances = {}
    with run.phase("painting"):
        for drawn in run.networks:
            graphs = [_in(graph_for(drawn, size, g), dtype) for size, g in zip(sizes, theirs, strict=True)]
            network = whitened(drawn, list(zip(seen, graphs, strict=True)), options.whiten).to(dtype)
            own = _in(graph_for(network, shape, graph), dtype)
            grams = [target_gram(x, g, network, s) for x, g, s in zip(seen, graphs, their_shares, strict=True)]
            target = torch.stack([w * g for w, g in zip(task.weights, grams, strict=True)]).sum(0)
            distances[network.name] = GramDistance(network, own, target, shares)
    return distances


def _in(graph: Graph, dtype: torch.dtype) -> Graph:
    return graph if graph.weights is None else graph.with_weights(graph.weights.to(dtype))


def painting_shape(painting: Tensor, shape: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return the painting's size at a level: the photo's longer side times the scale, never larger than the painting."""
    h, w = painting.shape[:2]
    return fitted((h, w), min(max(shape) * scale, max(h, w)))


def _shares(shares: list[Tensor], shape: tuple[int, int], dtype: torch.dtype) -> Tensor | None:
    """Return the shares (h, w) of the regions at this size as (r, n), or None where there are no regions."""
    if not shares:
        return None
    return torch.stack([resized(one.unsqueeze(-1), shape).reshape(-1) for one in shares]).clamp(min=0).to(dtype)


def _toned(photo: Tensor, task: Task) -> Tensor:
    """Return the photo with the paintings' mean and spread of luminance, and their mean and covariance of a and b, in Lab."""
    light = matched(photo[..., :1], [p[..., :1] for p in task.paintings], task.weights)
    return torch.cat([light, matched(photo[..., 1:], [p[..., 1:] for p in task.paintings], task.weights)], -1)


def _start(run: _Run, level: int, previous: Tensor | None) -> Tensor:
    """Return the previous level's result, the checkpoint, the caller's image or noise, in the networks' colours."""
    shape, task = run.shapes[level], run.task
    if previous is not None:
        return resized(previous.view(*run.shapes[level - 1], 3), shape).view(-1, 3)
    if exact := _exact(run, level):
        return exact["z"].to(task.photo.device, torch.float64)
    given = task.checkpoint.lab if task.checkpoint else task.start
    if given is not None:
        return run.frame.seen(resized(given.to(task.photo), shape).reshape(-1, 3).double() / 100)
    noise = torch.randn(shape[0] * shape[1], 3, generator=run.generator, dtype=torch.float64).to(task.photo)
    flat = task.paintings[0].reshape(-1, 3).double() / 100
    return run.frame.seen(flat.mean(0) + noise * flat.std(0))


def _exact(run: _Run, level: int) -> dict[str, Tensor] | None:
    """Return the L-BFGS state of the checkpoint, if it belongs to this level."""
    point = run.task.checkpoint
    return point.exact if point is not None and point.level == level else None


def _minimise(run: _Run, level: int, objective: Objective, start: Tensor) -> Minimum:
    """Run L-BFGS at one level and call the callback."""
    done = run.task.checkpoint.iteration if run.task.checkpoint and level == run.task.checkpoint.level else 0
    total = iterations_at(run.options, level)
    last_call = time.perf_counter()
    memory = _history(start.to(_dtype(run, run.shapes[level])))
    assert isinstance(objective, WeightedSum)
    factors = torch.tensor(list(objective.factors.values()), dtype=torch.float64)
    if exact := _exact(run, level):
        memory.load(exact)

    def call_back(iteration: int, loss: float, z: Tensor) -> bool | None:
        nonlocal last_call
        now = time.perf_counter()
        if run.callback is None or (now - last_call < CALL_SECONDS and iteration < total - done):
            return None
        last_call = now
        image = _lab(run, level, z)
        point = partial(Checkpoint, level, done + iteration, image)
        return run.callback(
            Progress(
                done_before(run.options, run.shapes[-1], level, done + iteration), step="optimise", seconds=now - run.began,
                level=level, levels=len(run.shapes), iteration=done + iteration, iterations=total, loss=loss, image=image,
                snapshot=lambda: point({"z": z.clone().cpu(), "factors": factors} | memory.state()),
            )
        )  # fmt: skip

    # A trial step of the line search may overflow; its loss is then infinite and the step is shortened.
    with run.phase("optimise"), reusing(), np.errstate(over="ignore", invalid="ignore"):
        return lbfgs(
            objective, start, iterations=max(0, total - done), history=memory, first=_FIRST_STEP, callback=call_back
        )


def _history(like: Tensor) -> History:
    """Return the history of L-BFGS, stored on the GPU if possible."""
    if select.chosen("gram", like.device).name == "cuda":
        from glocal.optim.cuda_history import DeviceHistory

        return DeviceHistory(like, HISTORY)
    return History(like, HISTORY)
