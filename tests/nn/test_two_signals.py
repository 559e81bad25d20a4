"""Layers on graphs that join one signal to another."""

import pytest
import torch
from torch.autograd import gradcheck

import glocal
from glocal.errors import ArgumentError
from glocal.nn import functional
from glocal.testing import assert_adjoint, assert_commutes_with_relabelling, assert_linear

N, SOURCES, DEGREE = 6, 11, 4


@pytest.fixture
def graph():
    make = torch.Generator().manual_seed(0)
    neighbors = torch.randint(SOURCES, (N, DEGREE), generator=make)
    weights = torch.rand(N, DEGREE, dtype=torch.float64, generator=make)
    return glocal.Graph(neighbors, weights, num_sources=SOURCES)


def signal(*batch, channels=3):
    return torch.randn(*batch, SOURCES, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_layers_take_the_sources_and_return_the_vertices(graph):
    conv, shared = glocal.nn.GraphConv(3, 5, DEGREE).double(), glocal.nn.SharedGraphConv(DEGREE).double()
    x = signal(2)
    assert conv(x, graph).shape == (2, N, 5)
    assert shared(x, graph).shape == (2, N, 3)
    patches = functional.extract(x, graph)
    assert patches.shape == (2, N, DEGREE, 3)
    for i in range(N):
        for tap in range(DEGREE):
            expected = graph.weights[i, tap] * x[:, graph.neighbors[i, tap]]
            torch.testing.assert_close(patches[:, i, tap], expected)
    torch.testing.assert_close(conv(x, graph), torch.einsum("bndc,dcm->bnm", patches, conv.filters) + conv.bias)
    torch.testing.assert_close(shared(x, graph), patches.mean(2))
    maps = torch.relu(conv(x[0], graph))
    torch.testing.assert_close(functional.gram(x[0], graph, conv.filters, conv.bias), maps.T @ maps)


def test_gradients(graph):
    filters = torch.randn(DEGREE, 3, 2, dtype=torch.float64, requires_grad=True)
    x, weights = signal(2).requires_grad_(), graph.weights.clone().requires_grad_()
    assert gradcheck(lambda x, w, h: functional.graph_conv(x, graph.with_weights(w), h), (x, weights, filters))
    assert gradcheck(lambda x, w: functional.extract(x, graph.with_weights(w)), (x, weights))
    bias = torch.randn(2, dtype=torch.float64)
    assert gradcheck(lambda x: functional.gram(x, graph, filters.detach(), bias), x[0].detach().requires_grad_())


def test_laws(graph):
    layer = glocal.nn.GraphConv(3, 5, DEGREE, bias=False).double()
    assert_linear(layer, signal(), signal().flip(0), graph)
    assert_adjoint(layer, signal(), graph)
    assert_commutes_with_relabelling(layer, signal(), graph)


def test_the_reversed_graph_lists_each_edge_under_its_source(graph):
    start, edges = functional.reverse(graph)
    assert len(start) == SOURCES + 1
    flat = graph.neighbors.reshape(-1)
    for j in range(SOURCES):
        assert edges[start[j] : start[j + 1]].tolist() == (flat == j).nonzero().reshape(-1).tolist()


def test_a_signal_on_the_wrong_end_is_refused(graph):
    layer = glocal.nn.GraphConv(3, 5, DEGREE).double()
    with pytest.raises(ArgumentError, match=rf"must be \(n, c\) or \(batch, n, c\) with n={SOURCES}"):
        layer(torch.ones(N, 3, dtype=torch.float64), graph)


def test_spectral_filters_refuse_it(graph):
    with pytest.raises(ArgumentError, match=f"the graph joins {SOURCES} sources to {N} vertices"):
        glocal.nn.spectral.adjacency(graph)
