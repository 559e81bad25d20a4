"""window_graph equals brute force in float64 on every backend; its similarities carry gradients."""

import numpy as np
import pytest
import torch

import glocal
from glocal.errors import ArgumentError

RNG = np.random.default_rng(0)
LATTICES = {
    "odd": RNG.integers(-9, 10, (2, 13, 11, 3)),
    "small": RNG.integers(-9, 10, (1, 4, 5, 2)),
    "row": RNG.integers(-9, 10, (1, 1, 40, 3)),
    "column": RNG.integers(-9, 10, (1, 40, 1, 1)),
    "constant": np.full((1, 9, 12, 2), 3),
    "ties": RNG.integers(0, 2, (1, 20, 17, 1)),
    "periodic": np.tile(RNG.integers(-9, 10, (1, 3, 4, 2)), (1, 5, 4, 1)),
}


def brute_force(features, radius, k, exclude):
    """All pairs in float64: which are candidates is said once more, vertex by vertex."""
    b, h, w, _ = features.shape
    rows = []
    for i in range(b):
        flat = features[i].reshape(h * w, -1).astype(np.float64)
        similarity = flat @ flat.T
        for y in range(h):
            for x in range(w):
                inside = np.zeros((h, w), bool)
                top, left = (
                    np.clip(y - radius, 0, max(h - 2 * radius - 1, 0)),
                    np.clip(x - radius, 0, max(w - 2 * radius - 1, 0)),
                )
                inside[top : top + 2 * radius + 1, left : left + 2 * radius + 1] = True
                if exclude is not None:
                    inside[max(0, y - exclude) : y + exclude + 1, max(0, x - exclude) : x + exclude + 1] = False
                s = np.where(inside.reshape(-1), similarity[y * w + x], -np.inf)
                rows.append(np.argsort(-s, kind="stable")[:k] + i * h * w)
    return np.stack(rows)


@pytest.mark.parametrize("backend", ["reference", "portable", ""])
@pytest.mark.parametrize("name", LATTICES)
@pytest.mark.parametrize(("radius", "k", "exclude"), [(3, 3, 0), (2, 3, None), (30, 5, 1), (5, 9, None)])
def test_equals_brute_force(name, radius, k, exclude, backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    features = LATTICES[name]
    graph, similarities = glocal.window_graph(torch.from_numpy(features).float(), radius=radius, k=k, exclude=exclude)
    expected = brute_force(features, radius, k, exclude)
    np.testing.assert_array_equal(graph.neighbors.numpy(), expected)
    flat = features.reshape(-1, features.shape[3])
    np.testing.assert_array_equal(similarities.numpy(), (flat[expected] * flat[:, None]).sum(-1))


@pytest.mark.parametrize("backend", ["reference", "portable", ""])
def test_real_values_are_ranked_up_to_rounding(backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    features = torch.randn(1, 30, 21, 12, generator=torch.Generator().manual_seed(0))
    _, similarities = glocal.window_graph(features, radius=6, k=8, exclude=1)
    expected = brute_force(features.numpy(), 6, 8, 1)
    flat = features.double().reshape(-1, 12).numpy()
    np.testing.assert_allclose(similarities.numpy(), (flat[expected] * flat[:, None]).sum(-1), rtol=1e-4, atol=1e-5)


def test_one_picture_is_a_batch_of_one():
    features = torch.randn(7, 9, 4)
    one, batch = (glocal.window_graph(x, radius=2, k=4, exclude=0) for x in (features, features.unsqueeze(0)))
    assert torch.equal(one.graph.neighbors, batch.graph.neighbors)
    assert torch.equal(one.similarities, batch.similarities)


def test_a_batch_has_no_edges_between_pictures():
    features = torch.randn(3, 6, 5, 4)
    graph = glocal.window_graph(features, radius=2, k=4).graph
    for i in range(3):
        alone = glocal.window_graph(features[i], radius=2, k=4).graph
        assert torch.equal(graph.neighbors[30 * i : 30 * (i + 1)] - 30 * i, alone.neighbors)


def test_gradients_of_the_similarities():
    features = torch.randn(2, 4, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: glocal.window_graph(x, radius=2, k=3, exclude=0).similarities, features)


@pytest.mark.parametrize(
    ("features", "options", "text"),
    [
        (torch.rand(5, 5, 2), {"radius": 1, "k": 9, "exclude": 0}, r"`radius` \(=1\) and `exclude` \(=0\) leave 8 candidates in 5x5"),
        (torch.rand(5, 5, 2), {"radius": 2, "k": 1, "exclude": 2}, r"leave 0 candidates"),
        (torch.rand(5, 5), {"radius": 1, "k": 1}, r"`features` \(shape \(5, 5\)\) must be \(h, w, f\) or \(b, h, w, f\)"),
        (torch.rand(0, 5, 2), {"radius": 1, "k": 1}, r"with at least one vertex"),
        (torch.ones(5, 5, 2, dtype=torch.int32), {"radius": 1, "k": 1}, r"`features` \(torch.int32\) must be a tensor of floats"),
        ([[1.0]], {"radius": 1, "k": 1}, r"`features` \(list\) must be a tensor of floats"),
        (torch.rand(5, 5, 2), {"radius": 1.5, "k": 1}, r"`radius` \(=1.5\) must be a whole number, at least 0"),
        (torch.rand(5, 5, 2), {"radius": 1, "k": 0}, r"`k` \(=0\) must be a whole number, at least 1"),
        (torch.rand(5, 5, 2), {"radius": 1, "k": 1, "exclude": -1}, r"`exclude` \(=-1\) must be a whole number"),
    ],
)  # fmt: skip
def test_refuses(features, options, text):
    with pytest.raises(ArgumentError, match=text):
        glocal.window_graph(features, **options)
