"""The method `patches`: the photo, painted with pieces of the painting itself. There is no network in it.

From coarse to fine, every place of the picture takes the piece of the painting that fits best: to the picture so far and
to a target, which is the photo in the painting's colours. The pieces are found by graphs between two pictures
(`patch_graph` with `source`). Overlapping pieces are averaged, and the places are matched again. The matches, not the
pixels, go on to the next level, so the strokes of the painting stay sharp. At the end `finished` gives back the contrast
that averages lose.

A piece `s` costs `|s - picture|^2 + t |s - target|^2`, which is `(1 + t) |s - w|^2` plus a constant, for the mixture
`w = (picture + t target) / (1 + t)`. So one exact search for `w` suffices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glocal.apps.style import pieces
from glocal.apps.style.edges import edge_share
from glocal.apps.style.estimate import SEARCHED, piece_rounds
from glocal.apps.style.finish import finished
from glocal.apps.style.levels import level_shapes, resized
from glocal.apps.style.options import StyleOptions
from glocal.apps.style.palette import repainted
from glocal.apps.style.pieces import FORBIDDEN, Source
from glocal.apps.style.solve import Solution, Task, painting_shape
from glocal.errors import ArgumentError
from glocal.kernels.cpu.threads import undisturbed
from glocal.progress import Progress

_REACH = 8  # fine levels search this many pixels around the match that they are given
# The weight of the target compared with the picture so far at structure 1, in flat areas and at edges.
_FLAT, _EDGE = 0.3, 2.4
_STEEP = 4.0  # times the mean strength of edges: from here on a pixel counts fully as an edge
_HOLD = 3.5  # weight of the target in the picture at edges at structure 1
_POWER = 1.2  # the power of `structure` at which equal steps change the picture about equally
_COHERENCE, _SWEEPS = 5.0, 4
_BUSY, _PRICE = 1.5, 0.3  # a piece may be used so many times as often as the mean at no price; the price of more


@dataclass(frozen=True, eq=False)
class _Level:
    """What the rounds of one level and one size of patch need."""

    source: Source
    shape: tuple[int, int]
    stride: int
    target: Tensor
    edges: Tensor  # (h, w, 1), from 0 to 1
    region: Tensor  # (n,), of each place
    price: Tensor  # (regions, h, w), without the price for frequent use


@dataclass(eq=False)
class _Run:
    """The state of a run: the matches and their level, the picture, and what is reported about it."""

    task: Task
    options: StyleOptions
    callback: Callable[[Progress], bool | None] | None
    total: float
    level: int = 0
    levels: int = 1
    rounds: int = 0  # at this level
    done: float = 0.0
    stopped: bool = False
    losses: list[list[float]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def end_round(self, picture: Tensor, loss: float, work: float) -> bool:
        """Note the end of a round, call the callback, and return whether to stop."""
        self.done += work
        self.losses[-1].append(loss)
        if self.callback is not None:
            now = Progress(
                self.done / self.total, step="paint", seconds=time.perf_counter() - self.began, level=self.level,
                levels=self.levels, iteration=len(self.losses[-1]), iterations=self.rounds, loss=loss,
                image=picture,
            )  # fmt: skip
            self.stopped = bool(self.callback(now))
        return self.stopped


def paint(task: Task, options: StyleOptions, callback: Callable[[Progress], bool | None] | None = None) -> Solution:
    """Paint the photo with pieces of the paintings, at the photo's own size.

    `callback` gets a `Progress` with the current picture in Lab after each round. If it returns True, the run stops.
    Cost: for n pixels O(n k p) with patches of p numbers and k candidates, and exact searches at up to 256 pixels.

    Raises
    ------
    ArgumentError
        If the task has a start or a checkpoint.
    """
    for name, given in (("init", task.start), ("checkpoint", task.checkpoint)):
        if given is not None:
            message = f"stylize: `{name}` must be left out with the preset patches, which starts from matches. Use another preset."
            raise ArgumentError(message)
    h, w = task.photo.shape[0], task.photo.shape[1]
    shapes = level_shapes((h, w), options.coarsest)
    plan = [piece_rounds(shape, level) for level, shape in enumerate(shapes)]
    work = [[rounds * shape[0] * shape[1] for _, rounds in one] for one, shape in zip(plan, shapes, strict=True)]
    run = _Run(task, options, callback, float(sum(map(sum, work))), levels=len(shapes))
    generator = torch.Generator().manual_seed(options.seed)
    picture, before, match = task.photo, None, None
    paintings: list[Tensor] = []
    with undisturbed():
        for run.level, (shape, sizes) in enumerate(zip(shapes, plan, strict=True)):
            run.losses.append([])
            run.rounds = sum(rounds for _, rounds in sizes)
            paintings = [resized(p, painting_shape(p, shape, options.style_scale)) for p in task.paintings]
            photo = resized(task.photo, shape)
            target = repainted(photo, paintings, task.weights, generator)
            for patch, rounds in sizes:
                level = _set_up(run, shape, photo, paintings, target, patch)
                if before is None or match is None:
                    picture = target
                else:
                    match = pieces.handed_down(
                        match, (before.source, before.shape, before.stride), (level.source, shape, level.stride)
                    )
                    picture = pieces.votes(match, None, level.source, shape, level.stride)
                match, picture = _rounds(run, level, match, picture, rounds)
                before = level
                if run.stopped:
                    break
            if run.stopped:
                break
        picture = finished(picture, paintings, task.weights, task.shares, generator)
    seconds = {"paint": time.perf_counter() - run.began}
    return Solution(resized(picture, (h, w)), tuple(map(tuple, run.losses)), seconds, run.stopped)


def _set_up(
    run: _Run, shape: tuple[int, int], photo: Tensor, paintings: list[Tensor], target: Tensor, patch: int
) -> _Level:
    """Cut the paintings into pieces, and find edges and regions of the photo."""
    task = run.task
    source = Source.cut(paintings, task.weights, patch, chroma=1 / (1 + 0.5 * run.level))
    stride = max(1, round(patch / 3))
    edges = (edge_share(photo) / _STEEP).clamp(0, 1).view(*shape, 1)
    price = source.price.unsqueeze(0)
    region = torch.zeros(pieces.lattice(shape, stride), dtype=torch.long, device=photo.device).view(-1)
    if len(task.shares) > 1:
        mine = torch.stack([resized(share.unsqueeze(-1), shape)[::stride, ::stride, 0] for share, _ in task.shares])
        region = mine.argmax(0).reshape(-1)
        prices = []
        for _, others in task.shares:
            shares = [
                resized(s.unsqueeze(-1), (p.shape[0], p.shape[1])) for s, p in zip(others, paintings, strict=True)
            ]
            inside = pieces.beside(shares, source.shape[0])[..., 0] > 0.5
            prices.append(torch.where(inside, source.price, FORBIDDEN))
        price = torch.stack(prices)
    return _Level(source, shape, stride, target, edges, region, price)


def _rounds(run: _Run, level: _Level, match: Tensor | None, picture: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Match and average in turns. Return the matches and the picture."""
    source, shape, stride = level.source, level.shape, level.stride
    structure = run.options.structure**_POWER
    weight = structure * (_FLAT + (_EDGE - _FLAT) * level.edges)
    hold = _HOLD * structure * level.edges
    places = pieces.lattice(shape, stride)
    used = torch.zeros(source.shape).to(picture)
    for number in range(rounds):
        wanted = (picture + weight * level.target) / (1 + weight)
        rows = pieces.patches(wanted * source.channels, source.patch, stride)
        price = level.price + used
        candidates = _candidates(level, rows, wanted, match, used)
        match, found = pieces.choose(
            rows, source, candidates, places, stride, price, level.region, coherence=_COHERENCE, sweeps=_SWEEPS
        )
        if number + 1 < rounds:
            used = used + _PRICE * found.median() * (pieces.overuse(match, source) - _BUSY).clamp(0, 8)
        picture = pieces.votes(match, found, source, shape, stride)
        picture = (picture + hold * level.target) / (1 + hold)
        if run.end_round(picture, float(found.mean()), shape[0] * shape[1]):
            break
    assert match is not None
    return match, picture


def _candidates(level: _Level, rows: Tensor, wanted: Tensor, match: Tensor | None, used: Tensor) -> Tensor:
    """Return the pieces that each place may take: the best of the whole painting, or of the surroundings of its match."""
    source, stride = level.source, level.stride
    if match is not None and max(level.shape) > SEARCHED:
        near = pieces.around(match, source, _REACH, _REACH // 2)
        places = pieces.lattice(level.shape, stride)
        found, _ = pieces.choose(rows, source, near, places, stride, level.price + used, level.region)
        return pieces.around(found, source, _REACH // 4 + 1, 1)
    if len(level.price) == 1:
        return pieces.search(wanted, source, stride, used)
    found = torch.stack([pieces.search(wanted, source, stride, used + price) for price in level.price])
    return found[level.region, torch.arange(len(rows), device=rows.device)]
