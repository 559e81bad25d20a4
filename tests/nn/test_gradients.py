"""Gradients of every differentiable operation, and the parameters that learn through the edge weights."""

import pytest
import torch
from torch.autograd import gradcheck

import glocal
from glocal.nn import BiasedReLU, SoftThreshold, functional


@pytest.fixture
def case():
    torch.manual_seed(1)
    g = glocal.Graph(torch.randint(7, (7, 4)))
    x = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(7, 4, dtype=torch.float64, requires_grad=True)
    return g, x, weights


def test_graph_conv(case):
    g, x, weights = case
    filters = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w, h: functional.graph_conv(x, g.with_weights(w), h), (x, weights, filters))
    assert gradcheck(lambda x, h: functional.graph_conv(x, g, h), (x, filters))


def test_shared_conv_and_extract(case):
    g, x, weights = case
    taps = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w, h: functional.shared_conv(x, g.with_weights(w), h), (x, weights, taps))
    assert gradcheck(lambda x, w: functional.extract(x, g.with_weights(w)), (x, weights))


def test_gram(case):
    g, x, weights = case
    filters, bias = torch.randn(4, 3, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    weighted = g.with_weights(weights.detach())
    signal = x[0].detach().requires_grad_(True)
    assert gradcheck(lambda x: functional.gram(x, weighted, filters, bias), (signal,))
    maps = torch.relu(functional.graph_conv(signal, weighted, filters) + bias)
    torch.testing.assert_close(functional.gram(signal, weighted, filters, bias), maps.T @ maps)
    masses = torch.linspace(0, 2, len(maps), dtype=maps.dtype)
    found = functional.gram(signal, weighted, filters, bias, masses)
    torch.testing.assert_close(found, maps.T @ torch.diag(masses) @ maps)
    assert gradcheck(lambda x: functional.gram(x, weighted, filters, bias, masses), (signal,))


def test_activations():
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    soft = SoftThreshold(3).double()
    torch.nn.init.uniform_(soft.upper, 0.1, 0.3)
    torch.nn.init.uniform_(soft.lower, -0.3, -0.1)
    assert gradcheck(lambda x, *_: soft(x), (x, soft.upper, soft.lower))
    relu = BiasedReLU(3).double()
    torch.nn.init.normal_(relu.bias)
    assert gradcheck(lambda x, *_: relu(x), (x, relu.bias))


def test_thresholds_are_projected():
    soft = SoftThreshold(2)
    with torch.no_grad():
        soft.upper.copy_(torch.tensor([-1.0, 2.0]))
        soft.lower.copy_(torch.tensor([1.0, -2.0]))
    soft.project()
    assert soft.upper.tolist() == [0, 2]
    assert soft.lower.tolist() == [0, -2]


def test_thresholds_leave_zero_by_themselves():
    soft = SoftThreshold(1)
    soft(torch.tensor([[1.0]])).sum().backward()
    assert soft.upper.grad is not None
    assert float(soft.upper.grad) == -1


def test_alpha_and_beta_learn_through_the_graph():
    rule = glocal.weights.NLMeans(r=1, alpha=2.0, beta=0.1).double()
    g = glocal.knn_graph(torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), k=4)
    x = torch.randn(9, 2, dtype=torch.float64)
    taps = torch.randn(4, dtype=torch.float64)

    def run(alpha, beta):
        w = torch.func.functional_call(rule, {"alpha": alpha, "beta": beta}, (g.distances,))
        return functional.shared_conv(x, g.with_weights(glocal.weights.normalize(w)), taps)

    assert gradcheck(run, (rule.alpha.detach().clone().requires_grad_(), rule.beta.detach().clone().requires_grad_()))


def test_backward_gives_the_same_bits_each_run_and_with_any_number_of_threads():
    torch.manual_seed(0)
    g = glocal.Graph(torch.randint(500, (500, 9)), torch.rand(500, 9))
    x, filters = torch.randn(500, 3), torch.randn(9, 3, 10)
    seed = torch.randn(500, 10)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 2):
            torch.set_num_threads(threads)
            point, h = x.clone().requires_grad_(), filters.clone().requires_grad_()
            results.append(torch.autograd.grad(functional.graph_conv(point, g, h), (point, h), seed))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert torch.equal(results[0][0], other[0])
        assert torch.equal(results[0][1], other[1])
