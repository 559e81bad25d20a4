import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from skimage import data

import glocal
from glocal.errors import ArgumentError, InputError
from glocal.testing import assert_nearest_first


@pytest.mark.parametrize("backend", ["reference", "portable", ""])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_a_tree(backend, dtype, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    x = torch.randn(300, 7, dtype=dtype, generator=torch.Generator().manual_seed(0))
    g = glocal.knn_graph(x, k=12)
    distances, neighbors = cKDTree(x.double().numpy()).query(x.double().numpy(), 12)
    np.testing.assert_array_equal(g.neighbors.numpy(), neighbors)
    np.testing.assert_allclose(g.distances.numpy(), distances, rtol=1e-6, atol=1e-12)
    assert g.distances.dtype == dtype


@pytest.mark.parametrize("backend", ["reference", "portable"])
def test_duplicates_go_by_index(backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    g = glocal.knn_graph(torch.ones(40, 3) * 1e3, k=5)
    assert g.neighbors[0].tolist() == [0, 1, 2, 3, 4]
    assert g.neighbors[30].tolist() == [30, 0, 1, 2, 3]
    assert_nearest_first(g)


def test_far_from_the_origin_is_still_exact():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(1)) + 3000
    g = glocal.knn_graph(x, k=8)
    _, neighbors = cKDTree(x.double().numpy()).query(x.double().numpy(), 8)
    np.testing.assert_array_equal(g.neighbors.numpy(), neighbors)


def test_approximate_recall_is_what_the_docs_say():
    image = torch.from_numpy(data.astronaut()[:96, :96].copy()).float()
    features = torch.cat([image.roll((y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)], -1).reshape(-1, 27)
    exact = glocal.knn_graph(features, k=10)
    rough = glocal.knn_graph(features, k=10, method="approximate")
    hits = (exact.neighbors.unsqueeze(2) == rough.neighbors.unsqueeze(1)).any(2).float().mean()
    assert float(hits) > 0.99
    assert torch.equal(rough.neighbors, glocal.knn_graph(features, k=10, method="approximate").neighbors)
    assert_nearest_first(rough)


def test_approximate_finds_k_even_in_small_cells():
    g = glocal.knn_graph(torch.randn(50, 2), k=50, method="approximate")
    assert torch.equal(g.neighbors.sort(1).values, torch.arange(50, dtype=torch.int32).expand(50, 50))


def test_refuses():
    with pytest.raises(ArgumentError, match=r"knn_graph: `k` \(=2.0\) must be a whole number"):
        glocal.knn_graph(torch.rand(4, 2), k=2.0)
    with pytest.raises(
        ArgumentError, match=r"knn_graph: `k` \(=5\) must be between 1 and the number of vertices \(=4\)"
    ):
        glocal.knn_graph(torch.rand(4, 2), k=5)
    with pytest.raises(ArgumentError, match=r"`method` \(='tree'\) is unknown. Choose one of exact, approximate"):
        glocal.knn_graph(torch.rand(4, 2), k=2, method="tree")
    with pytest.raises(InputError, match="NaN"):
        glocal.knn_graph(torch.full((4, 2), torch.nan), k=2)


@pytest.mark.parametrize("backend", ["reference", "portable", ""])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("f", [1, 7, 40])
def test_rows_of_another_matrix(backend, dtype, f, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(n, f, dtype=dtype, generator=generator) for n in (150, 210))
    g = glocal.knn_graph(x, source=z, k=9)
    distances, neighbors = cKDTree(z.double().numpy()).query(x.double().numpy(), 9)
    np.testing.assert_array_equal(g.neighbors.numpy(), neighbors)
    np.testing.assert_allclose(g.distances.numpy(), distances, rtol=1e-6, atol=1e-12)
    assert g.num_sources == 210


@pytest.mark.parametrize("backend", ["reference", "portable", ""])
def test_a_source_of_duplicates_goes_by_index(backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    g = glocal.knn_graph(torch.ones(40, 3) * 1e3, source=torch.ones(30, 3) * 1e3, k=5)
    assert torch.equal(g.neighbors, torch.arange(5, dtype=torch.int32).expand(40, 5))


def test_refuses_sources_that_do_not_fit():
    with pytest.raises(
        ArgumentError, match=r"`features` \(n=4, f=2\) and `source` \(m=5, f=3\) must have the same number of columns"
    ):
        glocal.knn_graph(torch.rand(4, 2), source=torch.rand(5, 3), k=1)
    with pytest.raises(ArgumentError, match=r"`k` \(=6\) must be between 1 and the number of vertices \(=5\)"):
        glocal.knn_graph(torch.rand(9, 2), source=torch.rand(5, 2), k=6)
    with pytest.raises(ArgumentError, match=r"works only without `source`"):
        glocal.knn_graph(torch.rand(4, 2), source=torch.rand(5, 2), k=1, method="approximate")


@pytest.mark.parametrize("backend", ["reference", "portable", ""])
@pytest.mark.parametrize(
    "scale", [1e20, 3e37, 1e-22, "one large row"], ids=["large", "near the largest", "small", "one large row"]
)
def test_numbers_whose_squares_float32_cannot_hold(scale, backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    x = torch.rand(200, 4, generator=torch.Generator().manual_seed(0))
    if isinstance(scale, str):
        x[5] = 1e38
    else:
        x = x * scale
    squared = (x.double().unsqueeze(1) - x.double()).square().sum(2).fill_diagonal_(-1)
    g = glocal.knn_graph(x, k=3)
    assert torch.equal(g.neighbors.long(), squared.sort(dim=1, stable=True).indices[:, :3])
    assert g.distances.dtype == torch.float32
    np.testing.assert_allclose(g.distances[:, 1], squared.sort(1).values[:, 1].sqrt(), rtol=1e-6)


def test_integers_that_float32_cannot_hold():
    x = (torch.arange(100).unsqueeze(1) ** 2) + 2**40
    assert glocal.knn_graph(x, k=2).neighbors[1:, 1].tolist() == list(range(99))
    assert glocal.knn_graph(torch.arange(9).unsqueeze(1), k=2).distances.dtype == torch.float32


def test_numbers_too_small_for_a_power_of_two():
    x = torch.arange(20.0, dtype=torch.float64).unsqueeze(1) * 5e-324
    assert glocal.knn_graph(x, k=2).neighbors[1:, 1].tolist() == list(range(19))
