"""The fast search equals the definition bit by bit, and float64 brute force where float32 is exact."""

import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist
from skimage import data

from glocal.kernels import reference_search
from glocal.kernels.cpu import neighbors as cpu_neighbors


def picture(kind, c, h, w):
    g = torch.Generator().manual_seed(0)
    if kind == "random":
        return torch.rand(c, h, w, generator=g)
    if kind == "levels":  # many ties
        return torch.randint(0, 3, (c, h, w), generator=g).float()
    if kind == "constant":
        return torch.full((c, h, w), 0.3)
    if kind == "periodic":
        return torch.rand(c, 4, 5, generator=g).repeat(1, h // 4 + 1, w // 5 + 1)[:, :h, :w].contiguous()
    photo = torch.from_numpy(data.astronaut()[60 : 60 + 4 * h : 4, 180 : 180 + 4 * w : 4].copy())
    return photo.permute(2, 0, 1)[torch.arange(c) % 3].float() / 2.55  # natural, 0..100


def padded(x, patch):
    ph, pw = patch
    mode = "reflect" if x.shape[1] > ph // 2 and x.shape[2] > pw // 2 else "replicate"
    return F.pad(x.unsqueeze(0), (pw // 2, pw // 2, ph // 2, ph // 2), mode=mode)[0].contiguous()


def assert_same(x, k, patch, coords=0.0, radius=None):
    planes = padded(x, patch)
    found = cpu_neighbors.patch_neighbors(planes, k, patch, coords, radius)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the reference adds small tensors: on a busy machine more threads only wait
    expected = reference_search.patch_neighbors(planes, k, patch, coords, radius)
    torch.set_num_threads(before)
    assert found[0].dtype == torch.int32
    assert found[1].dtype == torch.float32
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


def brute_force(x, k, patch, coords):
    """Float64 distances of all pairs, ties by index, the vertex itself first."""
    h, w = x.shape[1:]
    cells = padded(x, patch).unfold(1, patch[0], 1).unfold(2, patch[1], 1).permute(1, 2, 0, 3, 4).reshape(h * w, -1)
    place = np.indices((h, w)).reshape(2, -1).T * coords
    features = np.concatenate([cells.numpy().astype(np.float64), place], 1)
    d2 = cdist(features, features, "sqeuclidean")
    np.fill_diagonal(d2, -1)
    order = np.argsort(d2, axis=1, kind="stable")[:, :k]
    return order, np.maximum(np.take_along_axis(d2, order, 1), 0)


@pytest.mark.parametrize("kind", ["random", "levels", "constant", "periodic", "natural"])
@pytest.mark.parametrize("coords", [1.0, 0.3, 0.01, 0.0])
@pytest.mark.parametrize("radius", [None, 5])
def test_equals_the_reference(kind, coords, radius):
    assert_same(picture(kind, 3, 23, 18), 25, (3, 3), coords, radius)
    assert_same(picture(kind, 1, 33, 9), 9, (7, 7), coords, radius)


def test_larger_natural_pictures():
    assert_same(picture("natural", 3, 41, 29), 25, (3, 3), 1.0)
    assert_same(picture("natural", 1, 41, 29) / 100 + picture("random", 1, 41, 29) / 8, 9, (7, 7))


@pytest.mark.parametrize("coords", [3.0, 0.0])
@pytest.mark.parametrize(("h", "w"), [(200, 5), (1, 150), (150, 1), (1, 2), (2, 70)])
def test_thin_pictures(h, w, coords):
    assert_same(picture("random", 1, h, w), min(7, h * w), (7, 7), coords)
    assert_same(picture("levels", 3, h, w), min(7, h * w), (3, 3), coords)


@pytest.mark.parametrize("coords", [0.5, 0.0])
def test_one_vertex_and_every_k(coords):
    assert_same(picture("random", 3, 1, 1), 1, (3, 3), coords)
    for k in range(1, 21):
        assert_same(picture("levels", 3, 4, 5), k, (3, 3), coords)


def test_channels_and_single_pixels():
    assert_same(picture("random", 5, 9, 40), 6, (1, 1))


def test_one_dimension():
    wave = torch.sin(torch.arange(700) / 9.0).reshape(1, 1, -1) + picture("random", 1, 1, 700) / 3
    assert_same(wave, 5, (1, 25))
    assert_same(torch.cat([wave, wave.flip(2)]), 4, (1, 5), 0.02)
    assert_same(torch.cat([wave, wave.flip(2)]), 4, (1, 5), 0.0, 30)


def test_wide_patches():
    assert_same(picture("random", 1, 21, 25), 7, (3, 37), 0.1)


@pytest.mark.parametrize("scale", [1e-22, 1e-3, 1e6, 1e25])
def test_scale_and_offset(scale):
    x = (picture("natural", 1, 33, 9) + 50) * scale  # at the ends float32 underflows and overflows
    for coords in (0.0, 1e-2, 1e4):
        assert_same(x, 9, (7, 7), coords)


@pytest.mark.parametrize("coords", [2.0, 0.0])
@pytest.mark.parametrize("levels", [2, 16])
def test_equals_brute_force_in_float64(coords, levels):
    x = torch.randint(0, levels, (3, 57, 43), generator=torch.Generator().manual_seed(1)).float()
    neighbors, distances = cpu_neighbors.patch_neighbors(padded(x, (3, 3)), 25, (3, 3), coords, None)
    order, d2 = brute_force(x, 25, (3, 3), coords)
    assert np.array_equal(neighbors.numpy(), order)
    assert np.array_equal(distances.numpy(), d2)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("coords", [1.0, 0.0])
def test_the_number_of_threads_changes_no_bit(coords, threads):
    planes = padded(picture("natural", 3, 70, 75), (3, 3))
    results = []
    for count in (1, 2, 3, 8):
        threads(count)
        results.append(cpu_neighbors.patch_neighbors(planes, 25, (3, 3), coords, None))
    for neighbors, distances in results[1:]:
        assert torch.equal(neighbors, results[0][0])
        assert torch.equal(distances, results[0][1])


def test_blocks_of_a_signal_meet_once(threads):
    rng = np.random.default_rng(0)
    signal = np.where(rng.random((3, 1, 2655)) < 0.02, 1e4, 1e-2) * rng.normal(size=(3, 1, 2655))
    planes = padded(torch.from_numpy(signal).float(), (1, 3))
    expected = reference_search.patch_neighbors(planes, 7, (1, 3), 0.0, None)
    for count in (1, 2, 5):
        threads(count)
        neighbors, distances = cpu_neighbors.patch_neighbors(planes, 7, (1, 3), 0.0, None)
        assert torch.equal(neighbors, expected[0])
        assert torch.equal(distances, expected[1])


@pytest.mark.parametrize("coords", [1.0, 0.0])
def test_progress_comes_from_the_calling_thread(coords, threads):
    planes = padded(picture("random", 3, 70, 75), (3, 3))
    for count in (1, 3):
        threads(count)
        seen = []
        cpu_neighbors.patch_neighbors(
            planes, 5, (3, 3), coords, None, lambda part, seen=seen: seen.append((part, threading.current_thread()))
        )
        parts = [part for part, _ in seen]
        assert all(0 < part <= 1 for part in parts)
        assert parts == sorted(parts)
        assert all(thread is threading.current_thread() for _, thread in seen)
        assert count > 1 or (len(parts) > 4 and parts[-1] == 1)
