"""The convolutions of the GPU equal the reference, forward and backward, in every dtype."""

from __future__ import annotations

import pytest
import torch

from glocal.kernels import reference

pytest.importorskip("triton", reason="the GPU's kernels are written in Triton")
from glocal.kernels.cuda import convolve
from glocal.kernels.cuda import operations as cuda

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}

# signals, vertices, sources, degree, channels, maps, weighted
SHAPES = [
    (1, 30, 30, 5, 3, 7, True),  # narrow: a tile of the product spans several taps
    (2, 13, 20, 2, 32, 5, True),  # one tap a tile, and a tile that spans two signals
    (1, 20, 9, 3, 40, 18, False),
    (2, 1, 3, 2, 1, 1, True),
    (1, 5, 5, 1, 2, 130, False),  # more maps than a program has
]


def inputs(shape, dtype):
    b, n, sources, d, c, m, weighted = shape
    make = torch.Generator().manual_seed(sum(shape))
    neighbors = torch.randint(0, max(1, sources - 1), (n, d), dtype=torch.int32, generator=make)  # one without in-edges
    neighbors[:, 0] = 0  # one that all point to
    weights = torch.rand(n, d, generator=make) if weighted else None
    found = torch.randn(b, sources, c, generator=make), weights, torch.randn(d, c, m, generator=make)
    x, weights, filters = (None if t is None else t.to(DEVICE, dtype) for t in found)
    return x, neighbors.to(DEVICE), weights, filters


def wide(t):
    return t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t


def close(found, wanted, dtype):
    if wanted is None:
        assert found is None
        return
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    assert (found.double() - wanted).norm() <= TOLERANCE[dtype] * wanted.norm()


# The interpreter has no products of bfloat16.
DTYPES = [d for d in TOLERANCE if DEVICE == "cuda" or d != torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_graph_conv(shape, dtype):
    args = inputs(shape, dtype)
    exact = [wide(t) for t in args]
    bias = torch.arange(shape[5], device=DEVICE).to(dtype)
    close(cuda.graph_conv(*args, bias), reference.graph_conv(*exact, wide(bias)), dtype)
    y = reference.graph_conv(*exact)
    close(cuda.graph_conv(*args), y, dtype)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    for mask in ([True, False, True], [True, args[2] is not None, False]):
        found, wanted = (m.graph_conv_backward(wide(g) if m is reference else g, *(exact if m is reference else args), mask)
                         for m in (cuda, reference))  # fmt: skip
        for ours, right, need in zip(found, wanted, mask):
            assert (ours is not None) == need
            close(ours, right if need else None, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("operation", ["shared_conv", "extract"])
@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_other_convolutions(shape, operation, dtype):
    x, neighbors, weights, filters = inputs(shape, dtype)
    args = (x, neighbors, weights, *((filters[:, 0, 0].contiguous(),) if operation == "shared_conv" else ()))
    mask = [True, weights is not None, *[True] * (len(args) - 3)]
    exact = [wide(t) for t in args]
    y = getattr(reference, operation)(*exact)
    close(getattr(cuda, operation)(*args), y, dtype)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    found = getattr(cuda, f"{operation}_backward")(g, *args, mask)
    wanted = getattr(reference, f"{operation}_backward")(wide(g), *exact, mask)
    for ours, right, need in zip(found, wanted, mask):
        close(ours, right if need else None, dtype)


def test_products_follow_the_precision_that_torch_is_told():
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert convolve.product_precision(torch.float32) == "tf32"
        torch.set_float32_matmul_precision("highest")
        assert convolve.product_precision(torch.float32) == "tf32x3"
    finally:
        torch.set_float32_matmul_precision(before)
    assert convolve.product_precision(torch.float64) == convolve.product_precision(torch.float16) == "ieee"


def test_the_gradient_of_the_signal_in_pieces(monkeypatch):
    x, neighbors, weights, filters = inputs(SHAPES[0], torch.float64)
    g = torch.randn(*neighbors.shape[:1], 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    mask = [True, False, False]
    whole = cuda.graph_conv_backward(g[None], x, neighbors, weights, filters, mask)[0]
    monkeypatch.setattr(convolve, "_PATCHES", 1)
    pieces = cuda.graph_conv_backward(g[None], x, neighbors, weights, filters, mask)[0]
    close(pieces, whole, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at_once", [128, 2])
def test_the_gradient_of_the_filters_is_a_sum_of_parts(monkeypatch, at_once, dtype):
    monkeypatch.setattr(convolve, "_PARTS", (16, at_once))
    convolve._parts_plan.cache_clear()
    x, neighbors, weights, filters = inputs((2, 200, 150, 2, 3, 7, True), dtype)
    g = torch.randn(2, 200, 7, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    found = convolve.filter_slopes(x, neighbors, weights, g)
    wanted = reference.graph_conv_backward(
        *(wide(t) for t in (g, x, neighbors, weights, filters)), [False, False, True]
    )
    close(found, wanted[2], dtype)
    assert convolve._parts_plan.cache_info().currsize == 1
    convolve._parts_plan.cache_clear()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_signal_in_float64_decides_the_signs_of_maps_near_0(weighted):
    """The bias brings 20 maps of one vertex each to 0, up to the rounding of float32."""
    make = torch.Generator().manual_seed(3)
    x = torch.randn(40, 3, dtype=torch.float64, generator=make)
    neighbors = torch.randint(0, 40, (30, 5), dtype=torch.int32, generator=make)
    weights = torch.rand(30, 5, generator=make) if weighted else None
    filters = torch.randn(5, 3, 20, generator=make)
    wide = None if weights is None else weights.double()
    before = reference.graph_conv(x[None], neighbors, wide, filters.double())[0]
    bias = -before.diagonal().float()
    x, neighbors, weights, filters, bias = (
        None if t is None else t.to(DEVICE) for t in (x, neighbors, weights, filters, bias)
    )
    maps = cuda.gram(x, neighbors, weights, filters, bias)[1]
    positive = (before.to(DEVICE) + bias.double()) > 0
    assert torch.equal(maps > 0, positive)
    alone = cuda.gram(x.float(), neighbors, weights, filters, bias)[1]
    assert not torch.equal(alone > 0, positive)
    torch.testing.assert_close(maps, alone, rtol=1e-5, atol=1e-5)
