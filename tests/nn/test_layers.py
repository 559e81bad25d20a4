import numpy as np
import pytest
import torch

import glocal
from glocal.errors import ArgumentError, DeviceError
from glocal.nn import BiasedReLU, GraphConv, GraphSequential, SharedGraphConv, SoftThreshold, functional, init

G = glocal.grid_graph((4, 4), size=3)


@pytest.mark.parametrize(
    ("layer", "x", "graph", "error", "text"),
    [
        (GraphConv(3, 5, 25), torch.ones(16, 3), G, ArgumentError, "GraphConv: the layer has degree 25, the graph 9"),
        (
            GraphConv(2, 5, 9),
            torch.ones(16, 3),
            G,
            ArgumentError,
            r"takes 2 channels, the signal \(shape \(16, 3\)\) has 3",
        ),
        (GraphConv(3, 5, 9), torch.ones(15, 3), G, ArgumentError, r"must be \(n, c\) or \(batch, n, c\) with n=16"),
        (
            GraphConv(3, 5, 9),
            torch.ones(16, 3, dtype=torch.int64),
            G,
            ArgumentError,
            "bfloat16 or float16 tensor, got torch.int64",
        ),
        (
            GraphConv(3, 5, 9),
            torch.ones(16, 3).double(),
            G,
            ArgumentError,
            "is torch.float64, the filters are torch.float32",
        ),
        (GraphConv(3, 5, 9), torch.ones(16, 3, device="meta"), G, DeviceError, "is on meta, the graph on cpu"),
        (GraphConv(3, 5, 9), torch.ones(16, 3), "grid", ArgumentError, "`graph` is a str, not a Graph"),
        (
            SharedGraphConv(5),
            torch.ones(16, 3),
            G,
            ArgumentError,
            "SharedGraphConv: the layer has degree 5, the graph 9",
        ),
    ],
)
def test_refuses(layer, x, graph, error, text):
    with pytest.raises(error, match=text):
        layer(x, graph)


def test_refuses_wrong_sizes():
    with pytest.raises(ArgumentError, match=r"GraphConv: in_channels \(=0\)"):
        GraphConv(0, 1, 1)
    with pytest.raises(ArgumentError, match=r"degree \(=2.5\) must be positive whole numbers"):
        GraphConv(3, 3, degree=2.5)
    with pytest.raises(ArgumentError, match="`graph` is a Tensor, not a Graph"):
        GraphConv(3, 3, degree=9)(glocal.grid_graph((4, 4)), torch.ones(16, 3))
    with pytest.raises(ArgumentError, match=r"SharedGraphConv: degree \(=0\)"):
        SharedGraphConv(0)
    with pytest.raises(ArgumentError, match=r"graph_conv: `filters` \(shape \(9, 2, 5\)\) must be \(d=9, c=3, m\)"):
        functional.graph_conv(torch.ones(16, 3), G, torch.ones(9, 2, 5))
    with pytest.raises(ArgumentError, match=r"shared_conv: `taps` \(shape \(4,\)\) must be \(d=9,\)"):
        functional.shared_conv(torch.ones(16, 3), G, torch.ones(4))
    with pytest.raises(ArgumentError, match="gram: x"):
        functional.gram(torch.ones(16, 3), G, torch.ones(9, 3, 5), torch.ones(4))
    with pytest.raises(ArgumentError, match=r"gram: `vertex_weights` \(3,\) must be \(n=16,\) or \(r, n\). Give"):
        functional.gram(torch.ones(16, 3), G, torch.ones(9, 3, 5), torch.ones(5), torch.ones(3))


def test_initialisations_are_seeded_and_what_the_paper_says():
    def layer(seed):
        return init.standard_normal(GraphConv(3, 400, 25), torch.Generator().manual_seed(seed))

    assert torch.equal(layer(1).filters, layer(1).filters)
    assert not torch.equal(layer(1).filters, layer(2).filters)
    assert layer(0).filters.std().item() == pytest.approx(1, abs=0.02)
    assert layer(0).bias.std().item() == pytest.approx(1, abs=0.15)
    quiet = init.mean_and_noise(GraphConv(1, 18, 9), torch.Generator().manual_seed(0))
    assert quiet.filters[:, 0, 0].tolist() == pytest.approx([1 / 9] * 9)
    assert quiet.filters[:, 0, 1:].std().item() == pytest.approx(0.01, rel=0.2)
    assert quiet.bias.abs().max().item() == 0
    full = init.mean_and_noise(GraphConv(4, 4, 5), torch.Generator().manual_seed(0), each_map=True)
    assert full.filters.diagonal(dim1=1, dim2=2).flatten().tolist() == pytest.approx([0.2] * 20)
    assert full.filters[:, 0, 1:].abs().max().item() < 0.05
    assert init.mean_and_noise(GraphConv(4, 1, 5), torch.Generator(), each_map=True).filters[0, 0, 0] == 0.2


def test_sequential_uses_the_graph_each_layer_names():
    g1, g2 = G, glocal.knn_graph(torch.rand(16, 2), k=9)
    first, second = GraphConv(1, 4, 9), GraphConv(4, 1, 9)
    net = GraphSequential((first, "local"), SoftThreshold(4), (second, "nonlocal"))
    x = torch.randn(16, 1)
    torch.testing.assert_close(net(x, {"local": g1, "nonlocal": g2}), second(net.layers[1](first(x, g1)), g2))
    with pytest.raises(ArgumentError, match=r"uses the graph 'nonlocal', but `graphs` has \['local'\]"):
        net(x, {"local": g1})
    with torch.no_grad():
        net.layers[1].upper.fill_(-1)
    net.project()
    assert net.layers[1].upper.max().item() == 0
    assert "graphs=local, -, nonlocal" in repr(net)


def test_layers_say_what_they_are():
    assert repr(GraphConv(3, 50, 25)) == "GraphConv(3, 50, degree=25, bias=True)"
    assert repr(SharedGraphConv(9)) == "SharedGraphConv(degree=9)"
    assert repr(BiasedReLU(7)) == "BiasedReLU(7)"
    assert repr(SoftThreshold(7)) == "SoftThreshold(7)"
    assert repr(glocal.weights.NLMeans(r=49, alpha=2.5, beta=0)) == "NLMeans(r=49, alpha=2.5, beta=0)"


LAYERS = [
    lambda **kwargs: GraphConv(3, 5, 9, **kwargs),
    lambda **kwargs: SharedGraphConv(9, **kwargs),
    lambda **kwargs: BiasedReLU(3, **kwargs),
    lambda **kwargs: SoftThreshold(3, **kwargs),
    lambda **kwargs: glocal.weights.NLMeans(r=3, alpha=1.5, beta=0.1, **kwargs),
]


@pytest.mark.parametrize("make", LAYERS, ids=lambda make: type(make()).__name__)
def test_layers_are_made_like_those_of_torch(make):
    for parameter in make(dtype=torch.float64, device="meta").parameters():
        assert parameter.dtype == torch.float64
        assert parameter.device.type == "meta"
    torch.manual_seed(0)
    first = make()
    expected = {name: value.clone() for name, value in first.state_dict().items()}
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1)
    torch.manual_seed(0)
    first.reset_parameters()
    for name, value in first.state_dict().items():
        assert torch.equal(value, expected[name])
    later = make(device="meta").to_empty(device="cpu")  # how large models are made
    later.reset_parameters()
    later.load_state_dict(expected)


def test_layers_name_their_sizes():
    layer = GraphConv(3, 5, 9)
    assert (layer.in_channels, layer.out_channels, layer.degree) == (3, 5, 9)
    assert SharedGraphConv(9).degree == 9
    assert BiasedReLU(4).channels == SoftThreshold(4).channels == 4


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bool])
def test_other_numbers_are_refused(dtype):
    x = torch.ones(4, 2).to(dtype)
    with pytest.raises(ArgumentError, match="must be a float32, float64, bfloat16 or float16 tensor"):
        functional.graph_conv(x, glocal.grid_graph((4,)), torch.ones(3, 2, 1))


@pytest.mark.parametrize(("x", "filters"), [((0, 0, 2), (3, 2, 1)), ((4, 0), (3, 0, 1)), ((4, 2), (3, 2, 0))])
def test_empty_tensors_are_refused(x, filters):
    with pytest.raises(ArgumentError, match="are empty"):
        functional.graph_conv(torch.ones(x), glocal.grid_graph((4,)), torch.ones(filters))


@pytest.mark.parametrize("graph", [G, glocal.Graph(G.neighbors, torch.rand(16, 9).requires_grad_())])
def test_an_empty_batch_gives_an_empty_result_and_gradients_of_0(graph):
    x, layer, shared = torch.ones(0, 16, 3, requires_grad=True), GraphConv(3, 5, 9), SharedGraphConv(9)
    y, z, p = layer(x, graph), shared(x, graph), functional.extract(x, graph)
    assert (y.shape, z.shape, p.shape) == ((0, 16, 5), (0, 16, 3), (0, 16, 9, 3))
    (y.sum() + z.sum() + p.sum()).backward()
    given = [*layer.parameters(), *shared.parameters(), *(() if graph is G else (graph.weights,))]
    assert x.grad.shape == x.shape
    assert all(not one.grad.any() for one in given)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x, graph).dtype == layer(torch.ones(1, 16, 3), graph).dtype == torch.bfloat16


def test_arrays_are_no_filters():
    x, filters, bias = torch.ones(16, 3), torch.ones(9, 3, 5), torch.zeros(5)
    for call, name in [
        (lambda: functional.graph_conv(x, G, filters.numpy()), "graph_conv: the filters"),
        (lambda: functional.graph_conv(x, G, filters, bias.numpy()), "graph_conv: `bias`"),
        (lambda: functional.shared_conv(x, G, np.ones(9)), "shared_conv: the filters"),
        (lambda: functional.gram(x, G, filters, bias.numpy()), "gram: `bias`"),
        (lambda: functional.gram(x, G, filters, bias, np.ones(16)), "gram: `vertex_weights`"),
    ]:
        with pytest.raises(ArgumentError, match=f"{name} must be a tensor, got ndarray. Convert with torch.as_tensor"):
            call()


def test_a_number_is_no_signal():
    with pytest.raises(ArgumentError, match=r"the signal \(shape \(\)\) must be \(n, c\) or \(batch, n, c\)"):
        GraphConv(3, 5, degree=9)(torch.tensor(1.0), G)
