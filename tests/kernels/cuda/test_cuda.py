"""The GPU's kernels equal the reference. Where there is no GPU, Triton's interpreter runs them on the CPU (conftest.py)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal.apps.style import solve
from glocal.apps.style.options import style_options
from glocal.apps.style.transfer import stylize
from glocal.errors import DeviceError
from glocal.graphs.patch import pad_frames, patch_graph
from glocal.kernels import reference, reference_search, select

pytest.importorskip("triton", reason="the GPU's kernels are written in Triton")
from glocal.kernels.cuda import neighbors as cuda_neighbors
from glocal.kernels.cuda import operations as cuda

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
gpu = pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU here")


# h, w, c, patch, k, coords, radius
SEARCHES = [
    (4, 5, 3, (3, 3), 5, 1.0, None),
    (4, 5, 1, (3, 3), 4, 0.0, None),
    (5, 4, 2, (3, 3), 3, 0.5, 2),
    (1, 9, 1, (1, 5), 3, 0.0, None),
    (2, 4, 1, (7, 7), 4, 0.2, None),
    (3, 4, 2, (5, 5), 9, 0.3, None),
    (4, 4, 3, (1, 1), 1, 1.0, None),
    (3, 4, 1, (3, 3), np.int64(4), 1e-10, None),
    (3, 4, 1, (1, 1), 4, 1e6, None),
    (3, 5, 1, (1, 1), 3, 0.0, np.int64(2)),
    (3, 3, 1, (1, 1), 4, 0.0, 2**31 - 1),
]


@pytest.mark.parametrize(("h", "w", "c", "patch", "k", "coords", "radius"), SEARCHES, ids=str)
def test_the_search_equals_the_reference_to_the_bit(h, w, c, patch, k, coords, radius):
    """Few different values, so that many distances are equal."""
    image = torch.randint(0, 4, (h, w, c), generator=torch.Generator().manual_seed(5)).float() * 0.7
    planes = pad_frames(image.unsqueeze(0), (1, *patch))[0]
    found, d2 = cuda_neighbors.patch_neighbors(planes.to(DEVICE), k, patch, coords, radius)
    neighbors, expected = reference_search.patch_neighbors(planes, int(k), patch, coords, radius)
    assert torch.equal(found.cpu(), neighbors)
    assert torch.equal(d2.cpu(), expected)


@gpu
def test_long_signals_on_a_gpu():
    """Squares of distances above 46340 are larger than what 32 bits hold."""
    signal = torch.rand(70_000, generator=torch.Generator().manual_seed(0))
    for coords in (0.0, 1e-4):
        found = patch_graph(signal.cuda(), k=3, patch=5, coords=coords)
        assert torch.equal(found.neighbors.cpu(), patch_graph(signal, k=3, patch=5, coords=coords).neighbors)


def test_patches_too_large_for_the_kernel_are_searched_all_the_same():
    planes = pad_frames(torch.rand(1, 4, 5, 1, generator=torch.Generator().manual_seed(0)), (1, 9, 9))[0]
    found, _ = cuda_neighbors.patch_neighbors(planes.to(DEVICE), 3, (9, 9), 0.0, None)
    assert torch.equal(found.cpu(), reference_search.patch_neighbors(planes, 3, (9, 9), 0.0, None)[0])


def graph_inputs(n, d, c, m, dtype, weighted):
    make = torch.Generator().manual_seed(n + d)
    x = torch.randn(n, c, dtype=dtype, generator=make)
    neighbors = torch.randint(0, n - 2, (n, d), dtype=torch.int32, generator=make)
    neighbors[:, 0] = 1  # one vertex that all point to: more in-edges than are added at a time
    weights = torch.rand(n, d, dtype=dtype, generator=make) if weighted else None
    filters, bias = (torch.randn(*shape, dtype=dtype, generator=make) for shape in ((d, c, m), (m,)))
    return [None if t is None else t.to(DEVICE) for t in (x, neighbors, weights, filters, bias)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_gram_equals_the_reference(dtype, weighted, monkeypatch):
    monkeypatch.setattr(cuda, "_PIECE", 16)
    args = graph_inputs(50, 5, 3, 7, dtype, weighted)
    shares = torch.rand(2, 50, dtype=dtype, generator=torch.Generator().manual_seed(4)).to(DEVICE) if weighted else None
    side = torch.randn(*(() if shares is None else (2,)), 7, 7, dtype=dtype, generator=torch.Generator().manual_seed(2))
    side = side.to(DEVICE)
    (total, maps), (expected, right) = cuda.gram(*args, shares), reference.gram(*args, shares)
    assert total.dtype == torch.float64
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-4)
    assert cuda.gram_maps(*args[:2], args[3]).shape == maps.shape
    gradients = (m.gram_backward(side, f, *args[:-1], shares) for m, f in ((cuda, maps), (reference, right)))
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("c", [2, 6])  # narrow, and as torch does it
@pytest.mark.parametrize("operation", ["extract", "graph_conv", "shared_conv"])
def test_convolutions_equal_the_reference(operation, c):
    x, neighbors, weights, filters, _ = graph_inputs(20, 4, c, 3, torch.float64, weighted=True)
    extra = {"extract": (), "graph_conv": (filters,), "shared_conv": (filters[:, 0, 0],)}[operation]
    results = []
    for module in (cuda, reference):
        args = (x.unsqueeze(0), neighbors, weights, *extra)
        y = getattr(module, operation)(*args)
        g = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        results.append([y, *getattr(module, f"{operation}_backward")(g, *args, [True] * (len(args) - 1))])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 1, 2), (1, 6, 1), (40, 30, 1)])
def test_variation_equals_the_reference(shape):
    image = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(3)).double().to(DEVICE)
    (value, slope), (expected, right) = cuda.variation(image), reference.variation(image)
    assert float(value) == float(expected)
    assert torch.equal(slope, right)


@gpu
@pytest.mark.parametrize("preset", ["paper", "painterly"])
def test_runs_on_a_gpu_repeat_and_resume_to_the_bit(preset, monkeypatch):
    monkeypatch.setattr(solve, "CALL_SECONDS", 0.0)
    make = torch.Generator().manual_seed(0)
    photo, painting = (torch.rand(90, 100, 3, generator=make).numpy() for _ in range(2))
    options = style_options(preset, {"size": 100, "iterations": 20})
    points = []

    def stop(progress):
        if (progress.level, progress.iteration) == (1, 9):
            points.append(progress.snapshot())
        return bool(points)

    whole, again = (stylize(photo, painting, options=options, device="cuda").rgb for _ in range(2))
    assert (whole == again).all()
    assert stylize(photo, painting, options=options, device="cuda", callback=stop).stopped
    rest = stylize(photo, painting, options=options, device="cuda", checkpoint=points[0]).rgb
    assert (whole == rest).all()


def test_the_backend_runs_what_it_has_and_only_on_a_gpu(monkeypatch):
    picked = {op: select.chosen(op, "cuda").name for op in select.OPERATIONS}
    assert picked["patch_neighbors"] == "cuda"
    assert picked["gram"] == picked["shared_conv"] == "cuda"
    assert picked["knn"] == picked["window_neighbors"] == "cuda"
    assert picked["products"] == "reference"
    monkeypatch.setenv("GLOCAL_BACKEND", "cuda")
    with pytest.raises(DeviceError, match="the tensors are on cpu"):
        select.pick("gram", "cpu")
