"""The operations of window graphs, in a form that `torch.compile` and `torch.export` can record.

    window_neighbors(Tensor features, int k, int radius, int exclude) -> Tensor
        features (b, h, w, f) float32 -> the neighbours (b h w, k) int32, which have no gradient; `exclude` is -1 for None

What is computed from these neighbours is plain torch in recorded code (`reference_ranked`), which is differentiable and
which a compiler can fuse. Otherwise the backend's own kernels run.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.kernels import known, ops, reference_ranked, select, transforms

ops.library.define("window_neighbors(Tensor features, int k, int radius, int exclude) -> Tensor")
_search = torch.ops.glocal.window_neighbors.default


def window_neighbors(features: Tensor, k: int, radius: int, exclude: int) -> Tensor:
    """Find the k most similar vectors inside a window: `reference_search.window_neighbors`."""
    run = _search if torch.compiler.is_compiling() else _find
    found: Tensor = run(features, k, radius, exclude)
    return found


def similarities(x: Tensor, neighbors: Tensor) -> Tensor:
    """Compute `reference_ranked.similarities`."""
    if torch.compiler.is_compiling():
        return reference_ranked.similarities(x, neighbors)
    return _run("similarities", x, neighbors)


def ranked_conv(x: Tensor, neighbors: Tensor, weights: Tensor, filters: Tensor) -> Tensor:
    """Compute `reference_ranked.ranked_conv`."""
    if torch.compiler.is_compiling():
        return reference_ranked.ranked_conv(x, neighbors, weights, filters)
    return _run("ranked_conv", x, neighbors, weights, filters)


def _run(name: str, x: Tensor, neighbors: Tensor, *rest: Tensor) -> Tensor:
    if len(neighbors) != len(x):
        message = (
            f"{name}: the signal (shape {tuple(x.shape)}) must have one row for each of the n={len(neighbors)} vertices. "
            "Use the graph that was built for it."
        )
        raise ArgumentError(message)
    known.check_range(neighbors, len(x))
    kernel = select.pick(name, x.device)
    found: Tensor = known.reading(neighbors, len(x), kernel, x, neighbors, *rest)
    return found


def _find(features: Tensor, k: int, radius: int, exclude: int) -> Tensor:
    found: Tensor = select.pick("window_neighbors", features.device)(features, k, radius, exclude)
    return found


def _fake(features: Tensor, k: int, radius: int, exclude: int) -> Tensor:
    b, h, w, _ = features.shape
    return features.new_empty((b * h * w, k), dtype=torch.int32)


ops.library.impl("window_neighbors", _find, "CompositeExplicitAutograd")
torch.library.register_fake("glocal::window_neighbors", _fake, lib=ops.library)
torch.library.register_vmap(
    "glocal::window_neighbors", lambda info, dims, *args: transforms.each(_search, info, dims, args), lib=ops.library
)
