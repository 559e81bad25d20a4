"""The whole style transfer of the paper beside its plain-PyTorch version, with the seconds of each phase."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from glocal.apps.bench.options import BenchOptions
from glocal.apps.bench.style_reference import plain_style_transfer
from glocal.apps.bench.timing import Row
from glocal.apps.style.levels import resized
from glocal.apps.style.networks import photo_graph
from glocal.apps.style.options import style_options
from glocal.apps.style.solve import Solution, Task, solve

Graphs = dict[tuple[str, int], tuple[Tensor, Tensor]]

PLAIN = "plain PyTorch"
_COMPARED = 20  # iterations over which the losses of both are compared


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
    gaps = {name: ", ".join(f"{gap:.0e}" for gap in found) for name, found in agreement(photo, painting, sides).items()}
    note = f"losses over {_COMPARED} iterations from one start, at levels {', '.join(map(str, sides))}: " + "; ".join(
        f"{name} {found}" for name, found in gaps.items()
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


def agreement(photo: Tensor, painting: Tensor, sides: list[int]) -> dict[str, list[float]]:
    """The largest relative difference of the losses over 20 iterations, for each level from the same noise and graphs.

    Three runs are compared: ours, and the plain version in float32 and in float64. In float32 rounding errors double with
    nearly every step of L-BFGS, in both.
    """
    gaps: dict[str, list[float]] = {"plain float32": [], "plain float64": [], "these two": []}
    for side in sides:
        small = [resized(image, (side, side)) for image in (photo, painting)]
        chosen = style_options("paper", {"iterations": _COMPARED, "size": side, "coarsest": side})
        ours = solve(Task(small[0], (small[1],)), chosen).losses[0]
        plain = []
        for kind in (torch.float32, torch.float64):
            graphs: Graphs = {}
            for name, image in zip(("photo", "painting"), small, strict=True):
                graph = photo_graph(image, chosen)
                assert graph.weights is not None
                graphs[name, side] = graph.neighbors.long(), graph.weights.to(kind)
            images = [image.to(kind) for image in small]
            _, losses, _ = plain_style_transfer(
                *images, sides=[side], iterations=_COMPARED, graphs=graphs, drawn=torch.float32
            )
            plain.append(losses[0])
        for name, one, other in zip(gaps, (ours, ours, plain[0]), (*plain, plain[1]), strict=True):
            gaps[name].append(max(abs(a - b) / abs(b) for a, b in zip(one, other, strict=True)))
    return gaps
