"""The search by cells equals the other backends bit by bit, on signals large enough for many cells."""

import numpy as np
import pytest
import torch
from skimage import data

from glocal.graphs.patch import pad_frames
from glocal.kernels import portable
from glocal.kernels.cpu import match, match_cells, match_copies
from glocal.kernels.matching import Matching

PHOTO = torch.from_numpy(data.astronaut().copy()).float()


def picture(name, h, w, seed):
    g = torch.Generator().manual_seed(seed)
    photo = PHOTO[40 + 90 * seed :: 4, 10 + 60 * seed :: 3][:h, :w]
    if name == "noise":
        return torch.rand(h, w, 3, generator=g)
    if name == "flat":  # large areas without any detail beside natural ones
        return photo.clamp(60, 120)
    if name == "levels":
        return torch.randint(0, 3, (h, w, 3), generator=g).float()
    if name == "large numbers":
        return photo + 1e6
    if name == "small numbers":
        return photo * 1e-20
    return photo


@pytest.mark.parametrize("name", ["natural", "noise", "flat", "levels", "large numbers", "small numbers"])
@pytest.mark.parametrize("k", [1, 8, 70])
def test_equals_the_portable_search(name, k):
    matching = Matching((1, 7, 7))
    query, source = (
        pad_frames(picture(name, h, w, seed).unsqueeze(0), (1, 7, 7))
        for seed, (h, w) in enumerate(((33, 41), (47, 39)))
    )
    found, expected = (kernel.match_patches(query, source, k, matching) for kernel in (match, portable))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("k", [1, 9])
def test_a_signal_with_itself(k):
    query = pad_frames(picture("flat", 40, 37, 1).unsqueeze(0), (1, 7, 7))
    matching = Matching((1, 7, 7), coords=0.3, own=True)
    found, expected = (kernel.match_patches(query, query, k, matching) for kernel in (match, portable))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("f", [2, 30, 90])
@pytest.mark.parametrize("own", [False, True])
def test_rows_equal_the_portable_search(f, dtype, own):
    g = torch.Generator().manual_seed(0)
    query = torch.randn(700, f, generator=g, dtype=dtype) @ torch.randn(f, f, generator=g, dtype=dtype)
    query[100:140] = query[0]
    source = query if own else query[torch.randperm(700, generator=g)[:500]] + 0.1
    found, expected = (kernel.match_rows(query, source, 6, own) for kernel in (match, portable))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


def test_the_threads_do_not_change_the_result():
    query = pad_frames(picture("natural", 40, 37, 1).unsqueeze(0), (1, 7, 7))
    source = pad_frames(picture("natural", 35, 44, 0).unsqueeze(0), (1, 7, 7))
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(match.match_patches(query, source, 5, Matching((1, 7, 7)))[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_cells_hold_every_vector_once_and_lie_in_their_boxes(n):
    vectors = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    cells = match_cells.make_cells(vectors, vectors[:, :0], np.arange(n))
    assert sorted(cells.order[cells.order >= 0]) == list(range(n))
    boxes = cells.boxes.reshape(cells.number, 2, 5)
    for cell in range(cells.number):
        own = cells.order[64 * cell : 64 * cell + 64]
        inside = vectors[own[own >= 0]]
        np.testing.assert_array_equal(boxes[cell], [inside.min(0), inside.max(0)])
    spread = (boxes[:, 1] - boxes[:, 0]).prod(1).mean() if n == 1000 else 0
    assert spread < np.ptp(vectors, 0).prod() / 4 or n < 1000


def test_equal_hashes_of_different_vectors_drop_nothing(monkeypatch):
    rows = match._Rows(torch.arange(12.0).view(6, 2))
    monkeypatch.setattr(match_copies, "_hashes", lambda vectors, places: np.zeros(len(places), np.uint64))
    assert match_copies.distinct(rows, 1).tolist() == [0, 1, 2, 3, 4, 5]
