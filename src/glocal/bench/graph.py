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
from glocal.kernels import portable, portable_window, select
from glocal.kernels.matching import Matching

TREE, FLAT, SHIFTS, TILES = "scipy cKDTree", "FAISS IndexFlatL2", "torch, shift by shift", "torch, tile by tile"
MISSING = {TREE: "not installed: pip install scipy", FLAT: "not installed: pip install faiss-cpu"}
Search = Callable[[], tuple[Any, Any]]


def run(lab: Tensor, gray: Tensor, speech: Tensor, other: Tensor, options: BenchOptions) -> list[Row]:
    """Measure all rows: `lab` and `other` (h, w, 3), `gray` (h, w, 1) and `speech` (n,)."""
    repeats = 3 if options.quick else max(3, options.repeats // 3)  # the peers take seconds
    lines = _rows("style graph", lab, repeats, k=25, patch=3, coords=1.0, peer=TREE, target=18)
    lines += _rows("denoising graph", gray, repeats, k=9, patch=7, coords=0.0, peer=FLAT, target=15)
    lines += _rows("speech graph", speech, repeats, k=5, patch=25, coords=0.0, peer=FLAT, target=14)
    for k in (1, 8):
        lines += _rows("another picture", lab, 3, source=other, k=k, patch=7, coords=0.0, peer=FLAT, target=15)
    lines += _video_rows((16, 24) if options.quick else (90, 160), repeats)
    lines += _window_rows(16 if options.quick else 128, repeats)
    if options.large:
        lines.append(_memory_row())
        lines += _large_video_rows()
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


def _tree(matrix: np.ndarray[Any, Any], source: np.ndarray[Any, Any], k: int) -> Search:
    from scipy.spatial import cKDTree

    return lambda: cKDTree(source).query(matrix, k, workers=torch.get_num_threads())


def _flat(matrix: np.ndarray[Any, Any], source: np.ndarray[Any, Any], k: int) -> Search:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())

    def search() -> tuple[Any, Any]:
        index = faiss.IndexFlatL2(matrix.shape[1])
        index.add(source)
        squared, found = index.search(matrix, k)
        return np.sqrt(np.maximum(squared, 0)), found

    return search


PEERS: dict[str, tuple[str, Callable[[Any, Any, int], Search]]] = {TREE: ("scipy", _tree), FLAT: ("faiss", _flat)}


def _rows(
    name: str,
    signal: Tensor,
    repeats: int,
    *,
    source: Tensor | None = None,
    k: int,
    patch: int,
    coords: float,
    peer: str,
    target: float,
) -> list[Row]:
    size = "x".join(str(side) for side in signal.shape[: max(1, signal.ndim - 1)])
    works: dict[str, Callable[[], Any]] = {
        "ours": lambda: patch_graph(signal, source=source, k=k, patch=patch, coords=coords)
    }
    module, make = PEERS[peer]
    note = ""
    if importlib.util.find_spec(module) is not None:
        matrix = features(signal, patch, coords)
        works[peer] = make(matrix, matrix if source is None else features(source, patch, coords), k)
        note = _difference(works["ours"](), works[peer]()[0])
    times = interleave(works, repeats=repeats, warmup=1)
    return rows(f"{name}, {size}, patch {patch}, k={k}", times, {peer: target}, MISSING, note)


VIDEO: dict[str, Any] = {"k": 9, "patch": (1, 7, 7), "search_radius": (2, 10, 10)}


def _video(h: int, w: int) -> Tensor:
    return torch.rand(5, h, w, 3, generator=torch.Generator().manual_seed(0))


def _video_rows(size: tuple[int, int], repeats: int) -> list[Row]:
    """Compare with plain torch, which computes one shift of the whole video at a time."""
    video = _video(*size)
    frames = pad_frames(video, VIDEO["patch"])
    matching = Matching(VIDEO["patch"], radius=VIDEO["search_radius"], own=True)
    works: dict[str, Callable[[], Any]] = {
        "ours": lambda: patch_graph(video, **VIDEO),
        SHIFTS: lambda: portable.match_patches(frames, frames, VIDEO["k"], matching),
    }
    note = _difference(works["ours"](), works[SHIFTS]()[1].sqrt().numpy())
    times = interleave(works, repeats=min(repeats, 3), warmup=0)
    return rows(f"video graph, 5 frames of {size[1]}x{size[0]}, radius (2, 10, 10)", times, {SHIFTS: 10}, {}, note)


def _window_rows(side: int, repeats: int) -> list[Row]:
    """Compare with plain torch, which makes a matrix product for each tile of the lattice."""
    found = torch.randn(1, side, side, 32, generator=torch.Generator().manual_seed(0))
    search = select.pick("window_neighbors", "cpu")
    works: dict[str, Callable[[], Any]] = {
        "ours": lambda: search(found, 8, 10, 1),
        TILES: lambda: portable_window.window_neighbors(found, 8, 10, 1),
    }
    times = interleave(works, repeats=repeats, warmup=1)
    return rows(f"window graph, {side}x{side}, 32 features, radius 10, k=8", times, {TILES: 2}, {})


def _difference(graph: Graph, theirs: np.ndarray[Any, Any]) -> str:
    assert graph.distances is not None
    ours = graph.distances.numpy()
    return f"distances differ by {np.abs(ours - theirs).max() / theirs.max():.0e}"


def _memory_row() -> Row:
    limit = 4096.0
    peak = peak_mib("graph:memory_case")
    work = "denoising graph, 24 megapixels, patch 7, k=9, search_radius=10: peak memory"
    return Row(work, "limit", "MiB", peak, limit, limit / peak, 1, note="above the image, fresh process")


def _large_video_rows() -> list[Row]:
    work = "video graph, 5 frames of 640x360, patch (1, 7, 7), k=9, radius (2, 10, 10)"
    seconds, peak = interleave({"ours": large_video_case(small=False)}, repeats=1, warmup=1)["ours"].seconds, 512.0
    used = peak_mib("graph:large_video_case")
    return [
        Row(work, "limit", "s", seconds, 10.0, 10.0 / seconds, 1),
        Row(f"{work}: peak memory", "limit", "MiB", used, peak, peak / used, 1, note="above the video, fresh process"),
    ]


def large_video_case(*, small: bool) -> Callable[[], object]:
    """Prepare a video graph for the measurement of time and memory."""
    video = _video(*((16, 40) if small else (360, 640)))
    return lambda: patch_graph(video, **VIDEO)


def memory_case(*, small: bool, height: int = 4000, width: int = 6000) -> Callable[[], object]:
    """Prepare a denoising graph for the measurement of memory."""
    shape = (64, 64, 1) if small else (height, width, 1)
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    return lambda: patch_graph(image, k=9, patch=7, search_radius=10)
