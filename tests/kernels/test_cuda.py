"""The GPU's kernels equal the reference. Triton's interpreter runs them here, on the CPU (see conftest.py)."""

from __future__ import annotations

import pytest
import torch

from glocal.graphs.patch import pad_planes
from glocal.kernels import reference, select

pytest.importorskip("triton", reason="the GPU's kernels are written in Triton")
from glocal.kernels import cuda, cuda_neighbors
from glocal.optimize import History, Minimum, lbfgs
from glocal.optimize_cuda import DeviceHistory

# h, w, c, patch, k, coords, radius
SEARCHES = [
    (6, 7, 3, (3, 3), 5, 1.0, None),
    (4, 5, 1, (3, 3), 4, 0.0, None),
    (5, 4, 2, (3, 3), 3, 0.5, 2),
    (1, 9, 1, (1, 5), 3, 0.0, None),
    (3, 4, 1, (7, 7), 4, 0.2, None),
    (3, 4, 2, (5, 5), 9, 0.3, None),
    (4, 4, 3, (1, 1), 1, 1.0, None),
]


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize(("h", "w", "c", "patch", "k", "coords", "radius"), SEARCHES, ids=str)
def test_the_search_equals_the_reference_to_the_bit(h, w, c, patch, k, coords, radius):
    """Few different values, so that many distances are equal."""
    image = torch.randint(0, 4, (h, w, c), generator=torch.Generator().manual_seed(k)).float() * 0.7
    planes = pad_planes(image, patch)
    found, d2 = cuda_neighbors.patch_neighbors(planes, k, patch, coords, radius)
    neighbors, expected = reference.patch_neighbors(planes, k, patch, coords, radius)
    assert torch.equal(found, neighbors)
    assert torch.equal(d2, expected)


def test_patches_too_large_for_the_kernel_are_searched_all_the_same():
    planes = pad_planes(torch.rand(4, 5, 1, generator=torch.Generator().manual_seed(0)), (9, 9))
    found, _ = cuda_neighbors.patch_neighbors(planes, 3, (9, 9), 0.0, None)
    assert torch.equal(found, reference.patch_neighbors(planes, 3, (9, 9), 0.0, None)[0])


def graph_inputs(n, d, c, m, dtype, weighted):
    make = torch.Generator().manual_seed(n + d)
    x = torch.randn(n, c, dtype=dtype, generator=make)
    neighbors = torch.randint(0, n - 2, (n, d), dtype=torch.int32, generator=make)
    neighbors[:, 0] = 1  # one vertex that all point to: more in-edges than are added at a time
    weights = torch.rand(n, d, dtype=dtype, generator=make) if weighted else None
    filters, bias = (torch.randn(*shape, dtype=dtype, generator=make) for shape in ((d, c, m), (m,)))
    return x, neighbors, weights, filters, bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_gram_pullback_equals_the_reference(dtype, weighted, monkeypatch):
    monkeypatch.setattr(cuda, "_PIECE", 16)
    args = graph_inputs(50, 5, 3, 7, dtype, weighted)
    side = torch.randn(7, 7, dtype=dtype, generator=torch.Generator().manual_seed(2))
    (total, back), (expected, slope) = cuda.gram_pullback(*args), reference.gram_pullback(*args)
    assert total.dtype == torch.float64
    torch.testing.assert_close(total.to(dtype), expected)
    torch.testing.assert_close(back(side), slope(side), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("c", [2, 6])  # narrow, and as torch does it
@pytest.mark.parametrize("operation", ["extract", "graph_conv", "shared_conv"])
def test_convolutions_equal_the_reference(operation, c):
    x, neighbors, weights, filters, _ = graph_inputs(20, 4, c, 3, torch.float64, weighted=True)
    extra = {"extract": (), "graph_conv": (filters,), "shared_conv": (filters[:, 0, 0],)}[operation]
    results = []
    for module in (cuda, reference):
        leaves = [t.clone().requires_grad_() for t in (x.unsqueeze(0), weights, *extra)]
        y = getattr(module, operation)(leaves[0], neighbors, leaves[1], *leaves[2:])
        y.backward(torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1)))
        results.append([y.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 1, 2), (1, 6, 1), (40, 30, 1)])
def test_variation_slope_equals_the_reference(shape):
    image = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(3)).double()
    (value, slope), (expected, right) = cuda.variation_slope(image), reference.variation_slope(image)
    assert float(value) == float(expected)
    assert torch.equal(slope, right)


def test_the_recursion_on_the_gpu_equals_that_on_the_host():
    """Over more steps than are remembered; the fifth has no curvature and is not kept."""
    make = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, dtype=torch.float64, generator=make)
    matrix = root @ root.T + 0.1 * torch.eye(12)
    x = torch.randn(12, dtype=torch.float64, generator=make)
    gradient = matrix @ x
    host, device = History(x, 3), DeviceHistory(x, 3)
    pair = None
    for step in range(9):
        if pair is not None:
            host.add(x, x - pair[0], gradient, gradient - pair[1])
        expected, slope = host.direction(gradient)
        torch.testing.assert_close(device.turn(gradient, pair), expected)
        assert float(device.slope) == pytest.approx(slope)
        assert int(device.ring[1]) == len(host.pairs)
        moved = 0.0 if step == 4 else 0.15
        pair = moved * expected, matrix @ (x + moved * expected) - gradient
        x, gradient = x + pair[0], gradient + pair[1]
    again, other = DeviceHistory(x, 3), DeviceHistory(x, 3)
    again.load(device.state())
    assert torch.equal(again.turn(gradient, None), device.turn(gradient, None))
    host.pairs = host.pairs[::-1]  # not in the order of the ring
    other.load(host.state())
    torch.testing.assert_close(other.turn(gradient, None), host.direction(gradient)[0])


class Replays:
    """Stands in for a recorded graph where there is no GPU: runs the work again."""

    def __init__(self, work):
        self.replay = work


@pytest.mark.parametrize("first", [0.1, 50.0])  # the second is far too long and must be shortened
def test_recorded_iterations_are_those_of_lbfgs(first, monkeypatch):
    from glocal import optimize_cuda

    monkeypatch.setattr(optimize_cuda, "_recorded", lambda work: (work(), Replays(work))[1])

    def objective(x):
        return (x[1:] - x[:-1] ** 2).square().sum() * 3 + (1 - x).square().sum()

    start = torch.linspace(-1, 1, 6, dtype=torch.float64)
    seen: list[float] = []
    plain = lbfgs(objective, start, iterations=25, history=4, first=first)
    ours: Minimum = lbfgs(
        objective, start, iterations=25, memory=DeviceHistory(start, 4), first=first, callback=lambda k, v, x: seen.append(v)
    )  # fmt: skip
    assert ours.reason == plain.reason
    assert ours.evaluations == plain.evaluations
    torch.testing.assert_close(torch.tensor(ours.losses), torch.tensor(plain.losses), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(ours.x, plain.x, rtol=1e-5, atol=1e-7)
    assert tuple(seen) == ours.losses[1:]
    stopped = lbfgs(
        objective, start, iterations=25, memory=DeviceHistory(start, 4), first=first, callback=lambda *_: True
    )
    assert stopped.reason == "stopped"
    assert len(stopped.losses) == 2
    # Going on from what is remembered is the same as not having been interrupted.
    memory = DeviceHistory(start, 4)
    half = lbfgs(objective, start, iterations=10, memory=memory, first=first)
    again = DeviceHistory(start, 4)
    again.load(memory.state())
    rest = lbfgs(objective, half.x, iterations=15, memory=again, first=first)
    torch.testing.assert_close(rest.x, ours.x)


def test_the_backend_refuses_what_does_not_lie_on_a_gpu(monkeypatch):
    assert {row[0]: row[1] for row in select.explain("cpu")}["gram_pullback"] == "cpu"
    picked = {op: select.pick(op, "cuda").__module__.rsplit(".", 1)[-1] for op in select.OPERATIONS}
    assert picked["patch_neighbors"] == "cuda_neighbors"
    assert picked["gram_pullback"] == picked["shared_conv"] == "cuda"
    assert picked["knn"] == "portable"
    assert picked["reverse"] == "reference"
