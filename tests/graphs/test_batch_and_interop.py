import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import glocal
from glocal.errors import ArgumentError, MissingDependencyError
from glocal.graphs import interop


def test_a_block_diagonal_graph_gives_what_each_graph_gives():
    graphs = [glocal.grid_graph((3, 4)), glocal.patch_graph(torch.rand(5, 5, 1), k=9), glocal.grid_graph((7,), size=3)]
    signals = [torch.randn(g.num_vertices, 2) for g in graphs]
    layer = glocal.nn.GraphConv(2, 3, degree=9)
    together = layer(torch.cat(signals), glocal.block_diagonal(graphs)).split([12, 25, 7])
    for y, x, g in zip(together[:2], signals[:2], graphs[:2]):
        torch.testing.assert_close(y, layer(x, g))
    narrow = glocal.nn.functional.graph_conv(signals[2], graphs[2], layer.filters[:3])
    torch.testing.assert_close(together[2], narrow + layer.bias)  # completed with weight 0


def test_smaller_degrees_are_completed_with_self_edges_of_weight_0():
    narrow, wide = glocal.Graph(torch.tensor([[1], [0]])), glocal.Graph(torch.tensor([[0, 0]]))
    together = glocal.block_diagonal([wide, narrow])
    assert together.neighbors.tolist() == [[0, 0], [2, 1], [1, 2]]
    assert together.weights.tolist() == [[1, 1], [1, 0], [1, 0]]


def test_block_diagonal_refuses_nothing():
    with pytest.raises(ArgumentError, match="`graphs` holds a int"):
        glocal.block_diagonal([3])
    with pytest.raises(ArgumentError, match="`graphs` is empty"):
        glocal.block_diagonal([])
    with pytest.raises(ArgumentError, match=r"`graphs` is a Graph. Give a list of graphs"):
        glocal.block_diagonal(glocal.grid_graph((2,)))
    assert glocal.block_diagonal(glocal.grid_graph((n,)) for n in (2, 3)).num_vertices == 5


@pytest.fixture
def graph():
    g = glocal.knn_graph(torch.rand(12, 2, generator=torch.Generator().manual_seed(0)), k=4)
    return g.with_weights(torch.rand(12, 4, generator=torch.Generator().manual_seed(1)) + 0.1)


def test_scipy_round_trip(graph):
    matrix = interop.to_scipy(graph)
    assert matrix.shape == (12, 12)
    assert matrix[3, int(graph.neighbors[3, 2])] == pytest.approx(float(graph.weights[3, 2]))
    back = interop.from_scipy(matrix)
    assert torch.equal(back.neighbors[:, 0], torch.arange(12, dtype=torch.int32))
    assert (np.diff(back.weights[:, 1:].numpy(), axis=1) <= 0).all()  # the others by falling weight
    np.testing.assert_allclose(interop.to_scipy(back).toarray(), matrix.toarray())


def test_irregular_matrices_are_completed():
    g = interop.from_scipy(sp.coo_array(np.array([[0, 2.0, 1], [0, 1, 0], [0, 0, 0]])))
    assert g.neighbors.tolist() == [[0, 1, 2], [1, 1, 1], [2, 2, 2]]
    assert g.weights.tolist() == [[0, 2, 1], [1, 0, 0], [0, 0, 0]]
    g = interop.from_scipy(sp.coo_array(np.array([[0, 2.0, 3], [0, 0, 0]])))  # a graph between two signals
    assert g.num_sources == 3
    assert g.neighbors.tolist() == [[2, 1], [0, 0]]
    assert g.weights.tolist() == [[3, 2], [0, 0]]


def test_networkx_and_pyg_keep_the_order(graph):
    for to, back in ((interop.to_networkx, interop.from_networkx), (interop.to_pyg, interop.from_pyg)):
        again = back(to(graph))
        assert torch.equal(again.neighbors, graph.neighbors)
        torch.testing.assert_close(again.weights, graph.weights)


def test_an_undirected_graph_counts_both_ways():
    g = interop.from_networkx(nx.path_graph(["a", "b", "c"]))
    assert g.neighbors.tolist() == [[0, 1, 0], [1, 0, 2], [2, 1, 2]]
    assert g.weights.tolist() == [[0, 1, 0], [0, 1, 1], [0, 1, 0]]


def test_pyg_message_passing_equals_the_layer(graph):
    from torch_geometric.nn import MessagePassing

    class Tapped(MessagePassing):
        def __init__(self, filters):
            super().__init__(aggr="sum")
            self.filters = filters

        def forward(self, x, data):
            return self.propagate(data.edge_index, x=x, w=data.edge_weight, tap=data.edge_column)

        def message(self, x_j, w, tap):
            return torch.einsum("ec,ecm->em", w.unsqueeze(1) * x_j, self.filters[tap])

    filters, x = torch.randn(4, 3, 5), torch.randn(12, 3)
    ours = glocal.nn.functional.graph_conv(x, graph, filters)
    torch.testing.assert_close(ours, Tapped(filters)(x, interop.to_pyg(graph)), rtol=1e-5, atol=1e-5)


def test_edges_out_of_range_or_uneven_are_refused():
    with pytest.raises(ArgumentError, match="2 sources, 1 targets and 1 weights"):
        interop.from_edges(torch.zeros(2), torch.zeros(1), torch.ones(1), num_vertices=3)
    with pytest.raises(ArgumentError, match="outside the vertices 0 to 2"):
        interop.from_edges(torch.tensor([0]), torch.tensor([3]), torch.ones(1), num_vertices=3)


def test_a_missing_library_is_named(monkeypatch, graph):
    import importlib

    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(
        MissingDependencyError, match=r"to_networkx: networkx is not installed. Run: pip install networkx"
    ):
        interop.to_networkx(graph)


@pytest.fixture
def between():
    make = torch.Generator().manual_seed(2)
    neighbors = torch.stack([torch.randperm(7, generator=make)[:3] for _ in range(5)])
    return glocal.Graph(neighbors, torch.rand(5, 3, generator=make) + 0.1, num_sources=7)


def test_batches_of_graphs_between_two_signals(between, graph):
    small = glocal.Graph(torch.tensor([[1], [0], [0], [1]]), num_sources=2)
    signals, layer = [torch.randn(g.num_sources, 2) for g in (between, graph, small)], glocal.nn.GraphConv(2, 3, 4)
    batch = glocal.block_diagonal([between, graph, small])
    assert (batch.num_vertices, batch.num_sources) == (5 + 12 + 4, 7 + 12 + 2)
    parts = layer(torch.cat(signals), batch).split([5, 12, 4])
    for x, g, part in zip(signals, (between, graph, small), parts):
        alone = layer.filters[: g.degree]
        torch.testing.assert_close(part, glocal.nn.functional.graph_conv(x, g, alone) + layer.bias)


def test_graphs_between_two_signals_go_to_other_libraries_and_back(between):
    for there, back in (("to_networkx", "from_networkx"), ("to_pyg", "from_pyg")):
        again = getattr(interop, back)(getattr(interop, there)(between))
        assert again.num_sources == 7
        assert torch.equal(again.neighbors, between.neighbors)
        torch.testing.assert_close(again.weights, between.weights)
    matrix = interop.to_scipy(between)
    assert matrix.shape == (5, 7)
    again, x = interop.from_scipy(matrix), torch.randn(7, 2)
    ours, theirs = (glocal.nn.functional.shared_conv(x, g, torch.ones(3)) for g in (again, between))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, torch.from_numpy(matrix @ x.numpy()))
    assert (again.weights[:, :-1] >= again.weights[:, 1:]).all()
    with pytest.raises(ArgumentError, match=r"outside the vertices 0 to 6. Check `num_sources`"):
        interop.from_edges(torch.tensor([0]), torch.tensor([7]), torch.ones(1), num_vertices=3, num_sources=7)


def test_pyg_message_passing_takes_the_size_of_a_graph_between_two_signals(between):
    from torch_geometric.nn import SimpleConv

    data, x = interop.to_pyg(between), torch.randn(7, 2)
    theirs = SimpleConv(aggr="sum")((x, None), data.edge_index, data.edge_weight, size=data.bipartite)
    torch.testing.assert_close(glocal.nn.functional.shared_conv(x, between, torch.ones(3)), theirs)
