"""The optimisation problem of appendix A.1 with three terms, on palettes in [-0.5, 0.5]."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glocal.apps.color.options import ColorOptions
from glocal.errors import ArgumentError
from glocal.graph import Graph
from glocal.graphs import weights
from glocal.graphs.knn import knn_graph
from glocal.kernels.cpu.threads import one_thread
from glocal.nn.conv import GraphConv
from glocal.nn.functional import gram
from glocal.nn.init import standard_normal
from glocal.nn.spectral import adjacency, laplacian
from glocal.optim.lbfgs import Minimum, lbfgs
from glocal.optim.objectives import balance, value_and_gradient

SCALE = 255.0
"""Units of Lab to the paper's [-0.5, 0.5]: `ab / 255`. The `ab` of sRGB, -108 to 98, become -0.42 to 0.39."""


@dataclass(frozen=True, eq=False)
class PaletteProblem:
    """The objective `gamma1 |F(X)'F(X) - G_s|_F^2 + gamma2 |X - X_t|_F + gamma3 Tr(X' L X)` on palettes `X` (n, 2).

    `F` is one graph convolution with random filters and ReLU on the graph of `X_t`; `G_s = F(X_s)'F(X_s)` on the graph
    of `X_s`. Build it with `palette_problem`. Each term costs O(n m (d + m)), O(n) and O(n^2).
    """

    start: Tensor
    graph: Graph
    filters: Tensor
    bias: Tensor
    target: Tensor
    laplacian: Tensor
    gammas: tuple[float, float, float]
    masses: Tensor | None = None
    """The weight of each entry in `F'F`, (n,), mean 1; None for equal weights as in the paper."""

    def statistics(self, x: Tensor) -> Tensor:
        """Return `|F'F - G_s|_F^2`, the distance of the palette's statistics to the reference's."""
        return (gram(x, self.graph, self.filters, self.bias, self.masses) - self.target).square().sum()

    def movement(self, x: Tensor) -> Tensor:
        """Return `|X - X_t|_F`, the displacement. Its gradient at `X_t` is defined as 0, the centre of the subdifferential."""
        squared = (x - self.start).square().sum()
        # sqrt has an infinite slope at 0, and inf * 0 is NaN: replace the point, not the gradient
        return torch.where(squared > 0, squared, 1.0).sqrt() * (squared > 0)

    def roughness(self, x: Tensor) -> Tensor:
        """Return `Tr(X' L X)`, which measures how far similar entries of `X_t` have moved apart."""
        return (x * (self.laplacian @ x)).sum()

    def __call__(self, x: Tensor) -> Tensor:
        """Return the weighted sum of the three terms."""
        g1, g2, g3 = self.gammas
        return g1 * self.statistics(x) + g2 * self.movement(x) + g3 * self.roughness(x)

    def solve(self, iterations: int) -> Minimum:
        """Minimise by L-BFGS from `X_t`, until the gradient is below 1e-9 (the loss is about 1).

        `X_t` is a first-order minimum if and only if the norm of the smooth terms' gradient there is at most `gamma2`
        (the subdifferential of the second term is a ball of that radius). Then it is returned at once.
        """
        g1, _, g3 = self.gammas
        with one_thread():
            loss, slope = value_and_gradient(lambda x: g1 * self.statistics(x) + g3 * self.roughness(x), self.start)
            if float(slope.norm()) <= self.gammas[1]:
                return Minimum(self.start.clone(), (float(loss),), 1, "the initial palette is the minimum")
            return lbfgs(self, self.start, iterations=iterations, tolerance=1e-9)


def palette_problem(
    photo: Tensor, reference: Tensor, options: ColorOptions, shares: tuple[Tensor, Tensor] | None = None
) -> PaletteProblem:
    """Set up the problem from two palettes of the same size, (n, 2) in units of Lab. The weights follow A.1.

    `gamma1` scales the gradient of the first term to the amplitude 1 at the start, `gamma2 = 0.1`, and
    `gamma3 = 1 / max L_ii`. Each is multiplied by its factor in `options.lambdas`. The degree is at most `n`. With
    `shares` of the entries of both palettes, each with the sum 1, large areas count more (not in the paper).
    """
    if photo.shape != reference.shape:
        message = (
            f"palette_problem: the palettes have {len(photo)} and {len(reference)} entries, but Gram matrices of "
            "palettes of different sizes cannot be compared. Use one size."
        )
        raise ArgumentError(message)
    start, source = photo / SCALE, reference / SCALE
    rule, degree = weights.Gaussian(options.sigma), min(options.degree, len(start))
    layer = GraphConv(2, options.maps, degree).double().requires_grad_(False)
    standard_normal(layer, torch.Generator().manual_seed(options.seed))
    filters, bias = layer.filters.detach(), _tensor(layer.bias).detach()
    plain = knn_graph(start, k=degree)
    assert plain.distances is not None
    source_graph = weights.weighted(knn_graph(source, k=degree), rule)
    operator = laplacian(adjacency(plain.with_weights(rule(plain.distances))))  # these weights are not normalised
    here, there = (None, None) if shares is None else (part * len(part) for part in shares)
    target = gram(source, source_graph, filters, bias, there)
    graph = weights.weighted(plain, rule)
    problem = PaletteProblem(start, graph, filters, bias, target, operator, (1.0, 0.0, 0.0), here)
    g1 = balance({"statistics": problem.statistics}, start)["statistics"]
    top = float(operator.diagonal().max())
    a, b, c = options.lambdas
    gammas = (a * g1, b, c / top if top > 0 else 0.0)  # one colour: nothing to keep together
    return replace(problem, gammas=gammas)


def _tensor(value: Tensor | None) -> Tensor:
    assert value is not None
    return value
