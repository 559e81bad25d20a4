"""Train `small` with other graphs than its own, from the beginning, with the same data, steps and schedule.

    python benchmarks/train_controls.py photos.npz OUT.json --steps 2000 --seeds 0 1 --score Set12 BSD68

The arms are: `learned` (the network draws its graph), `fixed` (eight vertices around each vertex, two steps away), `random` (drawn from
the window in every step, and again for each test picture) and `clean` (the graph that the network would draw in the clean
picture: a bound, because nobody has that picture). In all arms the neighbours are ordered by the similarity of the noisy features.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deep_scores import gray_pictures
from graph_controls import RING
from torch import Tensor

from glocal.apps.denoise import deep
from glocal.apps.denoise.crops import PackedPhotos
from glocal.apps.denoise.deep import SHAPES
from glocal.apps.denoise.deep_recipe import material
from glocal.apps.denoise.deep_training import Plan, Training
from glocal.graph import Graph
from glocal.graphs.window import window_graph
from glocal.kernels import known, select

ARMS = ("learned", "fixed", "random", "clean")
_CLEAN = 1 / 255  # the noise that the clean picture is said to have


class Control(Training):
    """A training whose graph is drawn as `arm` says."""

    arm = "learned"

    def _update(self) -> None:
        kept: list[Tensor] = []
        if self.arm == "clean":
            crop = self.crops.example(self.draws, self.noise, self.plan.sigma)
            with torch.no_grad():
                denoised(self.net, crop.clean, _CLEAN, lambda unit, **window: _seen(unit, kept, window))
        deep.window_graph = lambda unit, **window: _drawn(self.arm, unit, kept, window)  # type: ignore[assignment]
        try:
            super()._update()
        finally:
            deep.window_graph = window_graph


def main() -> None:
    """Train and score every arm, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--level", type=int, default=25)
    parser.add_argument("--score", nargs="+", required=True, help="folders of gray pictures, or packed ones")
    options = parser.parse_args()
    run(options, [PackedPhotos.load(options.photos)])


def run(options: argparse.Namespace, photos: list[PackedPhotos]) -> None:
    """Train and score every arm."""
    cuda = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    plan = Plan(options.steps, max(1, options.steps // 2), batch=options.batch, warm=min(500, options.steps // 4))
    stuff = material(photos, model="small", channels=1, side=plan.side, pairs=0, seed=0, device=device)
    sets = {Path(place).stem: gray_pictures(Path(place)) for place in options.score}
    rows = []
    for seed in options.seeds:
        for arm in options.arms:
            training = Control(SHAPES["small"], stuff.examples, plan, seed=seed, dtype=dtype)
            training.arm = arm
            if cuda:
                training.record()
            started = time.perf_counter()
            training.run(plan.steps)
            seconds = time.perf_counter() - started
            scores = {name: _scores(training, arm, pictures, options.level) for name, pictures in sets.items()}
            rows.append({"arm": arm, "seed": seed, "seconds": round(seconds, 1), "psnr": scores})
            print(
                arm,
                seed,
                f"{seconds:.1f} s",
                {name: round(float(np.mean(s)), 3) for name, s in scores.items()},
                flush=True,
            )
    found = {"benchmark": "train_controls", "steps": options.steps, "level": options.level, "rows": rows}
    options.out.write_text(json.dumps(found) + "\n", encoding="utf-8")


def denoised(net: Any, noisy: Tensor, sigma: float, draw: Any) -> Tensor:
    """Denoise pictures (b, 1, h, w) with the graph that `draw` returns."""
    deep.window_graph = draw
    try:
        found: Tensor = net(noisy, torch.full((len(noisy),), sigma, device=noisy.device))
    finally:
        deep.window_graph = window_graph
    return found


@torch.no_grad()
def _scores(training: Training, arm: str, pictures: list[np.ndarray], level: int) -> list[float]:
    """Return the PSNR of each picture at a noise level, with the averaged parameters."""
    training.optimizer.use(training.optimizer.mean)
    device, scores = training.draws.device, []
    for number, picture in enumerate(pictures):
        noisy = picture + np.random.default_rng((number, level)).normal(0, level / 255, picture.shape)
        rows, columns = (min(side // 4 * 4, side) for side in picture.shape)
        clean, x = (
            torch.from_numpy(p[:rows, :columns].astype(np.float32))[None, None].to(device) for p in (picture, noisy)
        )
        kept: list[Tensor] = []
        if arm == "clean":
            denoised(training.net, clean, _CLEAN, lambda unit, kept=kept, **window: _seen(unit, kept, window))
        found = denoised(
            training.net, x, level / 255, lambda unit, kept=kept, **window: _drawn(arm, unit, kept, window)
        )
        scores.append(round(float(-10 * (found.clamp(0, 1) - clean).square().mean().log10()), 4))
    training.optimizer.use(training.optimizer.values)
    return scores


def _seen(unit: Tensor, kept: list[Tensor], window: dict[str, Any]) -> tuple[Graph, Tensor]:
    """Draw the network's own graph and remember it."""
    found = window_graph(unit, **window)
    kept.append(found.graph.neighbors)
    return found


def _drawn(arm: str, unit: Tensor, kept: list[Tensor], window: dict[str, Any]) -> tuple[Graph, Tensor]:
    if arm == "learned":
        return window_graph(unit, **window)
    if arm == "clean":
        return _ordered(unit, kept[0])
    if arm == "fixed":
        return _ordered(unit, _at(unit, _steps(0, 0, unit.device)))
    steps = _steps(window["radius"], window["exclude"], unit.device)
    count = unit.shape[0] * unit.shape[1] * unit.shape[2]
    drawn = (torch.rand(count, window["k"], device=unit.device) * len(steps)).long()
    return _ordered(unit, _at(unit, steps[drawn]))


@functools.cache  # a recorded CUDA graph may not copy from the host
def _steps(radius: int, exclude: int, device: torch.device) -> Tensor:
    """Return the steps (n, 2) to all vertices of a window, or for radius 0 those of the fixed neighbours."""
    line = range(-radius, radius + 1)
    window = [(y, x) for y in line for x in line if max(abs(y), abs(x)) > exclude]
    return torch.tensor(window if radius else RING, device=device)


def _at(unit: Tensor, steps: Tensor) -> Tensor:
    """Return the vertices (n, k) at these steps (k, 2) or (n, k, 2) from each vertex, reflected at the border."""
    b, h, w, _ = unit.shape
    places = torch.arange(b * h * w, device=unit.device).view(-1, 1)
    first, y, x = places // (h * w) * (h * w), places // w % h, places % w
    rows, columns = y + steps[..., 0], x + steps[..., 1]
    rows, columns = ((n - 1 - (n - 1 - v.abs()).abs()).clamp(0, n - 1) for v, n in ((rows, h), (columns, w)))
    return first + rows * w + columns


def _ordered(unit: Tensor, neighbors: Tensor) -> tuple[Graph, Tensor]:
    """Return the graph of these neighbours, ordered by the similarity of the vectors."""
    flat = unit.reshape(-1, unit.shape[-1])
    with torch.no_grad():
        order = torch.einsum("nd,nkd->nk", flat, flat[neighbors]).argsort(1, descending=True)
        ordered = neighbors.gather(1, order).contiguous()
    known.trust_range(ordered, len(flat))
    return Graph(ordered), select.pick("similarities", unit.device)(flat, ordered)


if __name__ == "__main__":
    main()
