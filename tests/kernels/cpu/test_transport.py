"""Exact transport: the costs of another solver, marginals, ties, and the certificate of optimality."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog

from glocal.kernels.cpu.transport import balanced_plan


def palettes():
    random = np.random.RandomState(5)
    x, y = random.normal(size=(64, 2)) * 20, random.normal(size=(64, 2)) * 9 + 5
    weights = [random.uniform(0.1, 1, 64) for _ in range(2)]
    return np.linalg.norm(x[:, None] - y, axis=2), *(w / w.sum() for w in weights)


def test_the_costs_of_pot():
    """From POT 0.9.7 (`ot.emd`), which 0.1 used."""
    cost, rows, columns = palettes()
    equal = np.full(64, 1 / 64)
    assert (balanced_plan(cost, equal, equal) * cost).sum() == pytest.approx(16.099979198684064, abs=1e-9)
    assert (balanced_plan(cost, rows, columns) * cost).sum() == pytest.approx(16.302119238287524, abs=1e-9)


def test_equal_masses_are_an_assignment():
    cost, *_ = palettes()
    plan = balanced_plan(cost, np.ones(64), np.ones(64))
    assert np.array_equal(plan.argmax(1), linear_sum_assignment(cost)[1])
    assert set(np.unique(plan)) == {0.0, 1.0}


@pytest.mark.parametrize(("n", "k", "seed"), [(1, 1, 0), (1, 7, 1), (9, 1, 2), (12, 30, 3), (40, 17, 4), (25, 25, 5)])
@pytest.mark.parametrize("ties", [False, True])
def test_plans_are_feasible_and_optimal(n, k, seed, ties):
    random = np.random.default_rng(seed)
    cost = random.integers(-2, 3, (n, k)).astype(float) if ties else random.normal(size=(n, k))
    rows, columns = (random.integers(1, 4, m) if ties else random.random(m) + 1e-3 for m in (n, k))
    rows, columns = rows / rows.sum(), columns / columns.sum()
    plan = balanced_plan(cost, rows, columns)
    assert plan.min() >= 0
    np.testing.assert_allclose(plan.sum(1), rows, atol=1e-12)
    np.testing.assert_allclose(plan.sum(0), columns, atol=1e-12)
    assert np.count_nonzero(plan) <= n + k - 1
    by_row, by_column = np.kron(np.eye(n), np.ones((1, k))), np.kron(np.ones((1, n)), np.eye(k))
    best = linprog(cost.ravel(), A_eq=np.vstack([by_row, by_column]), b_eq=np.concatenate([rows, columns]))
    assert (plan * cost).sum() == pytest.approx(best.fun, abs=1e-9)
