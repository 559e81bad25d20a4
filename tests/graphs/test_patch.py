"""patch_graph equals brute force, whatever backend is chosen; bad arguments are refused in words."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from skimage import data

import glocal
from glocal.errors import ArgumentError, InputError
from glocal.testing import assert_nearest_first

RNG = np.random.default_rng(0)
NATURAL = data.astronaut()[100:123, 200:219].astype(np.float32)

IMAGES = {
    "random": RNG.integers(0, 256, (13, 17, 3)),
    "gray": RNG.integers(0, 256, (16, 11, 1)),
    "constant": np.full((9, 12, 3), 7),
    "periodic": np.tile(RNG.integers(0, 256, (4, 3, 3)), (4, 5, 1)),
    "natural": NATURAL,
    "row": RNG.integers(0, 256, (1, 60, 3)),
    "column": RNG.integers(0, 256, (60, 1, 1)),
    "wide": RNG.integers(0, 4, (5, 50, 1)),
}


# Kernels are compiled for a number of channels and a size of patches. Few different ones keep a first run short.
def brute_force(image, k, patch, coords, radius):
    """Float64 distances between explicit feature vectors; integer-valued images make float32 exact too."""
    h, w, _ = image.shape
    half = patch // 2
    padded = np.pad(image.astype(np.float64), ((half, half), (half, half), (0, 0)), mode="reflect")
    y, x = (a.reshape(-1) for a in np.mgrid[:h, :w])
    features = np.stack([padded[r : r + patch, c : c + patch].reshape(-1) for r, c in zip(y, x)])
    d2 = cdist(features, features, "sqeuclidean") + coords**2 * cdist(np.c_[y, x], np.c_[y, x], "sqeuclidean")
    if radius is not None:
        d2[(abs(y[:, None] - y) > radius) | (abs(x[:, None] - x) > radius)] = np.inf
    d2[np.arange(h * w), np.arange(h * w)] = -1
    order = np.argsort(d2, axis=1, kind="stable")[:, :k]
    return order, np.sqrt(np.take_along_axis(d2, order, 1).clip(0))


@pytest.mark.parametrize("backend", ["reference", "portable", ""])
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(
    ("k", "patch", "coords", "radius"), [(9, 3, 1.0, None), (5, 7, 0.0, None), (4, 3, 2.0, 3), (60, 1, 0.0, None)]
)
def test_equals_brute_force(name, k, patch, coords, radius, backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    image = IMAGES[name]
    g = glocal.patch_graph(torch.from_numpy(image), k=k, patch=patch, coords=coords, search_radius=radius)
    neighbors, distances = brute_force(image, k, patch, coords, radius)
    np.testing.assert_array_equal(g.neighbors.numpy(), neighbors)
    np.testing.assert_allclose(g.distances.numpy(), distances, rtol=1e-6)
    assert_nearest_first(g)


@pytest.mark.parametrize("channels", [1, 2])
def test_equals_brute_force_in_one_dimension(channels):
    signal = RNG.integers(-50, 50, (90, channels))
    g = glocal.patch_graph(torch.from_numpy(signal), k=6, patch=25)
    padded = np.pad(signal, ((12, 12), (0, 0)), mode="reflect")
    features = np.stack([padded[i : i + 25].reshape(-1) for i in range(90)]).astype(np.float64)
    d2 = cdist(features, features, "sqeuclidean")
    np.fill_diagonal(d2, -1)
    np.testing.assert_array_equal(g.neighbors.numpy(), np.argsort(d2, axis=1, kind="stable")[:, :6])


def test_k_may_be_n():
    g = glocal.patch_graph(torch.rand(4, 5, 1), k=20)
    assert torch.equal(g.neighbors.sort(1).values, torch.arange(20, dtype=torch.int32).expand(20, 20))
    one = glocal.patch_graph(torch.rand(1, 1, 3), k=1)
    assert one.neighbors.tolist() == [[0]]


@pytest.mark.parametrize("coords", [0.0, 0.3, 1.0])
def test_backends_agree_to_the_bit_on_real_values(coords, monkeypatch):
    image = torch.from_numpy(NATURAL) / 3 + torch.rand(23, 19, 3, generator=torch.Generator().manual_seed(0))
    graphs = []
    for backend in ("reference", "portable", ""):
        monkeypatch.setenv("GLOCAL_BACKEND", backend)
        graphs.append(glocal.patch_graph(image, k=7, patch=7, coords=coords))
    for g in graphs[1:]:
        assert torch.equal(g.neighbors, graphs[0].neighbors)
        assert torch.equal(g.distances, graphs[0].distances)


def test_progress_rises_to_one():
    seen = []
    glocal.patch_graph(torch.rand(40, 40, 1), k=4, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


X = torch.rand(7, 7, 3)


@pytest.mark.parametrize(
    ("signal", "options", "error", "text"),
    [
        (X, {"k": 64}, ArgumentError, r"patch_graph: `k` \(=64\) must be between 1 and the number of vertices \(=49\)"),
        (X, {"k": 0}, ArgumentError, r"`k` \(=0\) must be between 1"),
        (X, {"k": 3, "patch": 4}, ArgumentError, r"patch_graph: `patch` \(=4\) must be odd and positive"),
        (X, {"k": 3, "coords": -1.0}, ArgumentError, r"`coords` \(=-1.0\) must be finite and not negative"),
        (X, {"k": 3, "coords": float("nan")}, ArgumentError, r"`coords` \(=nan\) must be finite"),
        (X, {"k": 9, "search_radius": 1}, ArgumentError, r"`search_radius` \(=1\) leaves a vertex only 4 candidates"),
        (X, {"k": 1, "search_radius": -1}, ArgumentError, r"`search_radius` \(=-1\)"),
        (
            torch.full((3, 3, 1), torch.nan),
            {"k": 1},
            InputError,
            r"`signal` has 9 value\(s\) that are NaN or infinite",
        ),
        (torch.tensor([1.0, torch.inf]), {"k": 1}, InputError, r"has 1 value\(s\)"),
        (torch.zeros(0, 3, 3), {"k": 1}, InputError, r"`signal` \(shape \(0, 3, 3\)\) is empty"),
        (torch.zeros(2, 2, 2, 2, 2), {"k": 1}, ArgumentError, r"must have 1 or 2 or 3 or 4 axes"),
        ("photo.jpg", {"k": 1}, ArgumentError, r"`signal` \(a str\) is not an array of numbers"),
        (torch.ones(3, dtype=torch.complex64), {"k": 1}, ArgumentError, "is not a signal"),
    ],
)
def test_refuses(signal, options, error, text):
    with pytest.raises(error, match=text):
        glocal.patch_graph(signal, **options)


def test_integer_images_are_converted():
    image = torch.randint(0, 255, (6, 6, 3), dtype=torch.uint8)
    assert torch.equal(glocal.patch_graph(image, k=4).neighbors, glocal.patch_graph(image.double(), k=4).neighbors)


@pytest.mark.parametrize(("name", "value"), [("k", 2.5), ("patch", 3.0), ("search_radius", 1.5)])
def test_sizes_are_whole_numbers(name, value):
    with pytest.raises(ArgumentError, match=f"`{name}` .* must be a whole number"):
        glocal.patch_graph(torch.rand(8, 8, 1), **{"k": 3, "patch": 3} | {name: value})
