"""Laws of the layers, on random graphs of random sizes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glocal
from glocal import testing
from glocal.nn import GraphConv, SharedGraphConv


@st.composite
def graphs(draw):
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    neighbors = torch.randint(n, (n, d), generator=generator)
    weights = torch.rand(n, d, generator=generator, dtype=torch.float64) if draw(st.booleans()) else None
    return glocal.Graph(neighbors, weights)


def layers(degree):
    return [GraphConv(2, 3, degree, bias=False).double(), SharedGraphConv(degree).double()]


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(0, 2**31))
def test_laws(g, seed):
    torch.manual_seed(seed)
    x, y = torch.randn(2, 4, g.num_vertices, 2, dtype=torch.float64)
    for layer in layers(g.degree):
        testing.assert_commutes_with_relabelling(layer, x, g, tolerance=1e-10)
        testing.assert_linear(layer, x, y, g, tolerance=1e-10)
        testing.assert_adjoint(layer, x, g, tolerance=1e-10)
        torch.testing.assert_close(layer(x, g), torch.stack([layer(part, g) for part in x]))  # batched = loop


@settings(max_examples=20, deadline=None)
@given(graphs())
def test_a_constant_becomes_the_sum_of_the_weighted_taps(g):
    layer = SharedGraphConv(g.degree).double()
    torch.nn.init.normal_(layer.taps)
    weights = torch.ones(g.neighbors.shape, dtype=torch.float64) if g.weights is None else g.weights
    expected = (weights @ layer.taps).unsqueeze(1).expand(-1, 2)
    torch.testing.assert_close(layer(torch.ones(g.num_vertices, 2, dtype=torch.float64), g), expected)


def test_the_laws_can_fail():
    g = glocal.grid_graph((5,))
    x = torch.randn(5, 1)
    with pytest.raises(AssertionError):
        testing.assert_commutes_with_relabelling(lambda x, g: x + torch.arange(5.0).unsqueeze(1), x, g)
    with pytest.raises(AssertionError):
        testing.assert_linear(lambda x, g: x.square(), x, x + 1, g)
    with pytest.raises(AssertionError):
        testing.assert_adjoint(lambda x, g: x.square(), x, g)
    with pytest.raises(AssertionError, match="column 0"):
        testing.assert_nearest_first(g)
