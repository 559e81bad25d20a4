"""The operators: what torch asks of one, gradients of gradients, torch.func, autocast, compile."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import glocal
from glocal.errors import ArgumentError, DerivativeError
from glocal.kernels import gram_ops, known, ops, reference
from glocal.nn import functional

BACKENDS = ("cpu", "reference")
CONVS = ("graph_conv", "shared_conv", "extract")


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", request.param)
    return request.param


def inputs(name, *, n=6, sources=8, batch=2, weighted=True, dtype=torch.float64, grad=True):
    make = torch.Generator().manual_seed(0)
    d, c, m = 3, 2, 4
    neighbors = torch.randint(0, sources, (n, d), dtype=torch.int32, generator=make)
    shapes = {"graph_conv": [(d, c, m)], "shared_conv": [(d,)]}.get(name, [])
    x = torch.randn(batch, sources, c, dtype=torch.float64, generator=make).to(dtype)
    weights = torch.rand(n, d, dtype=torch.float64, generator=make).to(dtype) if weighted else None
    filters = [torch.randn(shape, dtype=torch.float64, generator=make).to(dtype) for shape in shapes]
    args = [x, neighbors, weights, *filters]
    return [a.requires_grad_() if grad and a is not None and a.is_floating_point() else a for a in args]


def op(name):
    return getattr(torch.ops.glocal, name).default


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", CONVS)
def test_opcheck(name, weighted, backend):
    args = inputs(name, weighted=weighted, dtype=torch.float32)
    torch.library.opcheck(op(name), args)
    g = torch.randn(op(name)(*args).shape, requires_grad=True)
    mask = [True, weighted, True][: len(args) - 1]
    torch.library.opcheck(op(f"{name}_backward"), (g, *args, mask))
    torch.library.opcheck(op(f"{name}_backward"), (g, *args, [True, False, False][: len(args) - 1]))


def test_opcheck_of_gram_and_variation(backend):
    x, neighbors, weights, filters = inputs("graph_conv", grad=False, dtype=torch.float32)
    point, bias = x[0].requires_grad_(), torch.randn(4)
    torch.library.opcheck(gram_ops.gram, (point, neighbors, weights, filters, bias))
    total, maps = gram_ops.gram(point.detach(), neighbors, weights, filters, bias)
    torch.library.opcheck(gram_ops.gram_backward, (total, maps, point.detach(), neighbors, weights, filters))
    shares = torch.rand(2, len(neighbors), dtype=point.dtype)
    torch.library.opcheck(gram_ops.gram, (point, neighbors, weights, filters, bias, shares))
    torch.library.opcheck(gram_ops.variation, (torch.randn(4, 5, 2, requires_grad=True),))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", CONVS)
def test_first_and_second_derivatives(name, weighted, backend):
    args = inputs(name, weighted=weighted)
    leaves = [a for a in args if a is not None and a.is_floating_point()]

    def function(*given):
        given = list(given)
        return op(name)(*(given.pop(0) if a is not None and a.is_floating_point() else a for a in args))

    assert gradcheck(function, leaves)
    assert gradgradcheck(function, leaves)


def test_a_direct_call_equals_the_operator(backend):
    x, neighbors, weights, filters = inputs("graph_conv", dtype=torch.float32)
    args = x, neighbors, weights, filters
    found = [
        torch.autograd.grad(f(*args).sin().sum(), (x, weights, filters)) for f in (ops.graph_conv, op("graph_conv"))
    ]
    assert all(torch.equal(a, b) for a, b in zip(*found))
    with torch.profiler.profile() as watched:
        ops.graph_conv(*args)
    assert "glocal::graph_conv" in {event.key for event in watched.key_averages()}
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.graph_conv(*args).dtype == torch.bfloat16


@pytest.mark.parametrize("single", [False, True])
def test_a_result_can_be_written_to_while_torch_watches(single, backend):
    x, neighbors, weights, filters = inputs("graph_conv", batch=1, dtype=torch.float32)
    x = x[0] if single else x
    with torch.profiler.profile():
        y = ops.graph_conv(x, neighbors, weights, filters)
        before = y.detach().clone()
        y.mul_(2)
    assert torch.equal(y, 2 * before)


def test_a_signal_with_four_axes_is_refused():
    x, neighbors, weights, filters = inputs("graph_conv", batch=1, dtype=torch.float32)
    with pytest.raises(ArgumentError, match=r"must be \(b, m, c\) and \(n, d\) int32"):
        ops.graph_conv(x[None], neighbors, weights, filters)


@pytest.mark.parametrize("name", ["graph_conv", "shared_conv", "extract"])
def test_operators_themselves_take_batches_only(name):
    x, *rest = inputs(name, grad=False)
    with pytest.raises(ArgumentError, match=rf"{name}: x .* must be \(b, m, c\)"):
        getattr(torch.ops.glocal, name)(x[0], *rest)


@pytest.mark.parametrize("grid", [False, True])
def test_a_bias_is_added_with_its_derivatives(grid, backend):
    x, neighbors, weights, filters = inputs("graph_conv", n=8)
    graph = glocal.grid_graph((8,), size=3) if grid else glocal.Graph(neighbors, weights.detach())
    bias = torch.linspace(-1, 1, 4, dtype=x.dtype, requires_grad=True)

    def layer(x, filters, bias):
        return functional.graph_conv(x, graph, filters, bias)

    plain = functional.graph_conv(x, graph, filters)
    torch.testing.assert_close(layer(x, filters, bias), plain + bias)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, filters, bias), plain + bias)
    assert gradcheck(layer, (x, filters, bias))
    assert gradgradcheck(layer, (x, filters, bias))
    vmapped = torch.func.vmap(layer, (None, None, 0))(x, filters, torch.stack([bias, 2 * bias]))
    torch.testing.assert_close(vmapped[1], plain + 2 * bias)
    wrong = "`bias` .* must be .m=4,., torch.float64 on cpu. Give one number for each map"
    with pytest.raises(ArgumentError, match=wrong):
        layer(x, filters, bias[:3])


def test_third_derivatives(backend):
    x, neighbors, weights, filters = inputs("graph_conv", batch=1)

    def third(conv):
        y = conv(x, neighbors, weights, filters).pow(3).sum()
        for leaf in (weights, x, filters):
            (y,) = torch.autograd.grad(y, leaf, create_graph=True)
            y = y.pow(2).sum()
        return y

    torch.testing.assert_close(third(ops.graph_conv), third(reference.graph_conv))


def test_gram_has_a_gradient_and_says_that_it_has_no_second(backend):
    x, neighbors, weights, filters = inputs("graph_conv", grad=False)
    graph, bias = glocal.Graph(neighbors, weights, num_sources=8), torch.randn(4, dtype=x.dtype)
    assert gradcheck(lambda x: functional.gram(x, graph, filters, bias), x[0].requires_grad_())
    leaves = [t.requires_grad_() for t in (x[1].detach(), filters, bias)]
    assert gradcheck(lambda x, f, b: functional.gram(x, graph, f, b), leaves)
    point = x[0].detach().requires_grad_()
    total = functional.gram(point, graph, filters.detach(), bias.detach())
    (g,) = torch.autograd.grad(total.square().sum(), point, create_graph=True)
    with pytest.raises(DerivativeError, match="gram: its gradient cannot be differentiated again"):
        g.sum().backward()
    with pytest.raises(DerivativeError, match="glocal::gram: only x has a gradient"):
        gram_ops.gram(point, neighbors, weights, filters, bias)[0].sum().backward()


@pytest.mark.parametrize("name", CONVS)
def test_torch_func(name, backend):
    x, neighbors, weights, *filters = inputs(name, grad=False)
    loss = lambda x, w, *f: op(name)(x, neighbors, w, *f).pow(3).sum()  # noqa: E731
    plain = lambda x, w, *f: getattr(reference, name)(x, neighbors, w, *f).pow(3).sum()  # noqa: E731
    places = tuple(range(2 + len(filters)))
    for ours, theirs in zip(*(torch.func.grad(f, places)(x, weights, *filters) for f in (loss, plain))):
        torch.testing.assert_close(ours, theirs)
    twice = [
        torch.func.grad(lambda x, f=f: torch.func.grad(f)(x, weights, *filters).pow(2).sum())(x) for f in (loss, plain)
    ]
    torch.testing.assert_close(*twice)


@pytest.mark.parametrize("name", CONVS)
def test_forward_mode(name, backend):
    x, neighbors, weights, *filters = inputs(name, grad=False)
    point = (x, weights, *filters)
    tangents = tuple(torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(1)) for t in point)
    ours, plain = getattr(ops, name), getattr(reference, name)
    run = [lambda x, w, *f, conv=conv: conv(x, neighbors, w, *f).pow(3) for conv in (ours, plain)]
    found, wanted = (torch.func.jvp(f, point, tangents) for f in run)
    torch.testing.assert_close(found, wanted)
    with forward_ad.dual_level():
        y = run[0](*(forward_ad.make_dual(t, slope) for t, slope in zip(point, tangents)))
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, wanted[1])
    # Forward over reverse: the product of the Hessian and a vector.
    slopes = [torch.func.grad(lambda *a, f=f: f(*a).sum(), tuple(range(len(point)))) for f in run]
    found, wanted = (torch.func.jvp(slope, point, tangents) for slope in slopes)
    torch.testing.assert_close(found, wanted)


def test_gram_and_variation_have_no_forward_mode(backend):
    x, neighbors, weights, filters = inputs("graph_conv", grad=False)
    bias = torch.zeros(4, dtype=x.dtype)
    with pytest.raises(DerivativeError, match=r"gram: it has no derivative in forward mode\. Use torch\.func\.grad"):
        torch.func.jvp(lambda x: gram_ops.gram(x, neighbors, weights, filters, bias)[0], (x[0],), (x[1],))
    with pytest.raises(DerivativeError, match="total_variation: it has no derivative in forward mode"):
        torch.func.jvp(functional.total_variation, (x,), (x,))


@pytest.mark.parametrize("name", CONVS)
def test_vmap(name, backend):
    x, neighbors, weights, *filters = inputs(name, grad=False)
    signals = torch.stack([x, x + 1, 2 * x], 1)
    run = lambda x, w=weights, *f: op(name)(x, neighbors, w, *(f or filters))  # noqa: E731
    expected = torch.stack([run(s) for s in signals.unbind(1)])
    torch.testing.assert_close(torch.vmap(run, in_dims=1)(signals), expected)
    many = torch.stack([weights, 2 * weights, 3 * weights])
    expected = torch.stack([run(s, w) for s, w in zip(signals.unbind(1), many)])
    torch.testing.assert_close(torch.vmap(run, in_dims=(1, 0))(signals, many), expected)
    # The gradient of each signal, and of the parameters for each signal alone.
    slope = torch.func.grad(lambda x, *f: run(x, weights, *f).pow(2).sum(), argnums=tuple(range(1 + len(filters))))
    found = torch.vmap(slope, in_dims=(1, *(None for _ in filters)))(signals, *filters)
    expected = [slope(s, *filters) for s in signals.unbind(1)]
    for ours, theirs in zip(found, zip(*expected)):
        torch.testing.assert_close(ours, torch.stack(theirs))
    only_x = torch.func.grad(lambda x: run(x).pow(2).sum())
    torch.testing.assert_close(torch.vmap(only_x)(signals.transpose(0, 1)), found[0])


def test_vmap_of_gram_and_variation(backend):
    x, neighbors, weights, filters = inputs("graph_conv", grad=False)
    bias = torch.randn(4, dtype=x.dtype)
    run = lambda x: gram_ops.gram(x, neighbors, weights, filters, bias)[0]  # noqa: E731
    torch.testing.assert_close(torch.vmap(run)(x), torch.stack([run(s) for s in x]))
    slope = torch.func.grad(lambda x: run(x).sum())
    torch.testing.assert_close(torch.vmap(slope)(x), torch.stack([slope(s) for s in x]))
    images = torch.randn(3, 4, 5, 1)
    found = torch.vmap(torch.func.grad(functional.total_variation))(images)
    torch.testing.assert_close(found, torch.stack([functional.variation_slope(i)[1] for i in images]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CONVS)
def test_half_precision_is_summed_in_float32(name, dtype, backend):
    args = inputs(name, dtype=dtype)
    wide = [a.detach().float().requires_grad_() if a is not None and a.is_floating_point() else a for a in args]
    y, expected = op(name)(*args), op(name)(*wide)
    assert torch.equal(y, expected.to(dtype))
    g = torch.randn(y.shape).to(dtype)
    leaves = [[a for a in given if a.is_floating_point()] for given in (args, wide)]
    found, right = torch.autograd.grad(y, leaves[0], g), torch.autograd.grad(expected, leaves[1], g.float())
    for ours, theirs in zip(found, right):
        assert torch.equal(ours, theirs.to(dtype))


def test_autocast(backend):
    graph = glocal.patch_graph(torch.rand(5, 6, 1, generator=torch.Generator().manual_seed(0)), k=4)
    graph = graph.with_weights(torch.rand(30, 4))
    torch.manual_seed(0)
    first, layer, shared = torch.nn.Linear(3, 5), glocal.nn.GraphConv(5, 7, degree=4), glocal.nn.SharedGraphConv(4)
    x = torch.randn(30, 3)
    with torch.autocast("cpu", torch.bfloat16):
        y = shared(layer(first(x), graph), graph)
        patches = functional.extract(x, graph)
        total = functional.gram(x, graph, torch.randn(4, 3, 2), torch.zeros(2))
    assert y.dtype == patches.dtype == torch.bfloat16
    assert total.dtype == torch.float32
    y.float().sum().backward()
    assert layer.filters.grad.dtype == torch.float32
    wide = shared(layer(first(x), graph), graph)
    torch.testing.assert_close(y.float(), wide, rtol=0.05, atol=0.05)
    with torch.autocast("cpu", torch.bfloat16):  # float64 stays what it is
        assert functional.graph_conv(x.double(), graph, torch.ones(4, 3, 2).double()).dtype == torch.float64


def test_the_reversed_graph_is_built_when_a_gradient_needs_it(monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", "cpu")
    asked = []
    whole = known.reverse
    monkeypatch.setattr("glocal.kernels.cpu.launch.reversed_graph", lambda *a: asked.append(1) or whole(*a))
    x, neighbors, weights, taps = inputs("shared_conv")
    with torch.no_grad():
        ops.shared_conv(x, neighbors, weights, taps)
    y = ops.shared_conv(x, neighbors, weights, taps)
    assert not asked
    y.sum().backward()
    assert asked == [1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {1: torch.zeros(6, 3, dtype=torch.int64)},
            r"graph_conv: x .* must be \(b, m, c\) and \(n, d\) int32",
        ),
        (
            {2: torch.ones(6, 2, dtype=torch.float64)},
            r"graph_conv: `weights` \(shape \(6, 2\)\) must have the shape of",
        ),
        ({3: torch.ones(3, 2, 4)}, "graph_conv: the tensors have torch.float64 on cpu and torch.float32 on cpu"),
        (
            {3: torch.ones(3, 5, 4, dtype=torch.float64)},
            r"graph_conv: the filters \(shape \(3, 5, 4\)\) must start with",
        ),
        ({0: torch.ones(1, 2, 2, dtype=torch.float64)}, "Graph: `neighbors` holds the index"),
    ],
)
def test_an_operator_refuses_what_it_cannot_read(change, text, backend):
    args = inputs("graph_conv", grad=False)
    for place, value in change.items():
        args[place] = value
    with pytest.raises(ArgumentError, match=text):
        ops.graph_conv(*args)


def test_a_gradient_of_another_shape_is_refused(backend):
    args = inputs("graph_conv", grad=False)
    with pytest.raises(ArgumentError, match=r"graph_conv: the gradient \(shape \(2, 6, 5\)\) must be \(2, 6, 4\)"):
        op("graph_conv_backward")(torch.ones(2, 6, 5, dtype=torch.float64), *args, [True, True, True])


def test_maps_of_another_size_are_refused(backend):
    x, neighbors, weights, filters = inputs("graph_conv", grad=False)
    total, maps = gram_ops.gram(x[0], neighbors, weights, filters, torch.zeros(4, dtype=x.dtype))
    for g, f in ((total, maps[:-1]), (total[:-1], maps)):
        with pytest.raises(ArgumentError, match=r"gram: the gradient .* and the maps .* must be \(4, 4\) and"):
            gram_ops.gram_backward(g, f, x[0], neighbors, weights, filters)
    with pytest.raises(
        ArgumentError, match=r"gram: `shares` \(\(2, 5\), torch.float64\) must be \(r, n=6\), torch.float64"
    ):
        gram_ops.gram(x[0], neighbors, weights, filters, torch.zeros(4, dtype=x.dtype), torch.ones(2, 5, dtype=x.dtype))


@pytest.mark.parametrize("name", CONVS)
def test_a_single_signal_is_a_batch_of_one(name, backend):
    x, *rest = inputs(name, batch=1)
    single = x.detach()[0].requires_grad_()
    tensors = [t for t in rest if t is not None and t.is_floating_point()]
    y, wanted = getattr(ops, name)(single, *rest), getattr(ops, name)(x, *rest)
    g = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(y, (single, *tensors), g)
    expected = torch.autograd.grad(wanted, (x, *tensors), g.unsqueeze(0))
    assert torch.equal(y, wanted[0])
    assert torch.equal(found[0], expected[0][0])
    assert all(torch.equal(a, b) for a, b in zip(found[1:], expected[1:], strict=True))
    with torch.no_grad():
        assert torch.equal(getattr(ops, name)(single, *rest), y)
    assert gradgradcheck(lambda x, *some: getattr(ops, name)(x, rest[0], *some), (single, *tensors))


@pytest.mark.parametrize("name", CONVS)
def test_the_result_for_a_single_signal_can_be_written_to(name, backend):
    x, *rest = inputs(name, batch=1)
    single = x.detach()[0].requires_grad_()
    gradients = []
    for change in (lambda y: y * 2, lambda y: y.mul_(2)):
        gradients.append(torch.autograd.grad(change(getattr(ops, name)(single, *rest)).sum(), single)[0])
    assert torch.equal(*gradients)
