"""The whole style transfer of the paper compared with its plain-PyTorch version, with the seconds of each phase."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from glocal.apps.style.levels import resized
from glocal.apps.style.networks import photo_graph
from glocal.apps.style.options import StyleOptions, style_options
from glocal.apps.style.solve import Solution, Task, solve
from glocal.bench.options import BenchOptions
from glocal.bench.style_reference import plain_style_transfer
from glocal.bench.timing import Row

PLAIN = "plain PyTorch"
_COMPARED, _SEEDS = 20, 5  # iterations over which the losses of both are compared, and runs


def run(photo: Tensor, painting: Tensor, options: BenchOptions) -> list[Row]:
    """Measure photo and painting (side, side, 3) in Lab, `side` 32 times a power of two, with the paper's preset.

    Each side runs once: the plain version takes minutes. A short run before it compiles and warms up.
    """
    side = photo.shape[0]
    iterations = 3 if options.quick else 300
    chosen = style_options("paper", {"iterations": iterations, "size": side})
    task = Task(photo, (painting,))
    sides = [32 * 2**k for k in range((side // 32).bit_length())]
    solve(task, style_options("paper", {"iterations": 1, "size": side}))
    began = time.perf_counter()
    ours = solve(task, chosen)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    _, _, plain = plain_style_transfer(photo, painting, sides=sides, iterations=iterations)
    theirs = time.perf_counter() - began
    work = f"style transfer {side}x{side}, paper, {iterations} iterations a level"
    seeds = 1 if options.quick else _SEEDS
    note = f"largest difference of the losses from those in float64 over {_COMPARED} iterations from one start, "
    note += f"seeds 0 to {seeds - 1}, at levels {', '.join(map(str, sides))}: "
    note += "; ".join(
        f"{name} {', '.join(f'{gap:.0e}' for gap in found)}"
        for name, found in agreement(photo, painting, sides, seeds).items()
    )
    phases = phase_seconds(ours)
    rest = sum(phases.values()) - phases["graph"]
    where = ", ".join(f"{name} {value:.2f} s" for name, value in phases.items() if name != "graph")
    return [
        Row(work, PLAIN, "s", seconds, theirs, theirs / seconds, 8, note=note),
        Row("  graphs", PLAIN, "s", phases["graph"], plain["graph"], plain["graph"] / phases["graph"], None),
        Row("  all but graphs", PLAIN, "s", rest, plain["minimise"], plain["minimise"] / rest, None, note=where),
    ]


def phase_seconds(solution: Solution) -> dict[str, float]:
    """Seconds of each phase, none counted twice: L-BFGS and its line search without the terms that they evaluate."""
    phases = dict(solution.phases)
    terms = [name for name in phases if name not in ("graph", "painting", "balance", "optimise")]
    phases["L-BFGS and line search"] = phases.pop("optimise") - sum(phases[name] for name in terms)
    return phases


def agreement(photo: Tensor, painting: Tensor, sides: list[int], seeds: int) -> dict[str, list[float]]:
    """Return the largest relative difference of the losses over 20 iterations from those of the plain version in float64.

    For each level, from the same noise and on the same graphs, over some seeds: that of ours in float32, and for
    comparison that of the plain version in float32.
    """
    gaps: dict[str, list[float]] = {"ours": [], "plain float32": []}
    for side in sides:
        small = resized(photo, (side, side)), resized(painting, (side, side))
        found = [differences(*small, seed) for seed in range(seeds)]
        for side_name, values in zip(gaps, zip(*found, strict=True), strict=True):
            gaps[side_name].append(max(values))
    return gaps


def differences(photo: Tensor, painting: Tensor, seed: int) -> tuple[float, float]:
    """Return the largest relative difference over 20 iterations from noise at one level: ours, and plain float32."""
    side = photo.shape[0]
    chosen = style_options("paper", {"iterations": _COMPARED, "size": side, "coarsest": side, "seed": seed})
    exact = plain_losses(photo, painting, chosen, torch.float64)
    ours = solve(Task(photo, (painting,)), chosen).losses[0]
    plain = plain_losses(photo, painting, chosen, torch.float32)
    one, other = (max(abs(a - b) / b for a, b in zip(losses, exact, strict=True)) for losses in (ours, plain))
    return one, other


def plain_losses(photo: Tensor, painting: Tensor, options: StyleOptions, dtype: torch.dtype) -> list[float]:
    """Return the losses of one level by the plain version, for images (side, side, 3) in float32.

    It has the graphs and the random numbers of ours, so that nothing differs but what follows from them.
    """
    side, graphs = photo.shape[0], {}
    for name, image in (("photo", photo), ("painting", painting)):
        graph = photo_graph(image, options)
        assert graph.weights is not None
        graphs[name, side] = graph.neighbors.long(), graph.weights.to(dtype)
    _, losses, _ = plain_style_transfer(
        photo.to(dtype), painting.to(dtype), sides=[side], iterations=options.iterations, seed=options.seed,
        graphs=graphs, drawn=torch.float32,
    )  # fmt: skip
    return losses[0]
