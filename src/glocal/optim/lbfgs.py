"""L-BFGS with a backtracking line search. The history that it is given decides where an iteration runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from glocal.optim.history import History
from glocal.optim.objectives import Objective, value_and_gradient

_ATTEMPTS = 20  # step lengths that the line search tries
_DECREASE = 1e-4  # share of the decrease promised by the slope that a step must reach (Armijo)


@dataclass(frozen=True)
class Minimum:
    """The result of `lbfgs`: the best point, the loss at the start and after each iteration, and why it stopped.

    `reason` is "iterations", "gradient" (it is 0 or below the tolerance), "loss" (it changes by less than the
    tolerance), "line search" (no step decreases the loss) or "stopped" (by the callback).
    """

    x: Tensor
    losses: tuple[float, ...]
    evaluations: int
    reason: str


def lbfgs(
    objective: Objective,
    x: Tensor,
    *,
    iterations: int,
    history: History | int = 10,
    first: float | None = None,
    tolerance: float = 0.0,
    callback: Callable[[int, float, Tensor], bool | None] | None = None,
) -> Minimum:
    """Minimise `objective` from `x` by limited-memory BFGS with a backtracking line search (Armijo).

    Steps follow `-H g`, where `H` is built from the last pairs of steps and gradient changes. A pair is kept only if its
    curvature is positive, so every direction descends. A step is shortened (by a safeguarded quadratic fit) until the
    loss falls by 1e-4 of what the slope promises.

    Parameters
    ----------
    objective : callable(Tensor) -> scalar Tensor
        See `value_and_gradient`.
    x : Tensor
        Where to start. It may be float64 while the gradients of the objective, and so the pairs, are float32.
    iterations : int
        The largest number of steps.
    history : History or int
        The number of pairs to keep, or a history to use and update. A history from an earlier run that ended at `x`
        continues that run as if it had not been interrupted. A `DeviceHistory` runs each iteration as recorded launches
        on a GPU.
    first : float or None
        The largest entry of the first step, before the line search. None makes its length `min(1, 1 / |g|_1)`, which is
        safe for any scale. If the scale of `x` is known, a longer step (one per cent of it) loses less to rounding.
    tolerance : float
        Stop when the largest gradient entry is below it, or when a step changes the loss by less than this fraction.
    callback : callable(iteration, loss, x) or None
        Called after each step. Return True to stop.

    Returns
    -------
    Minimum
        Cost of an iteration: one gradient, rarely more, and two passes over the history. Memory: `2 history + 5`
        copies of `x`.

    Examples
    --------
    >>> import torch
    >>> found = lbfgs(lambda x: (x - 3).square().sum(), torch.zeros(2), iterations=20)
    >>> found.x
    tensor([3., 3.])
    """
    loss, gradient = value_and_gradient(objective, x)
    value, evaluations, reason = float(loss), 1, "iterations"
    losses = [value]
    pairs = history if isinstance(history, History) else History(gradient, history)
    search = pairs.search(objective, x, gradient, first)
    for iteration in range(iterations):
        slope, step = search.aim()
        if not slope < 0 or (tolerance > 0 and not float(search.gradient.abs().max()) > tolerance):
            reason = "gradient"
            break
        for _ in range(_ATTEMPTS):
            trial = search.attempt(step)
            evaluations += 1
            if enough := trial <= value + _DECREASE * step * slope:
                break
            step = _shorter(step, value, slope, trial)
        if not enough:
            reason = "line search"
            break
        search.accept()
        decrease, value = value - trial, trial
        losses.append(value)
        if callback is not None and callback(iteration + 1, value, search.x):
            reason = "stopped"
            break
        if decrease <= tolerance * max(abs(value), 1e-30):
            reason = "loss"
            break
    return Minimum(search.x, tuple(losses), evaluations, reason)


def _shorter(step: float, value: float, slope: float, trial: float) -> float:
    """Minimise the parabola through value, slope and trial; keep the step between a tenth and a half of the old one."""
    excess = trial - value - step * slope
    best = -slope * step * step / (2 * excess) if excess > 0 and trial < float("inf") else 0.0
    return min(max(best, 0.1 * step), 0.5 * step)
