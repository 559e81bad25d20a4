import math

import numpy as np
import pytest
import torch

import glocal
from glocal.errors import ArgumentError
from glocal.graphs import weights

D = torch.tensor([[0.0, 1.0, 2.0], [0.0, 3.0, 10.0]], dtype=torch.float64)


def test_gaussian_by_hand():
    w = weights.Gaussian(sigma=2.0)(D)
    assert float(w[0, 2]) == pytest.approx(math.exp(-1))


def test_percentile_gaussian_by_hand():
    cap, sigma = np.percentile(D.numpy(), 80), np.percentile(D.numpy(), 75)
    assert (cap, sigma) == (3.0, 2.75)
    w = weights.PercentileGaussian()(D)
    expected = np.exp(-(np.minimum(D.numpy(), cap) ** 2) / sigma**2)
    np.testing.assert_allclose(w.numpy(), expected)


def test_percentile_gaussian_where_sigma_is_zero():
    w = weights.PercentileGaussian()(torch.tensor([[0.0, 0.0, 0.0, 0.0, 5.0]]))
    assert w.tolist() == [[1, 1, 1, 1, 0]]


def test_nl_means_by_hand_and_projection():
    rule = weights.NLMeans(r=4, alpha=0.5, beta=0.5)
    w = rule(torch.tensor([[0.0, 1.0, 2.0]]))
    assert w.tolist()[0] == pytest.approx([1.0, 1.0, math.exp(-0.25)])
    with torch.no_grad():
        rule.alpha.fill_(-1)
        rule.beta.fill_(-1)
    rule.project()
    assert (rule.alpha.item(), rule.beta.item()) == (0, 0)


def test_normalize_is_equation_8():
    w = weights.normalize(D + 1)
    torch.testing.assert_close(w.mean(1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(w[0], torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64))


def test_weighted_needs_distances():
    with pytest.raises(ArgumentError, match="has no `distances`"):
        weights.weighted(glocal.grid_graph((4,)), weights.Gaussian(sigma=1.0))


def test_refuses():
    with pytest.raises(ArgumentError, match=r"Gaussian: `sigma` \(=0\) must be positive"):
        weights.Gaussian(sigma=0)
    with pytest.raises(ArgumentError, match=r"NLMeans: `r` \(=0\)"):
        weights.NLMeans(r=0, alpha=1, beta=0)
    with pytest.raises(ArgumentError, match="all weights of vertex 1 are 0"):
        weights.normalize(torch.tensor([[1.0], [0.0]]))
