"""The relaxed transport of A.2: constraints, optimality against linear programs, barycentric mapping."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from glocal.apps.color.transport import barycentric, transport_plan, transported
from glocal.errors import ArgumentError


def palettes(n, k, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 2, generator=generator).double() * 20, torch.randn(k, 2, generator=generator).double() * 9 + 5


def best_cost(cost, rows, columns):
    """The optimum of the relaxed problem by SciPy's linear program, with the constraints as they are written."""
    n, k = cost.shape
    by_row = np.kron(np.eye(n), np.ones((1, k)))
    by_column = np.kron(np.ones((1, n)), np.eye(k))
    found = linprog(
        cost.numpy().ravel(), A_ub=np.vstack([by_row, by_column]), b_ub=np.concatenate([rows, columns]),
        A_eq=np.ones((1, n * k)), b_eq=[1.0],
    )  # fmt: skip
    assert found.success
    return found.fun


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 4), (7, 7), (5, 8), (9, 3)])
@pytest.mark.parametrize("slack", [1.0, 1.5, 4.0])
def test_plan_is_feasible_and_optimal(n, k, slack):
    photo, reference = palettes(n, k)
    cost = torch.cdist(photo, reference)
    rows, columns = torch.full((n,), slack / n), torch.full((k,), slack / k)
    plan = transport_plan(cost, rows, columns)
    assert float(plan.min()) >= 0
    assert float(plan.sum()) == pytest.approx(1)
    assert bool((plan.sum(1) <= rows.double() + 1e-7).all())
    assert bool((plan.sum(0) <= columns.double() + 1e-7).all())
    assert float((plan * cost).sum()) == pytest.approx(best_cost(cost, rows.numpy(), columns.numpy()), abs=1e-6)


def test_caps_of_total_one_make_the_balanced_problem():
    photo, reference = palettes(12, 12)
    _, plan = transported(photo, reference)
    full = torch.full((12,), 1 / 12, dtype=torch.float64)
    torch.testing.assert_close(plan.sum(0), full, atol=1e-8, rtol=0)
    torch.testing.assert_close(plan.sum(1), full, atol=1e-8, rtol=0)
    cost = torch.cdist(photo, reference)
    assert float((plan * cost).sum()) == pytest.approx(best_cost(cost, full.numpy(), full.numpy()))


def test_two_palettes_of_one_size_are_matched_one_to_one():
    photo, reference = palettes(16, 16)
    moved, _ = transported(photo, reference)
    nearest = torch.cdist(moved, reference).min(1)
    assert float(nearest.values.max()) < 1e-5
    assert sorted(nearest.indices.tolist()) == list(range(16))


def test_barycentre_lies_in_the_hull_and_repeats_by_hand():
    moved, plan = transported(*palettes(3, 6))
    torch.testing.assert_close(moved, (plan @ palettes(3, 6)[1]) * 3, atol=1e-6, rtol=0)


def test_slack_lets_the_nearest_reference_colour_take_more():
    photo, reference = palettes(8, 8)
    tight = float((transported(photo, reference)[1] * torch.cdist(photo, reference)).sum())
    loose = float((transported(photo, reference, slack=8.0)[1] * torch.cdist(photo, reference)).sum())
    assert loose < tight
    assert loose == pytest.approx(float(torch.cdist(photo, reference).min(1).values.mean()))


def test_shares_are_the_marginals():
    photo, reference = palettes(3, 4)
    shares = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    _, plan = transported(photo, reference, shares=shares)
    torch.testing.assert_close(plan.sum(1), shares[0])
    torch.testing.assert_close(plan.sum(0), shares[1])


def test_mass_is_one_even_where_moving_is_free():
    plan = transport_plan(torch.zeros(3, 3), torch.full((3,), 0.9), torch.full((3,), 0.8))
    assert float(plan.sum()) == pytest.approx(1)


def test_entry_without_mass_keeps_its_colour():
    plan = torch.tensor([[0.0, 0.0], [0.5, 0.5]])
    got = barycentric(plan, torch.tensor([[2.0], [4.0]]), torch.tensor([[-1.0], [0.0]]))
    assert got.tolist() == [[-1.0], [3.0]]


def test_messages():
    with pytest.raises(ArgumentError, match=r"`cost` \(shape \(2, 2\)\) must be \(n=3, k=2\).*Check the palettes"):
        transport_plan(torch.zeros(2, 2), torch.ones(3), torch.ones(2))
    with pytest.raises(ArgumentError, match=r"`column_caps` \(sum 0.5\).*Enlarge them"):
        transport_plan(torch.zeros(2, 2), torch.ones(2), torch.full((2,), 0.25))
