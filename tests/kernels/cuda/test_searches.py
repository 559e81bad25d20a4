"""The searches of the GPU that rank products of features equal the reference."""

from __future__ import annotations

import pytest
import torch

from glocal.kernels import reference_search
from glocal.kernels.matching import Matching

pytest.importorskip("triton", reason="the GPU's kernels are written in Triton")
from glocal.kernels.cuda import neighbors as cuda

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(shape, values, seed=0):
    """Few different values give ties; otherwise there are none."""
    make = torch.Generator().manual_seed(seed)
    return (
        torch.randint(-1, 2, shape, generator=make).float() if values == "ties" else torch.randn(shape, generator=make)
    )


# pictures, height, width, features, k, radius, exclude
WINDOWS = [
    (1, 5, 6, 3, 4, 1, -1),
    (2, 7, 5, 20, 5, 2, 0),
    (1, 1, 20, 4, 3, 4, 0),
    (1, 6, 6, 70, 8, 2, 1),  # more features than a tile has
    (1, 3, 3, 2, 1, 0, -1),
    (1, 11, 13, 2, 6, 9, -1),  # more candidates than a tile has
]


@pytest.mark.parametrize("values", ["ties", "none"])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows(case, values):
    b, h, w, f, k, radius, exclude = case
    x = draw((b, h, w, f), values)
    found = cuda.window_neighbors(x.to(DEVICE), k, radius, exclude)
    assert torch.equal(found.cpu(), reference_search.window_neighbors(x, k, radius, exclude))


# rows, features, k, dtype
ROWS = [
    (60, 5, 4, torch.float32),
    (40, 17, 16, torch.float64),
    (6, 3, 6, torch.float32),
    (1, 2, 1, torch.float32),
]


@pytest.mark.parametrize("values", ["ties", "none", "far"])
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_nearest_rows_to_the_bit(case, values):
    """Far from 0 the products of rounded rows say little, and with ties they leave rows open."""
    n, f, k, dtype = case
    x = draw((n, f), values).to(dtype) + (1e4 if values == "far" else 0)
    found, squared = cuda.knn(x.to(DEVICE), k)
    neighbors, expected = reference_search.knn(x, k)
    assert torch.equal(found.cpu(), neighbors)
    assert torch.equal(squared.cpu(), expected)


def test_distances_that_float32_cannot_hold():
    x = torch.tensor([[0.0], [1e30], [3e30], [7e30]], dtype=torch.float64).repeat(6, 1)
    found, squared = cuda.knn(x.to(DEVICE), 9)
    neighbors, expected = reference_search.knn(x, 9)
    assert torch.equal(found.cpu(), neighbors)
    assert torch.equal(squared.cpu(), expected)


@pytest.mark.parametrize("values", ["ties", "none"])
def test_nearest_rows_of_another_matrix(values):
    query, source = draw((20, 5), values), draw((50, 5), values, seed=1) + 0.5
    found, squared = cuda.match_rows(query.to(DEVICE), source.to(DEVICE), 7, False)
    neighbors, expected = reference_search.match_rows(query, source, 7, False)
    assert torch.equal(found.cpu(), neighbors)
    assert torch.equal(squared.cpu(), expected)


# query and source (t, c, h, w) with their halos, k, how they are compared
PATCHES = [
    ((1, 2, 7, 8), (1, 2, 9, 6), 5, Matching((1, 3, 3))),
    ((1, 1, 1, 30), (1, 1, 1, 40), 3, Matching((1, 1, 7))),
    ((1, 3, 9, 9), (1, 3, 9, 9), 1, Matching((1, 5, 3), coords=0.3)),
    ((3, 1, 6, 7), None, 4, Matching((3, 3, 1), stride=(1, 2, 1), source_stride=(1, 2, 1), own=True)),
    ((3, 2, 6, 7), (3, 2, 6, 7), 4, Matching((1, 3, 3), 0.5, (1, 2, 1))),
    ((4, 1, 5, 6), None, 5, Matching((2, 1, 3), 0.0, (1, 3, 2), own=True)),
    ((1, 1, 12, 11), (1, 1, 12, 11), 2, Matching((1, 7, 7), 0.1, (0, 4, 3), (1, 2, 3), (1, 1, 2))),
]


RUNS = [(case, "ties") for case in PATCHES] + [(case, "none") for case in PATCHES[:4]]  # windows are slow to interpret


@pytest.mark.parametrize(("case", "values"), RUNS, ids=str)
def test_patches_of_another_signal_to_the_bit(case, values):
    shape, other, k, matching = case
    query = draw(shape, values)
    source = query if other is None else draw(other, values, seed=1)
    here = query.to(DEVICE)
    found, squared = cuda.match_patches(here, here if other is None else source.to(DEVICE), k, matching)
    neighbors, expected = reference_search.match_patches(query, source, k, matching)
    assert torch.equal(found.cpu(), neighbors)
    assert torch.equal(squared.cpu(), expected)
