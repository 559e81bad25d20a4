"""The gradients that the reference writes out equal those that autograd finds."""

import pytest
import torch

from glocal.kernels import reference


def inputs(operation, *, sources=9, weighted=True):
    make = torch.Generator().manual_seed(0)
    n, d, c, m = 7, 4, 3, 5
    neighbors = torch.randint(0, sources, (n, d), dtype=torch.int32, generator=make)
    weights = torch.rand(n, d, dtype=torch.float64, generator=make) if weighted else None
    filters = {"graph_conv": (d, c, m), "shared_conv": (d,)}.get(operation)
    extra = () if filters is None else (torch.randn(filters, dtype=torch.float64, generator=make),)
    return torch.randn(2, sources, c, dtype=torch.float64, generator=make), neighbors, weights, *extra


@pytest.mark.parametrize("sources", [2, 7, 20])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("operation", ["extract", "graph_conv", "shared_conv"])
def test_backward_is_the_derivative(operation, weighted, sources):
    args = inputs(operation, sources=sources, weighted=weighted)
    leaves = [a.requires_grad_() if a is not None and a.is_floating_point() else a for a in args]
    y = getattr(reference, operation)(*leaves)
    g = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    y.backward(g)
    mask = [True, weighted, True][: len(args) - 1]
    with torch.no_grad():
        found = getattr(reference, f"{operation}_backward")(g, *args, mask)
    expected = [a.grad if a is not None else None for place, a in enumerate(leaves) if place != 1]
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("regions", [None, 2])
def test_backward_of_gram_and_of_the_variation(regions):
    x, neighbors, weights, filters = inputs("graph_conv")
    point, bias = x[0].clone().requires_grad_(), torch.randn(5, dtype=torch.float64)
    shares = None if regions is None else torch.randn(regions, len(neighbors), dtype=torch.float64)
    total, maps = reference.gram(point, neighbors, weights, filters, bias, shares)
    side = torch.randn(total.shape, dtype=torch.float64)
    (expected,) = torch.autograd.grad(total, point, side)
    with torch.no_grad():
        found = reference.gram_backward(side, maps, x[0], neighbors, weights, filters, shares)
    torch.testing.assert_close(found, expected)
    image = torch.randn(4, 5, 2, dtype=torch.float64, requires_grad=True)
    value, slope = reference.variation(image)
    torch.testing.assert_close(slope, torch.autograd.grad(value, image)[0])
