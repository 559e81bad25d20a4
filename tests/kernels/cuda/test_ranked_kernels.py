"""The GPU's similarities and weighted differences equal the definition, forward and backward."""

from __future__ import annotations

import pytest
import torch

from glocal.kernels import reference, reference_ranked

pytest.importorskip("triton", reason="the GPU's kernels are written in Triton")
from glocal.kernels.cuda import neighbors as search
from glocal.kernels.cuda import operations, ranked

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("n", "k", "c"), [(37, 5, 3), (64, 8, 32), (1, 1, 1)])
def test_similarities_equal_the_definition(n: int, k: int, c: int) -> None:
    x = torch.randn(n, c, device=DEVICE, requires_grad=True)
    neighbors = torch.randint(n, (n, k), dtype=torch.int32, device=DEVICE)
    slope = torch.randn(n, k, device=DEVICE)
    found, wanted = ranked.similarities(x, neighbors), reference_ranked.similarities(x, neighbors)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, slope)[0] for y in (found, wanted)))


@pytest.mark.parametrize(("n", "k", "c"), [(37, 5, 3), (64, 8, 32), (1, 1, 1)])
def test_weighted_differences_equal_the_definition(n: int, k: int, c: int) -> None:
    x = torch.randn(n, c, device=DEVICE, requires_grad=True)
    weights = torch.rand(n, k, device=DEVICE, requires_grad=True)
    neighbors = torch.randint(n, (n, k), dtype=torch.int32, device=DEVICE)
    slope = torch.randn(n, k, c, device=DEVICE)
    found = ranked.weighted_differences(x, neighbors, weights)
    wanted = reference_ranked.weighted_differences(x, neighbors, weights)
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(*(torch.autograd.grad(y, (x, weights), slope) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_bfloat16_is_summed_in_float32() -> None:
    x = torch.randn(50, 16, device=DEVICE).bfloat16().requires_grad_()
    neighbors = torch.randint(50, (50, 8), dtype=torch.int32, device=DEVICE)
    weights = torch.rand(50, 8, device=DEVICE).bfloat16()
    slope = torch.randn(50, 8, 16, device=DEVICE).bfloat16()
    found = torch.autograd.grad(ranked.weighted_differences(x, neighbors, weights), x, slope)[0]
    exact = x.detach().double().requires_grad_()
    wanted = reference_ranked.weighted_differences(exact, neighbors, weights.double())
    wanted = torch.autograd.grad(wanted, exact, slope.double())[0]
    assert (found.double() - wanted).norm() < 4e-3 * wanted.norm()


def test_the_reversed_graph_is_that_of_the_definition() -> None:
    neighbors = torch.randint(20, (30, 7), dtype=torch.int32, device=DEVICE)
    neighbors[:, 2] = 5  # a vertex that all point to; 20 and 21 have no edges
    for found, wanted in zip(operations.reverse(neighbors, 22), reference.reverse(neighbors, 22), strict=True):
        assert found.dtype == torch.int32
        assert torch.equal(found.long(), wanted)


def _step() -> list[torch.Tensor]:
    """The gradients of one layer on a graph in which many edges point to few vertices."""
    make = torch.Generator().manual_seed(0)
    x = torch.randn(300, 8, generator=make).to(DEVICE).requires_grad_()
    weights = torch.rand(300, 4, generator=make).to(DEVICE).requires_grad_()
    neighbors = torch.randint(3, (300, 4), dtype=torch.int32, generator=make).to(DEVICE)
    loss = (
        ranked.weighted_differences(x, neighbors, weights).sin().sum() + ranked.similarities(x, neighbors).sin().sum()
    )
    return list(torch.autograd.grad(loss, (x, weights)))


def test_every_run_gives_the_same_bits() -> None:
    first = _step()
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, _step(), strict=True))


def test_second_derivatives_are_refused() -> None:
    x = torch.randn(9, 2, device=DEVICE, requires_grad=True)
    neighbors = torch.randint(9, (9, 3), dtype=torch.int32, device=DEVICE)
    (slope,) = torch.autograd.grad(ranked.similarities(x, neighbors).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_windows_of_nan_stay_inside_their_picture() -> None:
    x = torch.rand(2, 5, 6, 3, device=DEVICE)
    x[1, 2:] = float("nan")
    found = search.window_neighbors(x, 4, 2, 0)
    assert 0 <= int(found[:30].min()) <= int(found[:30].max()) < 30 <= int(found[30:].min()) <= int(found.max()) < 60
