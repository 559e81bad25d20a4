import sys

import numpy as np
import pytest
import torch
from scipy.optimize import rosen

import glocal
from glocal.errors import ArgumentError
from glocal.optim.coarse_to_fine import coarse_to_fine
from glocal.optim.history import History
from glocal.optim.lbfgs import lbfgs
from glocal.optim.objectives import WeightedSum, balance, value_and_gradient


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1].square()).square() + (1 - x[:-1]).square()).sum()


def test_finds_the_minimum_of_rosenbrock():
    found = lbfgs(rosenbrock, torch.zeros(10, dtype=torch.float64), iterations=300)
    torch.testing.assert_close(found.x, torch.ones(10, dtype=torch.float64), rtol=0, atol=1e-6)
    assert found.losses[0] == rosen(np.zeros(10))
    assert list(found.losses) == sorted(found.losses, reverse=True)
    assert found.evaluations < 1.6 * len(found.losses)


def test_shapes_are_free_and_the_start_is_left_alone():
    start = torch.zeros(3, 4)
    found = lbfgs(lambda x: (x - 2).square().sum(), start, iterations=10)
    torch.testing.assert_close(found.x, torch.full((3, 4), 2.0))
    assert float(start.abs().max()) == 0


def test_stops_for_the_reasons_it_names():
    square = lambda x: x.square().sum()  # noqa: E731
    assert lbfgs(square, torch.zeros(2), iterations=5).reason == "gradient"
    assert lbfgs(square, torch.ones(2), iterations=5, callback=lambda i, loss, x: i == 1).reason == "stopped"
    assert lbfgs(rosenbrock, torch.zeros(4), iterations=2).reason == "iterations"
    assert lbfgs(rosenbrock, torch.zeros(4), iterations=500, tolerance=1e-3).reason in ("loss", "gradient")


def test_a_wall_of_infinity_is_walked_around():
    found = lbfgs(lambda x: -torch.log(x).sum() + x.sum(), torch.full((3,), 5.0, dtype=torch.float64), iterations=60)
    torch.testing.assert_close(found.x, torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-5)


def test_balance_gives_each_gradient_the_amplitude_one():
    x = torch.tensor([1.0, -3.0])
    terms = {"a": lambda x: 7 * x.square().sum(), "b": lambda x: x.abs().sum(), "c": lambda x: 0 * x.sum()}
    factors = balance(terms, x)
    for name in ("a", "b"):
        _, gradient = value_and_gradient(lambda x, name=name: factors[name] * terms[name](x), x)
        assert float(gradient.abs().max()) == pytest.approx(1)
    assert factors["c"] == 1
    with pytest.raises(ArgumentError, match="balance: the gradient of 'd' is not finite"):
        balance({"d": lambda x: (x * torch.inf).sum()}, x)


def test_a_weighted_sum_adds_values_and_gradients_term_by_term():
    total = WeightedSum({"a": lambda x: x.square().sum(), "b": lambda x: x.sum()}, {"a": 2.0, "b": -1.0})
    x = torch.tensor([1.0, 3.0])
    value, gradient = value_and_gradient(total, x)
    assert float(value) == float(total(x)) == 2 * 10 - 4
    assert gradient.tolist() == [3.0, 11.0]
    assert set(total.seconds) == {"a", "b"}
    with pytest.raises(ArgumentError, match=r"`terms` has \['a'\], `factors` has \['b'\]"):
        WeightedSum({"a": lambda x: x.sum()}, {"b": 1.0})


def test_the_history_gives_the_direction_of_the_two_loop_recursion():
    make = torch.Generator().manual_seed(0)
    zero = torch.zeros(6, dtype=torch.float64)
    history = History(zero, 3)
    pairs = []
    for _ in range(5):  # more than it holds: the oldest are forgotten
        s = torch.randn(6, generator=make, dtype=torch.float64)
        y = s * torch.rand(6, generator=make, dtype=torch.float64) + 0.1 * s
        history.add(s, zero, y, zero)
        pairs = [*pairs, (s, y)][-3:]
    history.add(s, zero, -s, zero)  # negative curvature: not kept
    history.add(s, zero, s / 0, zero)  # not finite: not kept, and not in the way
    g = torch.randn(6, generator=make, dtype=torch.float64)
    q, alphas = -g, []
    for s, y in reversed(pairs):
        alphas.append((s @ q) / (s @ y))
        q = q - alphas[-1] * y
    q = q * (pairs[-1][0] @ pairs[-1][1]) / (pairs[-1][1] @ pairs[-1][1])
    for (s, y), alpha in zip(pairs, reversed(alphas)):
        q = q + (alpha - (y @ q) / (s @ y)) * s
    direction, slope = history.direction(g)
    torch.testing.assert_close(direction, q, rtol=1e-10, atol=1e-12)
    assert slope == pytest.approx(float(q @ g))


def test_coarse_to_fine_hands_results_on_and_ends_when_stopped():
    seen = []

    def problem(previous):
        seen.append(previous)
        return rosenbrock, torch.zeros(4) if previous is None else previous

    found = coarse_to_fine([problem] * 3, lambda k, f, x: lbfgs(f, x, iterations=3, callback=lambda *_: k == 1))
    assert len(found) == len(seen) == 2
    assert seen[0] is None
    assert torch.equal(seen[1], found[0].x)


def test_the_first_step_can_be_given():
    moved = []
    lbfgs(
        lambda x: x.sum(), torch.zeros(3), iterations=1, first=0.25, callback=lambda i, loss, x: moved.append(x.clone())
    )
    assert moved[0].tolist() == [-0.25] * 3


@pytest.mark.parametrize("after", [1, 5, 17])
def test_lbfgs_with_its_memory_goes_on_to_the_same_bits(after):
    scale = torch.logspace(-2, 2, 40)

    def valley(x):
        return (scale * (x - 1).square()).sum() + (x[1:] - x[:-1] ** 2).square().sum()

    start = torch.linspace(-1, 0.5, 40)
    whole = lbfgs(valley, start, iterations=30, history=6)
    kept = {}

    def stop(iteration, loss, x):
        if iteration == after:
            kept.update(memory.state(), x=x.clone())
        return iteration == after

    memory = History(start, 6)
    lbfgs(valley, start, iterations=30, history=memory, callback=stop)
    again = History(start, 6)
    again.load(kept)
    rest = lbfgs(valley, kept["x"], iterations=30 - after, history=again)
    assert torch.equal(rest.x, whole.x)
    assert rest.losses == whole.losses[after:]
    assert not torch.equal(lbfgs(valley, kept["x"], iterations=30 - after, history=6).x, whole.x)


def test_a_history_of_nothing_is_refused():
    with pytest.raises(ArgumentError, match="must be positive"):
        lbfgs(lambda x: x.square().sum(), torch.ones(2), iterations=2, history=0)


def test_a_gradient_of_zero_ends_the_search():
    found = lbfgs(lambda x: (0 * x).sum(), torch.ones(2), iterations=5)
    assert (found.reason, found.evaluations) == ("gradient", 1)


def test_the_old_name_forwards_with_a_warning():
    sys.modules.pop("glocal.optimize", None)
    glocal.__dict__.pop("optimize", None)
    with pytest.warns(DeprecationWarning, match="glocal.optimize is now glocal.optim") as warned:
        old = glocal.optimize
    assert warned[0].filename == __file__
    start = torch.zeros(4)
    memory = History(start, 5)
    found = old.lbfgs(rosenbrock, start, iterations=8, memory=memory)
    assert torch.equal(found.x, lbfgs(rosenbrock, start, iterations=8, history=5).x)
    assert memory.pairs
    assert old.WeightedSum is WeightedSum
