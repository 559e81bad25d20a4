"""Exact neighbour search compared with SciPy's cKDTree and FAISS's flat index, and the memory of a large graph."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.bench.memory import peak_mib
from glocal.bench.options import BenchOptions
from glocal.bench.timing import Row, interleave, rows
from glocal.graph import Graph
from glocal.graphs.patch import pad_frames, patch_graph

TREE, FLAT = "scipy cKDTree", "FAISS IndexFlatL2"
MISSING = {TREE: "not installed: pip install scipy", FLAT: "not installed: pip install faiss-cpu"}
Search = Callable[[], tuple[Any, Any]]


def run(lab: Tensor, gray: Tensor, speech: Tensor, options: BenchOptions) -> list[Row]:
    """Measure all rows: `lab` (h, w, 3) for style, `gray` (h, w, 1) and `speech` (n,) for denoising."""
    repeats = 3 if options.quick else max(3, options.repeats // 3)  # the peers take seconds
    lines = _rows("style graph", lab, repeats, k=25, patch=3, coords=1.0, peer=TREE, target=18)
    lines += _rows("denoising graph", gray, repeats, k=9, patch=7, coords=0.0, peer=FLAT, target=15)
    lines += _rows("speech graph", speech, repeats, k=5, patch=25, coords=0.0, peer=FLAT, target=14)
    if options.large:
        lines.append(_memory_row())
    return lines


def features(signal: Tensor, patch: int, coords: float) -> np.ndarray[Any, Any]:
    """Make the feature matrix (n, f) that general searches need: every patch, and the places."""
    image = signal.view(1, -1, 1) if signal.ndim == 1 else signal
    height = 1 if signal.ndim == 1 else patch
    planes = pad_frames(image.to(torch.float32).unsqueeze(0), (1, height, patch))[0]
    cells = (
        planes.unfold(1, height, 1)
        .unfold(2, patch, 1)
        .permute(1, 2, 0, 3, 4)
        .reshape(image.shape[0] * image.shape[1], -1)
    )
    if not coords:
        return np.ascontiguousarray(cells.numpy())
    y, x = torch.meshgrid(torch.arange(image.shape[0]), torch.arange(image.shape[1]), indexing="ij")
    return torch.cat([cells, coords * torch.stack([y, x], -1).reshape(-1, 2)], 1).numpy()


def _tree(matrix: np.ndarray[Any, Any], k: int) -> Search:
    from scipy.spatial import cKDTree

    return lambda: cKDTree(matrix).query(matrix, k, workers=torch.get_num_threads())


def _flat(matrix: np.ndarray[Any, Any], k: int) -> Search:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())

    def search() -> tuple[Any, Any]:
        index = faiss.IndexFlatL2(matrix.shape[1])
        index.add(matrix)
        squared, found = index.search(matrix, k)
        return np.sqrt(np.maximum(squared, 0)), found

    return search


PEERS: dict[str, tuple[str, Callable[[Any, int], Search]]] = {TREE: ("scipy", _tree), FLAT: ("faiss", _flat)}


def _rows(
    name: str, signal: Tensor, repeats: int, *, k: int, patch: int, coords: float, peer: str, target: float
) -> list[Row]:
    size = "x".join(str(side) for side in signal.shape[: max(1, signal.ndim - 1)])
    works: dict[str, Callable[[], Any]] = {"ours": lambda: patch_graph(signal, k=k, patch=patch, coords=coords)}
    module, make = PEERS[peer]
    note = ""
    if importlib.util.find_spec(module) is not None:
        works[peer] = make(features(signal, patch, coords), k)
        note = _difference(works["ours"](), works[peer]()[0])
    times = interleave(works, repeats=repeats, warmup=1)
    return rows(f"{name}, {size}, patch {patch}, k={k}", times, {peer: target}, MISSING, note)


def _difference(graph: Graph, theirs: np.ndarray[Any, Any]) -> str:
    assert graph.distances is not None
    ours = graph.distances.numpy()
    return f"distances differ by {np.abs(ours - theirs).max() / theirs.max():.0e}"


def _memory_row() -> Row:
    limit = 4096.0
    peak = peak_mib("graph:memory_case")
    work = "denoising graph, 24 megapixels, patch 7, k=9, search_radius=10: peak memory"
    return Row(work, "limit", "MiB", peak, limit, limit / peak, 1, note="above the image, fresh process")


def memory_case(*, small: bool, height: int = 4000, width: int = 6000) -> Callable[[], object]:
    """Prepare a denoising graph for the measurement of memory."""
    shape = (64, 64, 1) if small else (height, width, 1)
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    return lambda: patch_graph(image, k=9, patch=7, search_radius=10)
