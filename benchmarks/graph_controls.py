"""Ask what the graph of a deep denoiser is worth: replace it by others at test time, without a new training.

    python benchmarks/graph_controls.py FOLDER... [--model small] [--level 25] [--crop 192] [--first 5] [-o OUT.json]

The arms are: `learned` (the network's own graph), `clean` (the neighbours that the network finds in the clean picture), `fixed` (eight
vertices around each vertex, two steps away), `random` (drawn from the window, two seeds), and `none` (all weights of the graph part
are 0). Similarities are always those of the noisy picture, and the neighbours are ordered by them, as in training. The network was
trained with its own graph, so this measures what the trained network needs, not what a network trained with other neighbours could reach.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deep_scores import _files as files
from PIL import Image
from torch import Tensor

from glocal.apps.denoise import deep
from glocal.apps.denoise.models import load_deep
from glocal.graph import Graph
from glocal.graphs.window import window_graph

RING = ((-2, 0), (2, 0), (0, -2), (0, 2), (-2, -2), (-2, 2), (2, -2), (2, 2))
Draw = Callable[..., tuple[Graph, Tensor]]


def main() -> None:
    """Print one row for each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--model", default="small")
    parser.add_argument("--level", type=int, default=25)
    parser.add_argument("--crop", type=int, default=192)
    parser.add_argument("--first", type=int)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    net = load_deep(options.model, 1)
    rows = []
    for folder in options.folders:
        scores: dict[str, list[float]] = {}
        for number, path in enumerate(files(folder)[: options.first]):
            clean = _centre(np.asarray(Image.open(path).convert("L")) / 255.0, options.crop)
            for name, value in _arms(net, clean, options.level, number).items():
                scores.setdefault(name, []).append(value)
        row = {"set": folder.name, "level": options.level, "pictures": len(scores["learned"]), "crop": options.crop}
        rows.append(row | {name: round(float(np.mean(values)), 3) for name, values in scores.items()})
        print(rows[-1], flush=True)
    if options.output is not None:
        kept = {"benchmark": "graph_controls", "model": options.model, "rows": rows}
        options.output.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _arms(net: Any, clean: np.ndarray, level: int, number: int) -> dict[str, float]:
    """Return the PSNR of one picture with each graph."""
    noisy = clean + np.random.default_rng((number, level)).normal(0, level / 255, clean.shape)
    x, truth = (torch.from_numpy(p.astype(np.float32))[None, None] for p in (noisy, clean))
    seen: list[Tensor] = []

    def remember(unit: Tensor, **settings: Any) -> tuple[Graph, Tensor]:
        graph, similarities = window_graph(unit, **settings)
        seen.append(graph.neighbors)
        return graph, similarities

    _run(net, truth, 1 / 255, remember)
    kept = iter(seen)
    draws: dict[str, Draw] = {
        "learned": window_graph,
        "clean": lambda unit, **_: _given(unit, next(kept)),
        "fixed": lambda unit, **_: _given(unit, _ring(unit)),
        "random 0": lambda unit, radius, k, **_: _given(unit, _random(unit, radius, k, 0)),
        "random 1": lambda unit, radius, k, **_: _given(unit, _random(unit, radius, k, 1)),
        "none": _nothing,
    }
    scores = {"noisy": _psnr(x, truth)}
    return scores | {name: _psnr(_run(net, x, level / 255, draw), truth) for name, draw in draws.items()}


@torch.no_grad()
def _run(net: Any, x: Tensor, sigma: float, draw: Draw) -> Tensor:
    deep.window_graph = draw  # type: ignore[assignment]
    try:
        found: Tensor = net(x, torch.tensor([sigma]))
    finally:
        deep.window_graph = window_graph
    return found


def _given(unit: Tensor, neighbors: Tensor) -> tuple[Graph, Tensor]:
    """Return a graph with these neighbours, ordered by the similarity of the vectors."""
    rows = unit.reshape(-1, unit.shape[-1])
    similarities = torch.einsum("nd,nkd->nk", rows, rows[neighbors])
    ordered, order = similarities.sort(1, descending=True)
    return Graph(neighbors.gather(1, order)), ordered


def _nothing(unit: Tensor, **settings: Any) -> tuple[Graph, Tensor]:
    graph, similarities = window_graph(unit, **settings)
    return graph, similarities - 1e4  # the softmax gives all weight to the vertex itself


def _ring(unit: Tensor) -> Tensor:
    return _at(unit, torch.tensor(RING).expand(unit.shape[1] * unit.shape[2], -1, -1))


def _random(unit: Tensor, radius: int, k: int, seed: int) -> Tensor:
    """Draw neighbours from the window, without the 3 x 3 vertices around the vertex."""
    generator = torch.Generator().manual_seed(seed)
    steps = [(y, x) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1) if max(abs(y), abs(x)) > 1]
    count = unit.shape[1] * unit.shape[2]
    chosen = torch.rand(count, len(steps), generator=generator).topk(k, 1).indices
    return _at(unit, torch.tensor(steps)[chosen])


def _at(unit: Tensor, steps: Tensor) -> Tensor:
    """Return the vertices (n, k) at these steps (n, k, 2) from each vertex, reflected at the border."""
    _, h, w, _ = unit.shape
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    rows, columns = y.reshape(-1, 1) + steps[..., 0], x.reshape(-1, 1) + steps[..., 1]
    rows, columns = ((n - 1 - (n - 1 - v.abs()).abs()).clamp(0, n - 1) for v, n in ((rows, h), (columns, w)))
    return rows * w + columns


def _psnr(found: Tensor, truth: Tensor) -> float:
    return float(-10 * (found.clamp(0, 1) - truth).square().mean().log10())


def _centre(picture: np.ndarray, side: int) -> np.ndarray:
    height, width = (min(side, n) // 4 * 4 for n in picture.shape)
    top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width]


if __name__ == "__main__":
    main()
