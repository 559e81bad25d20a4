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


def test_block_diagonal_refuses_nothing():
    with pytest.raises(ArgumentError, match="`graphs` is empty"):
        glocal.block_diagonal([])


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
    with pytest.raises(ArgumentError, match="is square"):
        interop.from_scipy(sp.coo_array(np.ones((2, 3))))


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
