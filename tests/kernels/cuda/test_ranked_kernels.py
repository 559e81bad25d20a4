"""The GPU's similarities and weighted differences equal the definition, forward and backward."""

from __future__ import annotations

import pytest
import torch

from glocal.kernels import reference_ranked

pytest.importorskip("triton", reason="the GPU's kernels are written in Triton")
from glocal.kernels.cuda import ranked

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
