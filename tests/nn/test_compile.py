"""torch.compile, torch.export and torch.func on networks that mix torch's layers with ours."""

import io

import pytest
import torch
from torch import Tensor, nn

import glocal
from glocal.errors import ArgumentError


class Network(nn.Module):
    """Linear, norms and graph layers. The weights of the edges are learned too."""

    def __init__(self, degree: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 8), nn.LayerNorm(8)
        self.conv, self.batch_norm = glocal.nn.GraphConv(8, 6, degree), nn.BatchNorm1d(6)
        self.shared, self.last = glocal.nn.SharedGraphConv(degree), glocal.nn.GraphConv(6, 2, degree)
        self.rule = glocal.weights.NLMeans(r=3, alpha=1.0, beta=0.0)

    def forward(self, x: Tensor, graph: glocal.Graph) -> Tensor:
        h = torch.relu(self.norm(self.first(x)))
        h = self.batch_norm(self.conv(h, graph))
        if graph.distances is not None:
            graph = glocal.weights.weighted(graph, self.rule)
        return self.last(torch.relu(self.shared(h, graph)), graph)


def graphs():
    make = torch.Generator().manual_seed(0)
    patches = glocal.patch_graph(torch.rand(5, 6, 1, generator=make), k=4)
    return {
        "learned weights": patches,
        "plain": glocal.Graph(patches.neighbors),
        "grid": glocal.grid_graph((5, 6)),
        "zero grid": glocal.grid_graph((5, 6), boundary="zero"),
        "weighted grid": glocal.grid_graph((5, 6)).with_weights(torch.rand(30, 9, generator=make)),
    }


def outcome(function, network, graph):
    network.zero_grad()
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = function(x, graph)
    y.square().sum().backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"y": y.detach(), "x": x.grad} | {name: g.clone() for name, g in gradients.items()}


def equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-4, msg=name)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("name", graphs())
def test_compiled_networks_give_the_same_values_and_gradients(name):
    graph = graphs()[name]
    network = Network(graph.degree)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    equal(outcome(compiled, network, graph), outcome(network, network, graph))


def test_compiled_by_inductor():
    graph = graphs()["plain"]
    network = Network(graph.degree)
    equal(outcome(torch.compile(network, fullgraph=True), network, graph), outcome(network, network, graph))


def test_compiled_code_takes_other_graphs_and_finds_the_reversed_graph_once(monkeypatch):
    from glocal.kernels import select

    built, whole = [], select.pick

    def pick(operation, device):
        if operation == "reverse":
            built.append(1)
        return whole(operation, device)

    monkeypatch.setattr(select, "pick", pick)
    layer = glocal.nn.SharedGraphConv(4)
    step = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for n in (30, 31, 32):
        graph = glocal.Graph(torch.randint(n, (n, 4)))
        for _ in range(3):
            x = torch.randn(n, 2, requires_grad=True)
            y = step(x, graph)
            torch.testing.assert_close(y, layer(x, graph))
            y.sum().backward()
    assert len(built) == 3


def test_errors_of_shape_are_found_while_compiling():
    graph = graphs()["plain"]
    step = torch.compile(glocal.nn.GraphConv(3, 2, degree=9), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="the layer has degree 9, the graph 4") as caught:
        step(torch.rand(30, 3), graph)
    assert isinstance(caught.value, (ArgumentError, torch._dynamo.exc.TorchDynamoException))


def test_an_index_out_of_range_is_an_error_in_compiled_code_too():
    neighbors = torch.zeros(30, 4, dtype=torch.int32)
    graph, layer = glocal.Graph(neighbors), glocal.nn.GraphConv(3, 2, degree=4)
    step = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.rand(30, 3)
    torch.testing.assert_close(step(x, graph), layer(x, graph))
    neighbors[0, 0] = 30
    with pytest.raises(ArgumentError, match="holds the index 30"):
        step(x, graph)


@pytest.mark.parametrize("name", graphs())
def test_exported_programs_take_the_graph_as_an_input(name):
    graph, x = graphs()[name], torch.randn(30, 3)
    network = Network(graph.degree).eval()
    program = torch.export.export(network, (x, graph))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    other = torch.randn(30, 3)
    for signal in (x, other):
        torch.testing.assert_close(program.module()(signal, graph), network(signal, graph))
        torch.testing.assert_close(again(signal, graph), network(signal, graph))
    if graph.lattice is None:  # the neighbours are data, not constants
        turned = torch.utils._pytree.tree_map(lambda t: t.flip(0), graph)
        torch.testing.assert_close(again(x, turned), network(x, turned))


def test_functional_calls_and_gradients_for_each_sample():
    graph = graphs()["plain"]
    layer = glocal.nn.GraphConv(3, 2, degree=4)
    parameters, signals = dict(layer.named_parameters()), torch.randn(5, 30, 3)

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x, graph)).square().sum()

    found = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, signals)
    for k, x in enumerate(signals):
        layer.zero_grad()
        loss(dict(layer.named_parameters()), x).backward()
        torch.testing.assert_close(found["filters"][k], layer.filters.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found["bias"][k], layer.bias.grad, rtol=1e-4, atol=1e-4)


class WindowNetwork(nn.Module):
    """A layer on the window graph of its own features."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.block = nn.Linear(3, 4), glocal.nn.GraphResidualBlock(3, degree=5, width=4)

    def forward(self, x: Tensor) -> Tensor:
        window = glocal.window_graph(self.features(x.permute(0, 2, 3, 1)), radius=2, k=5, exclude=0)
        return self.block(x, *window)


def test_window_graphs_are_compiled_and_exported():
    network, x = WindowNetwork(), torch.rand(2, 3, 6, 5)
    found = []
    for function in (network, torch.compile(network, fullgraph=True, backend="aot_eager")):
        network.zero_grad()
        y = function(x)
        y.square().sum().backward()
        found.append([y.detach(), *(p.grad.clone() for p in network.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    program = torch.export.export(network, (x,)).module()
    torch.testing.assert_close(program(2 * x), network(2 * x), rtol=1e-4, atol=1e-5)
    features = torch.rand(1, 4, 5, 3)
    torch.library.opcheck(torch.ops.glocal.window_neighbors.default, (features, 3, 2, -1))
