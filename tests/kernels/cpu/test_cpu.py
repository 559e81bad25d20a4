"""The CPU backend equals the reference, forward and backward, and gives the same bits on any number of threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.graphs.grid import grid_graph
from glocal.graphs.patch import patch_graph
from glocal.kernels import portable, reference
from glocal.kernels.cpu import convolve, gram_launch, launch, packing, threads
from glocal.kernels.cpu import operations as cpu
from glocal.kernels.cpu.threads import share

OPS = ("graph_conv", "shared_conv", "extract")


def inputs(op, n, d, c, m, *, batch=1, weighted=True, dtype=torch.float64, sources=None):
    """x, neighbors, weights, then the filter of the operation, if it has one. Neighbours repeat, some are never met."""
    make = torch.Generator().manual_seed(n * 1000 + d * 100 + c * 10 + m)
    s = sources or n
    x = torch.randn(batch, s, c, dtype=dtype, generator=make)
    neighbors = torch.randint(0, max(1, s - 2), (n, d), dtype=torch.int32, generator=make)
    weights = torch.rand(n, d, dtype=dtype, generator=make) if weighted else None
    filters = {"graph_conv": (d, c, m), "shared_conv": (d,)}.get(op)
    rest = () if filters is None else (torch.randn(filters, dtype=dtype, generator=make),)
    return x, neighbors, weights, *rest


def computed(module, op: str, args: tuple) -> list[Tensor]:
    """The result and all gradients, by the functions of one backend."""
    y = getattr(module, op)(*args)
    g = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    mask = [True, args[2] is not None, True][: len(args) - 1]
    return [y, *(part for part in getattr(module, f"{op}_backward")(g, *args, mask) if part is not None)]


def both(op: str, args: tuple) -> tuple[list[Tensor], list[Tensor]]:
    return computed(cpu, op, args), computed(reference, op, args)


# n, d, c, m: one vertex; every vertex a neighbour; less than a vector; many vectors; several blocks and chunks
SHAPES = [
    (1, 1, 1, 1),
    (5, 5, 2, 3),
    (50, 9, 1, 18),
    (300, 25, 3, 50),
    (130, 5, 10, 10),
    (40, 3, 18, 130),
    (700, 4, 70, 9),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_reference_forward_and_backward(op, shape, weighted, dtype):
    ours, theirs = both(op, inputs(op, *shape, batch=2, weighted=weighted, dtype=dtype))
    assert len(ours) == len(theirs)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    for a, b in zip(ours, theirs):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize(("n", "sources"), [(1, 9), (40, 3), (300, 700), (700, 300)])
@pytest.mark.parametrize("op", OPS)
def test_graphs_between_two_signals_equal_the_reference(op, n, sources, monkeypatch):
    for small in (launch.SMALL, 0):  # sums of copies, and a gather over the reversed graph
        monkeypatch.setattr(launch, "SMALL", small)
        ours, theirs = both(op, inputs(op, n, 4, 3, 12, batch=3, sources=sources))
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("m", [3, 50])
def test_gather_over_the_reversed_graph_equals_the_sum_of_copies(m):
    x, neighbors, weights, filters = inputs("graph_conv", 400, 7, 5, m)
    g = torch.randn(1, 400, m, dtype=x.dtype)
    copies, _, _ = launch.backward(x, neighbors, weights, filters, g, (True, False, False))
    gathered = launch.signal_gradient(x, neighbors, weights, filters, g)
    torch.testing.assert_close(copies, gathered, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("small", [0, 3000])  # room for no copy of the filters' gradient, and for two of them
def test_gradients_of_filters_too_large_for_a_copy_in_every_part(monkeypatch, small):
    monkeypatch.setattr(launch, "SMALL", small)
    ours, theirs = both("graph_conv", inputs("graph_conv", 2500, 7, 5, 12, batch=2))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12 * b.abs().max().item())


@pytest.mark.parametrize("op", OPS)
def test_the_backward_pass_is_the_adjoint(op):
    x, neighbors, weights, *rest = inputs(op, 200, 9, 6, 20)
    y = getattr(cpu, op)(x, neighbors, weights, *rest)
    v = torch.randn_like(y)
    back = getattr(cpu, f"{op}_backward")(v, x, neighbors, weights, *rest, [True, False, False])[0]
    torch.testing.assert_close((y * v).sum(), (x * back).sum(), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("op", OPS)
def test_same_bits_on_any_number_of_threads(op):
    args = inputs(op, 3000, 9, 3, 20, batch=2, dtype=torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 3):
            torch.set_num_threads(threads)
            results.append(computed(cpu, op, args))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_only_the_gradients_that_are_needed_are_computed():
    for op in OPS:
        args = inputs(op, 30, 4, 3, 9)
        g = torch.ones_like(getattr(cpu, op)(*args))
        for k in range(len(args) - 1):
            mask = [p == k for p in range(len(args) - 1)]
            grads = getattr(cpu, f"{op}_backward")(g, *args, mask)
            assert [part is not None for part in grads] == mask


def test_vertices_without_in_edges_get_a_zero_gradient():
    neighbors = torch.zeros(10, 3, dtype=torch.int32)
    for op in OPS:
        x, _, weights, *rest = inputs(op, 10, 3, 9, 4)
        y = getattr(cpu, op)(x, neighbors, weights, *rest)
        g = getattr(cpu, f"{op}_backward")(torch.ones_like(y), x, neighbors, weights, *rest, [True, False, False])[0]
        assert torch.equal(g[:, 1:], torch.zeros(1, 9, 9, dtype=x.dtype))
        assert g[:, 0].abs().min() > 0


def test_a_hub_with_more_in_edges_than_a_segment():
    neighbors = torch.zeros(500, 3, dtype=torch.int32)
    x, _, weights, taps = inputs("shared_conv", 500, 3, 18, 1)
    ours, theirs = both("shared_conv", (x, neighbors, weights, taps))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_a_signal_that_is_not_contiguous():
    x, neighbors, weights, filters = inputs("graph_conv", 64, 5, 4, 9)
    wide = torch.stack([x, x + 1], dim=-1)[..., 0]
    assert not wide.is_contiguous()
    assert torch.equal(
        cpu.graph_conv(wide, neighbors, weights, filters),
        cpu.graph_conv(x, neighbors, weights, filters),
    )


@pytest.mark.parametrize("n", [1, 7, 13, 109, 120, 133, 240])
@pytest.mark.parametrize("m", [1, 2, 7, 8, 9, 50, 64, 70])
def test_nothing_is_written_beyond_the_result(n, m):
    x, neighbors, _, filters = inputs("graph_conv", n, 3, 2, m, dtype=torch.float32)
    flat = [a.reshape(-1).numpy() for a in (x, neighbors, filters)]
    guarded = torch.full((n * m + 64,), -7.0)
    none = flat[0][:0]
    blocks = -(-n // packing.block_size(6))
    for block in reversed(range(blocks)):  # a spill into the next block would not be written over
        packed = packing.pack(flat[2], 6, m, m, 1)
        convolve.forward(flat[0], flat[1], none, packed, none, n, n, 3, 2, m, block, block + 1, guarded.numpy())
    assert torch.equal(guarded[n * m :], torch.full((64,), -7.0))
    expected = reference.graph_conv(x, neighbors, None, filters)
    torch.testing.assert_close(guarded[: n * m].view(1, n, m), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "d", "sources"), [(1, 1, 1), (7, 7, 7), (1000, 5, 1000), (20, 5, 100)])
def test_reverse_equals_the_reference(n, d, sources):
    neighbors = torch.randint(0, n, (n, d), dtype=torch.int32, generator=torch.Generator().manual_seed(n))
    (start, edges), (expected_start, expected_edges) = (m.reverse(neighbors, sources) for m in (cpu, reference))
    assert start.dtype == torch.int64
    assert edges.dtype == torch.int32
    assert torch.equal(start, expected_start)
    assert torch.equal(edges.long(), expected_edges)


def gram_inputs(n: int, d: int, c: int, m: int, dtype=torch.float64):
    x, neighbors, weights, filters = inputs("graph_conv", n, d, c, m, dtype=dtype)
    bias = torch.randn(m, dtype=dtype, generator=torch.Generator().manual_seed(m))
    return x[0], neighbors, weights, filters, bias


def gram_and_gradient(module, x, neighbors, weights, filters, bias, shares=None):
    total, maps = module.gram(x, neighbors, weights, filters, bias, shares)
    side = torch.randn(total.shape, dtype=total.dtype, generator=torch.Generator().manual_seed(2))  # not symmetric
    empty = module.gram_maps(x, neighbors, filters)
    assert (empty.shape, empty.dtype) == (maps.shape, maps.dtype)
    return total, module.gram_backward(side, maps, x, neighbors, weights, filters, shares)


def test_gram_of_regions_equals_the_reference():
    """Shares may be soft, negative, and 0 in whole blocks; on a grid the patches are copied in runs."""
    x, neighbors, weights, filters, bias = gram_inputs(500, 9, 3, 11)
    shares = torch.rand(3, 500, dtype=x.dtype, generator=torch.Generator().manual_seed(3)) - 0.2
    shares[1, :260], shares[2, 130:] = 0, 0
    for graph in ((neighbors, weights), (grid_graph((20, 25), size=3).neighbors, None)):
        args = (x, *graph, filters, bias, shares)
        found = list(zip(gram_and_gradient(cpu, *args), gram_and_gradient(reference, *args), strict=True))
        assert found[0][0].shape == (3, 11, 11)
        for ours, theirs in found:
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12 * theirs.abs().max().item())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gram_equals_the_reference(shape, dtype):
    args = gram_inputs(*shape, dtype=dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    for ours, theirs in zip(gram_and_gradient(cpu, *args), gram_and_gradient(reference, *args)):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, theirs.abs().max().item()))


@pytest.mark.parametrize("module", [cpu, reference])
def test_float64_decides_which_side_of_a_kink_a_map_lies_on(module):
    """Map 0 is x_0 - x_1, some 1e-9 above or below 0 where float32 sees 0; map 1 is 1. Their product has slope x_0 - x_1."""
    away = 1e-9 * torch.tensor([1.0, -1.0, 3.0, -0.01], dtype=torch.float64)
    x = torch.stack([0.7 + away, torch.full_like(away, 0.7)], 1).reshape(-1, 1)
    neighbors = torch.arange(8, dtype=torch.int32).view(4, 2).repeat_interleave(2, 0)
    filters = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]])
    weights = torch.ones(8, 2)
    total, maps = module.gram(x, neighbors, weights, filters, torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(total[1, 1], torch.tensor(8.0, dtype=torch.float64))
    side = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    gradient = module.gram_backward(side, maps, x, neighbors, weights, filters).view(4, 2)
    assert gradient.dtype == torch.float32
    assert gradient.tolist() == [[2.0, -2.0], [0.0, 0.0], [2.0, -2.0], [0.0, 0.0]]


@pytest.mark.parametrize(("local", "scale"), [(False, 1.0), (True, 1.0), (False, 1e4)])
def test_float64_signals_with_float32_filters(local, scale):
    """No map is on the wrong side of 0, so the gradient is within rounding of that in float64 at every vertex."""
    n, d, c, m = 3000, 9, 3, 50
    x, neighbors, weights, filters, bias = gram_inputs(n, d, c, m)
    weights = weights * scale
    if local:
        neighbors, weights = grid_graph((50, 60), size=3).neighbors, None
    narrow = None if weights is None else weights.float()
    wide, filters = None if narrow is None else narrow.double(), filters.float().double()
    # Map r of vertex r is 0 but for the rounding of its bias to float32; without a second look half of them come out wrong.
    bias = -reference.graph_conv(x.unsqueeze(0), neighbors, wide, filters)[0].diagonal()[:m].float()
    side = torch.randn(m, m, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    total, maps = cpu.gram(x, neighbors, narrow, filters.float(), bias)
    expected, wide_maps = reference.gram(x, neighbors, wide, filters, bias.double())
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))
    gradient = cpu.gram_backward(side, maps, x, neighbors, narrow, filters.float())
    right = reference.gram_backward(side, wide_maps, x, neighbors, wide, filters)
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(gradient.double(), right, rtol=0, atol=3e-6 * float(right.abs().max()))


def test_gram_with_a_bias_of_another_precision():
    x, neighbors, weights, filters, bias = gram_inputs(30, 4, 3, 9, dtype=torch.float32)
    expected, _ = cpu.gram(x, neighbors, weights, filters, bias)
    assert torch.equal(cpu.gram(x, neighbors, weights, filters, bias.double())[0], expected)


@pytest.mark.parametrize("sources", [30, 12, 200])
def test_gram_without_weights_and_between_two_signals(sources):
    x, neighbors, weights, filters = inputs("graph_conv", 30, 4, 3, 9, sources=sources)
    bias = torch.randn(9, dtype=x.dtype, generator=torch.Generator().manual_seed(9))
    for w in (None, weights):
        found = [gram_and_gradient(m, x[0], neighbors, w, filters, bias) for m in (cpu, reference)]
        for ours, theirs in zip(*found):
            torch.testing.assert_close(ours, theirs)


def test_gram_with_runs_between_two_signals():
    neighbors = (torch.arange(500).unsqueeze(1) + torch.tensor([0, 7, 40])).to(torch.int32)
    x, _, _, filters = inputs("graph_conv", 500, 3, 2, 9, sources=600)
    assert gram_launch.find_runs(neighbors, None).size > 0
    bias = torch.zeros(9, dtype=x.dtype)
    found = [gram_and_gradient(m, x[0], neighbors, None, filters, bias) for m in (cpu, reference)]
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs)


def test_gram_gives_the_same_bits_on_any_number_of_threads():
    args = gram_inputs(3000, 9, 3, 20, dtype=torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 3):
            torch.set_num_threads(threads)
            results.append(gram_and_gradient(cpu, *args))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_gram_with_few_parts_where_copies_would_be_large(monkeypatch):
    args = gram_inputs(3000, 9, 3, 20)
    expected = gram_and_gradient(reference, *args)[1]
    monkeypatch.setattr(gram_launch, "SMALL", 0)
    torch.testing.assert_close(gram_and_gradient(cpu, *args)[1], expected)


def test_an_error_in_a_part_reaches_the_caller():
    def work(part: int) -> None:
        if part == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        share(8, work)


def test_parts_that_threads_take_by_themselves_are_each_done_once():
    x, neighbors, weights, filters = inputs("graph_conv", 40_000, 3, 2, 4, dtype=torch.float32)
    expected = reference.graph_conv(x, neighbors, weights, filters)
    before = torch.get_num_threads()
    try:
        for threads_of_torch in (1, 2, 5):
            torch.set_num_threads(threads_of_torch)
            y = cpu.graph_conv(x, neighbors, weights, filters)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(before)


def test_overflow_is_a_result_not_a_warning(recwarn):
    n = 20_000  # many parts, each of them finite, whose sum is not
    neighbors = torch.zeros(n, 3, dtype=torch.int32)
    filters, bias = torch.ones(3, 1, 4), torch.zeros(4)
    huge = torch.full((n, 1), (4 * torch.finfo(torch.float32).max / n) ** 0.5 / 3)
    total = cpu.gram(huge, neighbors, None, filters, bias)[0].float()
    assert torch.isinf(total).all()
    assert not recwarn.list


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 7, 3), (9, 1, 3), (33, 17, 3), (5, 4, 2), (700, 900, 1)], ids=str)
def test_variation_equals_the_reference(shape):
    image = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).round(decimals=1)  # with equal neighbours
    for dtype in (torch.float32, torch.float64):
        (value, slope), (expected, expected_slope) = (m.variation(image.to(dtype)) for m in (cpu, reference))
        torch.testing.assert_close(value, expected, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=0)
        assert torch.equal(slope, expected_slope)
        assert value.dtype == slope.dtype == dtype


def test_a_pool_larger_than_the_threads_of_a_call(monkeypatch):
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 8)
    before = torch.get_num_threads()
    image = torch.rand(48, 48, 1, generator=torch.Generator().manual_seed(0))
    try:
        torch.set_num_threads(8)
        first = patch_graph(image, k=5, patch=3)
        torch.set_num_threads(2)
        for _ in range(12):
            assert torch.equal(patch_graph(image, k=5, patch=3).neighbors, first.neighbors)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("side", [32, 64])
def test_no_result_depends_on_addresses(side):
    """A loop that is compiled for arrays that may overlap and for those that do not must give one sum."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        image = torch.randn(side, side, 3, generator=generator)
        found = set()
        for offset in range(8):
            room = torch.empty(image.numel() + 8)[offset : offset + image.numel()]
            found.add(float(cpu.variation(room.copy_(image.view(-1)).view(image.shape))[0]))
        assert len(found) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 1000, 40_001])
def test_products_and_combinations_of_long_vectors(n, dtype):
    vectors = torch.randn(7, n, dtype=dtype, generator=torch.Generator().manual_seed(n))
    tolerance = {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    found = cpu.products(vectors, [6, 2])
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, reference.products(vectors, [6, 2]), **tolerance)
    factors = torch.tensor([0.5, -1, 0, 2, 0, 0, 1e-3], dtype=torch.float64)
    total = cpu.combine(factors, vectors)
    assert total.dtype == dtype
    torch.testing.assert_close(total, reference.combine(factors, vectors), **tolerance)


@pytest.mark.parametrize("module", [cpu, portable])
@pytest.mark.parametrize(("n", "m", "p", "k"), [(1, 1, 1, 1), (7, 5, 3, 4), (700, 300, 147, 9)])
def test_squared_differences_equal_the_reference(module, n, m, p, k, monkeypatch):
    monkeypatch.setattr(portable, "_GATHERED", 1000)
    make = torch.Generator().manual_seed(n)
    x, rows = (torch.randn(count, p, generator=make) for count in (n, m))
    candidates = torch.randint(0, m, (n, k), generator=make)
    expected = reference.squared_differences(x.double(), rows.double(), candidates)
    torch.testing.assert_close(module.squared_differences(x, rows, candidates).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [-1, 3])
def test_candidates_that_are_no_rows_are_refused(bad):
    with pytest.raises(ArgumentError, match=r"squared_differences: `candidates` has the index (-1|3) for 3 rows"):
        cpu.squared_differences(torch.zeros(2, 4), torch.zeros(3, 4), torch.tensor([[0, 1], [bad, 2]]))
