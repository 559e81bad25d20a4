"""L-BFGS on tensors, the balancing of gradients, and the coarse-to-fine driver's progress record.

Everything here works on any device and knows nothing of images, files or terminals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.errors import ArgumentError

Objective = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Progress:
    """What a long run tells its caller, some times a second at most. `image` is the current result, not a copy."""

    level: int
    levels: int
    iteration: int
    iterations: int
    loss: float
    seconds: float
    seconds_left: float
    image: Tensor | None = None


@dataclass(frozen=True)
class Minimum:
    """What `lbfgs` found: the best point, the loss at the start and after each iteration, and why it stopped."""

    x: Tensor
    losses: tuple[float, ...]
    evaluations: int
    reason: str


def value_and_gradient(objective: Objective, x: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate a scalar objective and its gradient at `x`; both are detached."""
    point = x.detach().requires_grad_(True)
    with torch.enable_grad():
        value = objective(point)
        (gradient,) = torch.autograd.grad(value, point)
    return value.detach(), gradient


def balance(terms: Mapping[str, Objective], x: Tensor) -> dict[str, float]:
    """Factors `gamma` that give each term's gradient the maximum amplitude 1 at `x` (sections 3 and A.1).

    A term whose gradient is 0 at `x` gets the factor 1.

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


def lbfgs(
    objective: Objective,
    x: Tensor,
    *,
    iterations: int,
    history: int = 10,
    tolerance: float = 0.0,
    callback: Callable[[int, float, Tensor], bool | None] | None = None,
) -> Minimum:
    """Minimise `objective` from `x` by limited-memory BFGS with a backtracking line search (Armijo).

    Steps follow `-H g`, where `H` is built from the last `history` pairs of steps and gradient changes; the first
    step has length `min(1, 1 / |g|_1)`. A pair is kept only if its curvature is positive, so every direction descends.
    A step is halved (by a safeguarded quadratic fit) until the loss falls by 1e-4 of what the slope promises.

    Parameters
    ----------
    iterations : int
        At most so many steps.
    tolerance : float
        Stop when the largest gradient entry is below it, or a step changes the loss by less than this fraction.
    callback : callable(iteration, loss, x) or None
        Called after each step; returning True stops.

    Returns
    -------
    Minimum. Cost: one gradient and O(history size) for each iteration, rarely more than one; memory
    `2 history + 4` copies of `x`.

    >>> found = lbfgs(lambda x: (x - 3).square().sum(), torch.zeros(2), iterations=20)
    >>> found.x
    tensor([3., 3.])
    """
    x = x.detach().clone()
    loss, gradient = value_and_gradient(objective, x)
    value, evaluations, reason = float(loss), 1, "iterations"
    losses = [value]
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=history)
    for iteration in range(iterations):
        if not float(gradient.abs().max()) > tolerance:
            reason = "gradient"
            break
        direction = _direction(gradient, pairs)
        slope = float((gradient * direction).sum())
        if not slope < 0:  # rounding spoilt the history: start again from the gradient
            pairs.clear()
            direction = -gradient
            slope = float((gradient * direction).sum())
        step = 1.0 if pairs else min(1.0, 1.0 / float(gradient.abs().sum()))
        found = None
        for _ in range(20):
            trial = x + step * direction
            trial_loss, trial_gradient = value_and_gradient(objective, trial)
            trial_value = float(trial_loss)
            evaluations += 1
            if trial_value <= value + 1e-4 * step * slope:
                found = (trial, trial_value, trial_gradient)
                break
            step = _shorter(step, value, slope, trial_value)
        if found is None:
            reason = "line search"
            break
        change, turn = found[0] - x, found[2] - gradient
        curvature = float((change * turn).sum())
        if curvature > 1e-10 * float(turn.square().sum()):
            pairs.append((change, turn, curvature))
        fell = value - found[1]
        x, value, gradient = found
        losses.append(value)
        if callback is not None and callback(iteration + 1, value, x):
            reason = "stopped"
            break
        if fell <= tolerance * max(abs(value), 1e-30):
            reason = "loss"
            break
    return Minimum(x, tuple(losses), evaluations, reason)


def _shorter(step: float, value: float, slope: float, trial: float) -> float:
    """Where the parabola through value, slope and trial is least, kept between a tenth and a half of the step."""
    excess = trial - value - step * slope
    best = -slope * step * step / (2 * excess) if excess > 0 and trial < float("inf") else 0.0
    return min(max(best, 0.1 * step), 0.5 * step)


def _direction(gradient: Tensor, pairs: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
    """The two-loop recursion: `-H g`."""
    q = -gradient
    factors = []
    for change, turn, curvature in reversed(pairs):
        factor = (change * q).sum() / curvature
        q = q - factor * turn
        factors.append(factor)
    if pairs:
        _, turn, curvature = pairs[-1]
        q = q * (curvature / turn.square().sum())
    for (change, turn, curvature), factor in zip(pairs, reversed(factors), strict=True):
        q = q + (factor - (turn * q).sum() / curvature) * change
    return q
