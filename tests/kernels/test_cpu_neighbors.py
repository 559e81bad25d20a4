"""The fast search equals the definition bit by bit, and float64 brute force where float32 is exact."""

import pytest
import torch
import torch.nn.functional as F
from skimage import data

from glocal.kernels import cpu_neighbors, reference


def picture(kind, c, h, w, seed=0):
    g = torch.Generator().manual_seed(seed)
    if kind == "random":
        return torch.rand(c, h, w, generator=g)
    if kind == "levels":  # many ties
        return torch.randint(0, 3, (c, h, w), generator=g).float()
    if kind == "constant":
        return torch.full((c, h, w), 0.3)
    if kind == "periodic":
        tile = torch.rand(c, 4, 5, generator=g)
        return tile.repeat(1, h // 4 + 1, w // 5 + 1)[:, :h, :w].contiguous()
    photo = torch.from_numpy(data.astronaut()[60 : 60 + 4 * h : 4, 180 : 180 + 4 * w : 4].copy())
    assert kind == "natural"
    assert photo.shape[:2] == (h, w)
    return photo.permute(2, 0, 1)[torch.arange(c) % 3].float() / 2.55


def padded(x, patch):
    ph, pw = patch
    mode = "reflect" if x.shape[1] > ph // 2 and x.shape[2] > pw // 2 else "replicate"
    return F.pad(x.unsqueeze(0), (pw // 2, pw // 2, ph // 2, ph // 2), mode=mode)[0].contiguous()


def assert_same(planes, k, patch, coords, radius):
    found = cpu_neighbors.patch_neighbors(planes, k, patch, coords, radius)
    expected = reference.patch_neighbors(planes, k, patch, coords, radius)
    assert found[0].dtype == torch.int32
    assert found[1].dtype == torch.float32
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


KINDS = ["random", "levels", "constant", "periodic", "natural"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coords", [1.0, 0.3, 0.01, 0.0])
@pytest.mark.parametrize("radius", [None, 5])
def test_equals_the_reference(kind, coords, radius):
    assert_same(padded(picture(kind, 3, 41, 29), (3, 3)), 25, (3, 3), coords, radius)
    assert_same(padded(picture(kind, 1, 33, 9), (7, 7)), 9, (7, 7), coords, radius)


@pytest.mark.parametrize("coords", [0.7, 0.0])
@pytest.mark.parametrize(("h", "w"), [(200, 5), (1, 150), (150, 1), (1, 2), (2, 70)])
def test_thin_pictures(h, w, coords):
    k = min(7, h * w)
    assert_same(padded(picture("random", 1, h, w), (7, 7)), k, (7, 7), coords, None)
    assert_same(padded(picture("levels", 3, h, w), (3, 3)), k, (3, 3), coords, None)
