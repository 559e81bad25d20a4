"""Objectives: a scalar function of a tensor, its gradient, weighted sums of several, and the balance between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glocal.errors import ArgumentError

Objective = Callable[[Tensor], Tensor]


def value_and_gradient(objective: Objective, x: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate a scalar objective and its gradient at `x`; both are detached.

    An objective that knows its own gradient has a method `value_and_gradient(x)` that returns both.

    Examples
    --------
    >>> value_and_gradient(lambda x: (x * x).sum(), torch.tensor([1.0, -2.0]))
    (tensor(5.), tensor([ 2., -4.]))
    """
    if (both := getattr(objective, "value_and_gradient", None)) is not None:
        found: tuple[Tensor, Tensor] = both(x)
        return found
    point = x.detach().requires_grad_(True)
    with torch.enable_grad():
        value = objective(point)
        (gradient,) = torch.autograd.grad(value, point)
    return value.detach(), gradient


@dataclass(frozen=True)
class WeightedSum:
    """The objective `sum_k factor_k term_k(x)`.

    Terms are differentiated one after the other, so only one term's intermediate results are in memory.

    Parameters
    ----------
    terms, factors : mapping
        An objective and a factor for each name.
    seconds : dict
        Adds up the time that each term takes. On a GPU this is the time of its launches, without replayed ones.

    Examples
    --------
    >>> total = WeightedSum({"a": lambda x: x.sum(), "b": lambda x: (x * x).sum()}, {"a": 1.0, "b": 0.5})
    >>> total(torch.tensor([1.0, 2.0]))
    tensor(5.5000)
    """

    terms: Mapping[str, Objective]
    factors: Mapping[str, float]
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.terms or set(self.terms) != set(self.factors):
            message = f"WeightedSum: `terms` has {sorted(self.terms)}, `factors` has {sorted(self.factors)}. Give each term a factor."
            raise ArgumentError(message)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the value alone."""
        parts = [self.factors[name] * term(x) for name, term in self.terms.items()]
        return torch.stack(parts).sum()

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and the gradient, computed term by term."""
        value, gradient = x.new_zeros(()), None
        for name, term in self.terms.items():
            start = time.perf_counter()
            part, slope = value_and_gradient(term, x)
            value = value + self.factors[name] * part
            if gradient is None:
                gradient = slope * self.factors[name]
            else:
                gradient.add_(slope.to(gradient), alpha=self.factors[name])
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        assert gradient is not None  # there is a term
        return value, gradient


def balance(terms: Mapping[str, Objective], x: Tensor) -> dict[str, float]:
    """Return factors `gamma` that give each term's gradient the maximum amplitude 1 at `x` (sections 3 and A.1).

    A term whose gradient is 0 at `x` gets the factor 1. Cost: one gradient of each term.

    Raises
    ------
    ArgumentError
        The gradient of a term is not finite at `x`.

    Examples
    --------
    >>> balance({"square": lambda x: (x * x).sum()}, torch.tensor([1.0, -2.0]))
    {'square': 0.25}
    """
    factors = {}
    for name, term in terms.items():
        _, gradient = value_and_gradient(term, x)
        top = float(gradient.abs().max())
        if not top < float("inf"):
            message = f"balance: the gradient of {name!r} is not finite at the start. Scale the signal to about 1."
            raise ArgumentError(message)
        factors[name] = 1 / top if top > 0 else 1.0
    return factors
