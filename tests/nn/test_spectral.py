"""The filters of section 2.1, and what the paper says of them."""

import pytest
import torch

import glocal
from glocal.errors import ArgumentError
from glocal.nn import spectral


@pytest.fixture
def torus():
    """A 9 x 9 lattice without borders, so that symmetry is exact."""
    return spectral.adjacency(glocal.grid_graph((9, 9), size=3, boundary="circular")).double()


def impulse():
    x = torch.zeros(81, 1, dtype=torch.float64)
    x[40] = 1
    return x


def test_polynomial_equals_spectral(torus):
    lap = spectral.laplacian(torus)
    alphas = torch.tensor([0.5, -0.3, 0.2], dtype=torch.float64)
    eigenvalues = torch.linalg.eigvalsh(lap)
    response = sum(a * eigenvalues**i for i, a in enumerate(alphas))
    x = torch.randn(81, 2, dtype=torch.float64)
    torch.testing.assert_close(spectral.polynomial_filter(x, lap, alphas), spectral.spectral_filter(x, lap, response))


def test_polynomial_filters_are_isotropic_and_ours_are_not(torus):
    y = spectral.polynomial_filter(impulse(), spectral.laplacian(torus), [0.1, 0.7, -0.4]).view(9, 9)
    for turned in (y.T, y.flip(0), y.flip(1), y.rot90()):
        torch.testing.assert_close(y, turned)
    edge = torch.tensor([-1.0, 0, 1, -2, 0, 2, -1, 0, 1], dtype=torch.float64)
    ours = glocal.nn.functional.shared_conv(impulse(), glocal.grid_graph((9, 9), boundary="circular"), edge).view(9, 9)
    assert not torch.allclose(ours, ours.T)
    assert not torch.allclose(ours, ours.flip(1))


def test_the_diffusion_filter_is_the_polynomial_in_the_transition_matrix(torus):
    x = torch.randn(81, 1, dtype=torch.float64)
    p = torus / torus.sum(1, keepdim=True)
    torch.testing.assert_close(spectral.diffusion_filter(x, torus, [1.0, 2.0, 3.0]), x + 2 * p @ x + 3 * p @ p @ x)


def test_laplacians(torus):
    lap = spectral.laplacian(torus)
    torch.testing.assert_close(lap.sum(1), torch.zeros(81, dtype=torch.float64))
    assert float(torch.linalg.eigvalsh(lap)[0]) == pytest.approx(0, abs=1e-9)
    normalized = spectral.laplacian(torus, normalized=True)
    torch.testing.assert_close(normalized.diagonal(), torch.ones(81, dtype=torch.float64))
    assert float(torch.linalg.eigvalsh(normalized)[-1]) <= 2
    lonely = spectral.laplacian(torch.zeros(2, 2), normalized=True)
    assert torch.equal(lonely, torch.zeros(2, 2))


def test_refuses():
    with pytest.raises(ArgumentError, match="must be a symmetric"):
        spectral.laplacian(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(ArgumentError, match=r"`response` \(shape \(2,\)\) must be \(n=3,\)"):
        spectral.spectral_filter(torch.ones(3, 1), torch.zeros(3, 3), torch.ones(2))
