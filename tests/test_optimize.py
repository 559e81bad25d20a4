import numpy as np
import pytest
import torch
from scipy.optimize import rosen

from glocal.errors import ArgumentError
from glocal.optimize import balance, lbfgs, value_and_gradient


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
