"""Convolutions on lattices: every backend equals the definition by neighbours, and torch may use them as operators."""

from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import glocal
from glocal.errors import ArgumentError
from glocal.kernels import lattice as dense
from glocal.kernels import lattice_ops, reference
from glocal.kernels.cpu import lattice as boxes
from glocal.lattice import BOUNDARIES, Lattice
from glocal.nn import functional

NAMES = ("lattice_conv", "lattice_shared")
# Lines, images and volumes; patches that reach beyond the lattice once and more often; axes of length 1.
SHAPES = [
    ((7,), (3,), 1),
    ((40,), (5,), 3),
    ((1,), (5,), 2),
    ((9, 12), (3, 5), 2),
    ((2, 90), (5, 3), 1),
    ((60, 3), (3, 5), 1),
    ((1, 1), (3, 3), 1),
    ((40, 70), (5, 5), 1),
    ((5, 6, 7), (3, 3, 3), 1),
    ((2, 3, 4), (3, 1, 3), 3),
]


@pytest.fixture(params=["cpu", "portable", "reference"])
def backend(request, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", request.param)
    return request.param


def inputs(name, lattice, *, c=3, m=5, batch=2, dtype=torch.float64):
    make = torch.Generator().manual_seed(0)
    shape = (lattice.degree, c, m) if name == "lattice_conv" else (lattice.degree,)
    x = torch.randn(batch, lattice.num_vertices, c, dtype=dtype, generator=make)
    return x, torch.randn(shape, dtype=dtype, generator=make)


def assert_near(found, expected, dtype):
    tolerance = 3e-5 if dtype == torch.float32 else 1e-12
    assert found.shape == expected.shape
    assert found.dtype == dtype
    assert float((found - expected).detach().abs().max()) <= tolerance * float(expected.detach().abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("shape", "size", "dilation"), SHAPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kernel", ["cpu", "portable"])
def test_equals_the_definition(kernel, name, shape, size, dilation, dtype, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", kernel)
    for boundary in BOUNDARIES:
        lattice = Lattice(shape, size, dilation, boundary)
        for c, m in ((1, 18), (3, 50), (18, 1), (20, 70)):
            leaves = [t.requires_grad_() for t in inputs(name, lattice, c=c, m=m, dtype=dtype)]
            found, expected = (getattr(module, name)(*leaves, lattice) for module in (lattice_ops, reference))
            assert_near(found, expected, dtype)
            g = torch.randn(expected.shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
            pairs = zip(*(torch.autograd.grad(y, leaves, g) for y in (found, expected)), strict=True)
            for ours, gradient in pairs:
                assert_near(ours, gradient, dtype)


@pytest.mark.parametrize(("shape", "size", "dilation"), SHAPES)
def test_the_bias_is_added_last(shape, size, dilation):
    lattice = Lattice(shape, size, dilation, "zero")
    for c, m in ((1, 18), (3, 50), (18, 1), (20, 70)):
        x, filters = inputs("lattice_conv", lattice, c=c, m=m, dtype=torch.float32)
        bias = torch.arange(1.0, m + 1)
        assert torch.equal(
            boxes.lattice_conv(x, filters, lattice, bias), boxes.lattice_conv(x, filters, lattice) + bias
        )


@pytest.mark.parametrize("name", NAMES)
def test_computes_only_the_gradients_that_are_asked_for(name):
    lattice = Lattice((4, 5), (3, 3))
    x, filters = inputs(name, lattice)
    backward, g = getattr(boxes, f"{name}_backward"), getattr(boxes, name)(x, filters, lattice)
    assert backward(g, x, filters, lattice, (False, True))[0] is None
    assert backward(g, x, filters, lattice, (True, False))[1] is None


def test_many_channels_and_boxes():
    """Filters in several chunks, and images of several boxes in both directions."""
    for shape, c, m in (((70, 300), 66, 65), ((3, 2500), 2, 100), ((200, 5), 7, 200)):
        lattice = Lattice(shape, (3, 3))
        leaves = inputs("lattice_conv", lattice, c=c, m=m, batch=1, dtype=torch.float32)
        expected = dense.lattice_conv(*(t.requires_grad_() for t in leaves), lattice)
        assert_near(boxes.lattice_conv(*leaves, lattice), expected, torch.float32)
        g = expected.detach()
        found = boxes.lattice_conv_backward(g, *leaves, lattice, (True, True))
        for ours, gradient in zip(found, torch.autograd.grad(expected, leaves, g), strict=True):
            assert_near(ours, gradient, torch.float32)


def test_the_number_of_threads_changes_no_bit():
    lattice = Lattice((120, 150), (5, 5))
    x, filters = inputs("lattice_conv", lattice, c=4, m=20, dtype=torch.float32)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            y = boxes.lattice_conv(x, filters, lattice)
            found.append((y, *boxes.lattice_conv_backward(y, x, filters, lattice, (True, True))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name, backend):
    lattice = Lattice((4, 3), (3, 3))
    x, filters = inputs(name, lattice, dtype=torch.float32)
    rule = (lattice.shape, lattice.size, lattice.dilation, lattice.boundary)
    op = getattr(torch.ops.glocal, name).default
    torch.library.opcheck(op, (x.requires_grad_(), filters.requires_grad_(), *rule))
    g = torch.randn(op(x, filters, *rule).shape, requires_grad=True)
    for mask in ([True, True], [True, False], [False, True]):
        torch.library.opcheck(getattr(torch.ops.glocal, f"{name}_backward").default, (g, x, filters, *rule, mask))


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("name", NAMES)
def test_first_and_second_derivatives(name, boundary, backend):
    lattice = Lattice((3, 4), (3, 3), 2, boundary)
    leaves = [t.requires_grad_() for t in inputs(name, lattice, c=2, m=2, batch=1)]
    function = lambda x, f: getattr(lattice_ops, name)(x, f, lattice)  # noqa: E731
    assert gradcheck(function, leaves)
    assert gradgradcheck(function, leaves)


def test_vmap_and_func(backend):
    graph = glocal.grid_graph((4, 5))
    x, filters = inputs("lattice_conv", graph.lattice, batch=3)
    run = lambda x: functional.graph_conv(x, graph, filters)  # noqa: E731
    torch.testing.assert_close(torch.vmap(run)(x), run(x))
    slope = torch.func.grad(lambda x, f: functional.graph_conv(x, graph, f).pow(3).sum(), (0, 1))
    plain = torch.func.grad(lambda x, f: reference.lattice_conv(x, f, graph.lattice).pow(3).sum(), (0, 1))
    for found, expected in zip(slope(x, filters), plain(x, filters), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, backend):
    lattice = Lattice((6, 7), (3, 3))
    x, filters = inputs("lattice_conv", lattice, dtype=torch.float32)
    x, filters = x.to(dtype), filters.to(dtype)
    found = lattice_ops.lattice_conv(x, filters, lattice)
    assert found.dtype == dtype
    expected = reference.lattice_conv(x.float(), filters.float(), lattice)
    torch.testing.assert_close(found.float(), expected, rtol=0.01, atol=0.01 * float(expected.abs().max()))


def test_autocast(backend):
    graph, filters = glocal.grid_graph((6, 7)), torch.randn(9, 3, 4)
    x = torch.randn(42, 3)
    with torch.autocast("cpu", torch.bfloat16):
        y = functional.graph_conv(x, graph, filters)
    assert y.dtype == torch.bfloat16
    expected = functional.graph_conv(x, graph, filters)
    torch.testing.assert_close(y.float(), expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))


def test_compiles_whole():
    graph, layer = glocal.grid_graph((6, 7), boundary="zero"), glocal.nn.GraphConv(3, 4, degree=9)
    x = torch.randn(42, 3, requires_grad=True)
    compiled = torch.compile(lambda x: torch.relu(layer(x, graph)).square().sum(), fullgraph=True, backend="aot_eager")
    value = compiled(x)
    torch.testing.assert_close(value, torch.relu(layer(x, graph)).square().sum())
    (found,) = torch.autograd.grad(value, x)
    (expected,) = torch.autograd.grad(torch.relu(layer(x, graph)).square().sum(), x)
    torch.testing.assert_close(found, expected)


def test_layers_leave_the_edges_of_a_grid_alone(backend):
    for boundary in BOUNDARIES:
        graph = glocal.block_diagonal([glocal.grid_graph((4, 5), boundary=boundary)] * 2)
        x = torch.randn(3, 40, 2, requires_grad=True)
        y = glocal.nn.SharedGraphConv(9)(glocal.nn.GraphConv(2, 4, degree=9)(x, graph), graph)
        y.sum().backward()
        assert not isinstance(graph.__dict__.get("neighbors"), torch.Tensor)
        assert not isinstance(graph.__dict__.get("weights"), torch.Tensor)


def test_copies_are_members_of_the_batch(backend):
    lattice = Lattice((4, 5), (3, 3), 1, "circular", copies=3)
    for name in NAMES:
        x, filters = inputs(name, lattice)
        found = getattr(lattice_ops, name)(x, filters, lattice)
        one = getattr(lattice_ops, name)(x.view(6, 20, 3), filters, replace(lattice, copies=1))
        assert torch.equal(found, one.view(found.shape))


def test_weights_of_its_own_take_the_way_of_any_graph():
    graph = glocal.grid_graph((4, 5))
    x, filters = torch.randn(20, 3), torch.randn(9, 3, 2)
    weights = torch.rand(20, 9, requires_grad=True)
    y = functional.graph_conv(x, graph.with_weights(weights), filters)
    expected = reference.graph_conv(x.unsqueeze(0), graph.neighbors, weights, filters).squeeze(0)
    torch.testing.assert_close(y, expected)
    assert torch.autograd.grad(y.sum(), weights)[0].shape == weights.shape


def test_operators_refuse_what_does_not_fit():
    op, rule = torch.ops.glocal.lattice_conv.default, ((4, 5), (3, 3), 1, "zero")
    with pytest.raises(ArgumentError, match=r"lattice_conv: x \(1, 19, 3\) .* must be \(b, n=20, c\)"):
        op(torch.zeros(1, 19, 3), torch.zeros(9, 3, 2), *rule)
    with pytest.raises(ArgumentError, match=r"start with \(9, 3\): degree, channels"):
        op(torch.zeros(1, 20, 3), torch.zeros(9, 4, 2), *rule)
    with pytest.raises(ArgumentError, match=r"have torch.float32 on cpu and torch.float64 on cpu"):
        op(torch.zeros(1, 20, 3), torch.zeros(9, 3, 2, dtype=torch.float64), *rule)
    with pytest.raises(ArgumentError, match=r"the gradient \(\(1, 20, 3\), torch.float32\) must be \(1, 20, 2\)"):
        torch.ops.glocal.lattice_conv_backward.default(
            torch.zeros(1, 20, 3), torch.zeros(1, 20, 3), torch.zeros(9, 3, 2), *rule, [True, True]
        )


def test_a_grid_is_a_pytree_without_leaves():
    graph = glocal.grid_graph((4, 5), boundary="zero")
    leaves, tree = torch.utils._pytree.tree_flatten(graph)
    assert leaves == []
    assert torch.utils._pytree.tree_unflatten([], tree).convolution == graph.lattice


def test_exports_with_the_grid_as_an_input():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = glocal.nn.GraphConv(3, 4, degree=9)

        def forward(self, x, graph):
            return self.layer(x, graph)

    net, x, graph = Net(), torch.randn(20, 3), glocal.grid_graph((4, 5))
    exported = torch.export.export(net, (x, graph)).module()
    torch.testing.assert_close(exported(x, graph), net(x, graph))
