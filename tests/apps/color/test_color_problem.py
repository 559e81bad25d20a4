"""The three terms of A.1 and the Laplacian against values worked out by hand on a palette of four colours."""

import math
from dataclasses import replace

import pytest
import torch

from glocal.apps.color.options import ColorOptions
from glocal.apps.color.problem import SCALE, PaletteProblem, palette_problem
from glocal.errors import ArgumentError
from glocal.graphs import weights
from glocal.graphs.knn import knn_graph
from glocal.nn.spectral import adjacency, laplacian
from glocal.optim.objectives import value_and_gradient

# Four colours on a line: with degree 2 the neighbours are 0 -> 1, 1 -> 0, 2 -> 1, 3 -> 2.
LINE = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.3, 0.0], [0.7, 0.0]], dtype=torch.float64)
E01, E21, E32 = (math.exp(-((step / 0.25) ** 2)) for step in (0.1, 0.2, 0.4))


def four_colors(gammas=(1.0, 1.0, 1.0)):
    rule = weights.Gaussian(0.25)
    plain = knn_graph(LINE, k=2)
    filters = torch.zeros(2, 2, 1, dtype=torch.float64)
    filters[0, 0, 0], filters[1, 0, 0] = 1.0, 2.0
    bias = torch.tensor([0.5], dtype=torch.float64)
    target = torch.tensor([[3.0]], dtype=torch.float64)
    graph = weights.weighted(plain, rule)
    return PaletteProblem(
        LINE, graph, filters, bias, target, laplacian(adjacency(plain.with_weights(rule(plain.distances)))), gammas
    )


def random_problem(seed=0, n=64, **options):
    generator = torch.Generator().manual_seed(seed)
    photo, reference = (torch.randn(n, 2, generator=generator, dtype=torch.float64) * 20 for _ in range(2))
    return palette_problem(photo, reference + 15, ColorOptions(**options))


def test_laplacian_by_hand():
    got = four_colors().laplacian
    a, b, c = E01, E21 / 2, E32 / 2  # 0 - 1 point at each other; the other two edges have one direction only
    want = [[a, -a, 0, 0], [-a, a + b, -b, 0], [0, -b, b + c, -c], [0, 0, -c, c]]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))


def test_statistics_by_hand():
    x = [0.0, 0.1, 0.3, 0.7]
    maps = []
    for i, j, w in ((0, 1, E01), (1, 0, E01), (2, 1, E21), (3, 2, E32)):
        own, other = 2 / (1 + w), 2 * w / (1 + w)  # equation 8 with d = 2
        maps.append(own * x[i] + 2 * other * x[j] + 0.5)
    want = (sum(f * f for f in maps) - 3.0) ** 2
    assert float(four_colors().statistics(LINE)) == pytest.approx(want, rel=1e-12)


def test_movement_and_roughness_by_hand():
    problem = four_colors()
    x = LINE + torch.tensor([[0.3, 0.0], [0.0, 0.4], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert float(problem.movement(x)) == pytest.approx(0.5)
    want = E01 * (0.2**2 + 0.4**2) + E21 / 2 * (0.2**2 + 0.4**2) + E32 / 2 * 0.4**2
    assert float(problem.roughness(x)) == pytest.approx(want)


def test_objective_is_the_weighted_sum():
    problem = four_colors(gammas=(2.0, 3.0, 5.0))
    x = LINE + 0.05
    want = 2 * problem.statistics(x) + 3 * problem.movement(x) + 5 * problem.roughness(x)
    torch.testing.assert_close(problem(x), want)


def test_gradient_of_the_objective():
    problem = random_problem(n=16, maps=12)
    x = problem.start + 0.05 * torch.randn(16, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(problem, (x.requires_grad_(True),))
    for term in (problem.statistics, problem.movement, problem.roughness):
        assert torch.autograd.gradcheck(term, (x,))


def test_gradient_at_the_start_is_that_of_the_smooth_terms():
    problem = random_problem(n=16)
    g1, _, g3 = problem.gammas
    _, got = value_and_gradient(problem, problem.start)
    _, want = value_and_gradient(lambda x: g1 * problem.statistics(x) + g3 * problem.roughness(x), problem.start)
    assert bool(torch.isfinite(got).all())
    torch.testing.assert_close(got, want)
    assert float(problem.movement(problem.start)) == 0


def test_start_is_kept_exactly_when_moving_costs_more_than_it_gains():
    problem = random_problem(n=16, lambdas=(1.0, 1e3, 1.0))
    minimum = problem.solve(50)
    assert torch.equal(minimum.x, problem.start)
    assert minimum.reason == "the initial palette is the minimum"
    # first order: no direction descends, not even a tiny step along the gradient
    _, slope = value_and_gradient(problem, problem.start)
    assert float(problem(problem.start - 1e-6 * slope)) > float(problem(problem.start))


def test_start_is_left_when_the_slope_is_larger_than_gamma2():
    problem = random_problem(n=16)
    _, slope = value_and_gradient(problem, problem.start)
    assert float(slope.norm()) > problem.gammas[1]
    minimum = problem.solve(50)
    assert minimum.losses[-1] < 0.5 * minimum.losses[0]
    assert float((minimum.x - problem.start).norm()) > 0.1


def test_weights_follow_the_paper():
    problem = random_problem()
    _, slope = value_and_gradient(problem.statistics, problem.start)
    assert float(slope.abs().max()) * problem.gammas[0] == pytest.approx(1.0)
    assert problem.gammas[1] == 0.1
    assert problem.gammas[2] == pytest.approx(1 / float(problem.laplacian.diagonal().max()))
    assert problem.filters.shape == (10, 2, 100)
    assert float(problem.filters.std()) == pytest.approx(1.0, abs=0.05)


def test_same_palette_is_its_own_answer_without_smoothing():
    palette = torch.randn(32, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 20
    problem = palette_problem(palette, palette, ColorOptions(lambdas=(1.0, 0.1, 0.0)))
    torch.testing.assert_close(problem.solve(20).x * SCALE, palette)


def test_solution_does_not_depend_on_the_run_or_on_the_threads():
    first, second = random_problem().solve(60), random_problem().solve(60)
    assert torch.equal(first.x, second.x)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(random_problem().solve(60).x, first.x)
    finally:
        torch.set_num_threads(threads)
    assert not torch.equal(random_problem(seed=5).solve(60).x, first.x)


def test_palettes_of_two_sizes_are_refused():
    with pytest.raises(ArgumentError, match=r"the palettes have 4 and 5 entries.*Use one size"):
        palette_problem(torch.rand(4, 2).double(), torch.rand(5, 2).double(), ColorOptions())


def test_equal_shares_are_the_paper():
    generator = torch.Generator().manual_seed(0)
    photo, reference = (torch.randn(16, 2, generator=generator, dtype=torch.float64) * 20 for _ in range(2))
    even = torch.full((16,), 1 / 16, dtype=torch.float64)
    plain, weighed = (palette_problem(photo, reference, ColorOptions(), s) for s in (None, (even, even)))
    torch.testing.assert_close(plain.target, weighed.target)
    torch.testing.assert_close(plain(plain.start + 0.1), weighed(plain.start + 0.1))


def test_shares_weigh_the_entries_by_hand():
    problem = four_colors()
    masses = torch.tensor([4.0, 0.0, 0.0, 0.0], dtype=torch.float64)  # the first colour is the whole picture
    own, other = 2 / (1 + E01), 2 * E01 / (1 + E01)
    first = own * 0.0 + 2 * other * 0.1 + 0.5
    assert float(replace(problem, masses=masses).statistics(LINE)) == pytest.approx((4 * first**2 - 3) ** 2)
    assert torch.autograd.gradcheck(replace(problem, masses=masses + 0.1), (LINE + 0.03).requires_grad_(True))
