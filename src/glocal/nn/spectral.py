"""The filters that the paper compares with (section 2.1): spectral, polynomial and diffusion. Small and dense.

They need a symmetric matrix `W` (n, n) of edge weights, e.g. `adjacency(grid_graph((h, w)))`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.graph import Graph


def adjacency(graph: Graph) -> Tensor:
    """Return the symmetric dense matrix `(W + W') / 2` without self-edges, (n, n). Cost: O(n^2) memory.

    Raises ArgumentError for a graph between two signals, which has no spectrum.
    """
    n = graph.num_vertices
    if graph.num_sources != n:
        message = (
            f"adjacency: the graph joins {graph.num_sources} sources to {n} vertices, but a spectrum needs a square "
            "matrix. Use a graph of one signal."
        )
        raise ArgumentError(message)
    weights = torch.ones(graph.neighbors.shape, device=graph.device) if graph.weights is None else graph.weights
    w = torch.zeros(n, n, dtype=weights.dtype, device=graph.device)
    rows = torch.arange(n, device=graph.device).unsqueeze(1).expand_as(graph.neighbors)
    w.index_put_((rows, graph.neighbors.long()), weights, accumulate=True)
    w.fill_diagonal_(0)
    return (w + w.T) / 2


def laplacian(w: Tensor, *, normalized: bool = False) -> Tensor:
    """Compute `L = D - W`, or `I - D^(-1/2) W D^(-1/2)`. A vertex without edges has degree 0 and a zero row.

    >>> laplacian(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    tensor([[ 2., -2.],
            [-2.,  2.]])
    """
    if w.ndim != 2 or w.shape[0] != w.shape[1] or not torch.equal(w, w.T):
        message = f"laplacian: `w` (shape {tuple(w.shape)}) must be a symmetric (n, n) matrix. Use adjacency(graph)."
        raise ArgumentError(message)
    degrees = w.sum(1)
    if not normalized:
        return torch.diag(degrees) - w
    scale = torch.where(degrees > 0, degrees.clamp(min=1e-30).rsqrt(), 0)
    return torch.diag((degrees > 0).to(w.dtype)) - scale.unsqueeze(1) * w * scale


def spectral_filter(x: Tensor, lap: Tensor, response: Tensor) -> Tensor:
    """Compute equation 1, `U diag(response) U' x`, where `L = U diag(lambda) U'`: x (n, c) -> (n, c).

    The response (n,) is ordered by increasing lambda. Cost: O(n^3) for the eigenvectors, which makes this filter
    impractical.
    """
    if response.shape != (lap.shape[0],):
        message = f"spectral_filter: `response` (shape {tuple(response.shape)}) must be (n={lap.shape[0]},). Give one number per eigenvalue."
        raise ArgumentError(message)
    _, basis = torch.linalg.eigh(lap)
    return basis @ (response.unsqueeze(1) * (basis.T @ x))


def polynomial_filter(x: Tensor, lap: Tensor, coefficients: Sequence[float] | Tensor) -> Tensor:
    """Compute equation 2, `sum_i alpha_i L^i x`, by Horner's rule: x (n, c) -> (n, c). Cost: O(degree n^2 c)."""
    alphas = torch.as_tensor(coefficients, dtype=x.dtype, device=x.device)
    y = torch.zeros_like(x)
    for alpha in reversed(alphas.unbind()):
        y = lap @ y + alpha * x
    return y


def diffusion_filter(x: Tensor, w: Tensor, coefficients: Sequence[float] | Tensor) -> Tensor:
    """Compute `sum_i alpha_i P^i x` with the transition matrix `P = D^-1 W`: x (n, c) -> (n, c)."""
    degrees = w.sum(1, keepdim=True)
    return polynomial_filter(x, torch.where(degrees > 0, w / degrees.clamp(min=1e-30), 0), coefficients)
