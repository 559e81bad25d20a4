"""L-BFGS on tensors, the balancing of gradients, sums of terms, and the coarse-to-fine driver.

Everything here works on any device and knows nothing of images, files or terminals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.kernels import select

Objective = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Progress:
    """What a long run tells its caller, some times a second at most. `image` is the current result, not a copy.

    `snapshot()`, where there is one, returns what the run needs to go on from here, to be called before the next step.
    """

    level: int
    levels: int
    iteration: int
    iterations: int
    loss: float
    seconds: float
    seconds_left: float
    image: Tensor | None = None
    snapshot: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Minimum:
    """What `lbfgs` found: the best point, the loss at the start and after each iteration, and why it stopped."""

    x: Tensor
    losses: tuple[float, ...]
    evaluations: int
    reason: str


@dataclass(frozen=True)
class WeightedSum:
    """The objective `sum_k factor_k term_k(x)`.

    Its terms are differentiated one after the other, so that only one term's intermediate results are in memory.
    `seconds` adds up what each term costs (on a GPU: what its launches cost, but for those that are replayed).

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
        """The value alone."""
        parts = [self.factors[name] * term(x) for name, term in self.terms.items()]
        return torch.stack(parts).sum()

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value and the gradient, term by term."""
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

    evaluate = value_and_gradient  # its former name


def value_and_gradient(objective: Objective, x: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate a scalar objective and its gradient at `x`; both are detached.

    An objective that knows its gradient has a method `value_and_gradient(x)` that returns both.
    """
    if (both := getattr(objective, "value_and_gradient", None)) is not None:
        found: tuple[Tensor, Tensor] = both(x)
        return found
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
    memory: History | None = None,
    first: float | None = None,
    tolerance: float = 0.0,
    callback: Callable[[int, float, Tensor], bool | None] | None = None,
) -> Minimum:
    """Minimise `objective` from `x` by limited-memory BFGS with a backtracking line search (Armijo).

    Steps follow `-H g`, where `H` is built from the last `history` pairs of steps and gradient changes.
    A pair is kept only if its curvature is positive, so every direction descends.
    A step is halved (by a safeguarded quadratic fit) until the loss falls by 1e-4 of what the slope promises.

    Parameters
    ----------
    x : Tensor
        Where to start. It may be in float64 where the gradients of the objective are in float32, as the pairs then are.
    iterations : int
        At most so many steps.
    memory : History or None
        The pairs of an earlier run that ended at `x`, so that this one goes on as if it had not been interrupted; they
        are brought up to date after each step. None starts with none, and keeps `history` of them. With an
        `optimize_cuda.DeviceHistory` iterations are recorded launches.
    first : float or None
        The largest entry of the first step, before the line search. None makes its length `min(1, 1 / |g|_1)`, which is
        safe for any scale; where the scale of `x` is known, a longer step (a per cent of it) loses less to rounding.
    tolerance : float
        Stop when the largest gradient entry is below it, or a step changes the loss by less than this fraction.
    callback : callable(iteration, loss, x) or None
        Called after each step; returning True stops.

    Returns
    -------
    Minimum. Cost of an iteration: one gradient, rarely more, and two passes over the history; memory
    `2 history + 5` copies of `x`.

    >>> found = lbfgs(lambda x: (x - 3).square().sum(), torch.zeros(2), iterations=20)
    >>> found.x
    tensor([3., 3.])
    """
    if memory is not None and memory.captured:
        from glocal.optim.cuda_history import DeviceHistory, captured_lbfgs

        assert isinstance(memory, DeviceHistory)
        return captured_lbfgs(
            objective, x, iterations=iterations, memory=memory, first=first, tolerance=tolerance, callback=callback
        )
    x = x.detach().clone()
    loss, gradient = value_and_gradient(objective, x)
    value, evaluations, reason = float(loss), 1, "iterations"
    losses = [value]
    memory = History(gradient, history) if memory is None else memory
    for iteration in range(iterations):
        direction, slope = memory.direction(gradient)
        if not slope < 0 or (tolerance > 0 and not float(gradient.abs().max()) > tolerance):
            reason = "gradient"
            break
        step = 1.0 if memory.pairs else _first_step(gradient, first)
        found = None
        for _ in range(20):
            trial = torch.add(x, direction, alpha=step)
            trial_loss, trial_gradient = value_and_gradient(objective, trial)
            trial_value = float(trial_loss)
            evaluations += 1
            if trial_value <= value + 1e-4 * step * slope:
                found = (trial, trial_value, trial_gradient)
                break
            step = shorter_step(step, value, slope, trial_value)
        if found is None:
            reason = "line search"
            break
        memory.add(found[0], x, found[2], gradient)
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


def _first_step(gradient: Tensor, first: float | None) -> float:
    if first is None:
        return min(1.0, 1.0 / float(gradient.abs().sum()))
    return first / float(gradient.abs().max())


def shorter_step(step: float, value: float, slope: float, trial: float) -> float:
    """Where the parabola through value, slope and trial is least, kept between a tenth and a half of the step."""
    excess = trial - value - step * slope
    best = -slope * step * step / (2 * excess) if excess > 0 and trial < float("inf") else 0.0
    return min(max(best, 0.1 * step), 0.5 * step)


class History:
    """The last pairs (step, gradient change), and the two-loop recursion on their inner products.

    Every vector of the recursion is a combination of the stored vectors and the gradient. So the inner products are
    computed first, the recursion runs on some hundred numbers, and one product gives the direction: two passes over the
    memory, where the plain recursion makes `4 history` passes over single vectors.
    """

    captured = False  # whether iterations are recorded launches on a GPU

    def __init__(self, x: Tensor, history: int) -> None:
        if history < 1:
            message = f"History: `history` (={history}) must be positive. 10 is usual."
            raise ArgumentError(message)
        # Rows: steps, gradient changes, and the gradient last. One slot is spare: a pair is written before it is judged.
        self.slots, self.history = history + 1, history
        self.rows = torch.zeros(2 * self.slots + 1, x.numel(), dtype=x.dtype, device=x.device)
        self.dots = torch.zeros(len(self.rows), len(self.rows), dtype=torch.float64)
        self.pairs: list[int] = []  # slots in use, oldest first
        self.fresh: list[int] = []  # rows whose inner products are not known yet

    def add(self, after: Tensor, before: Tensor, gradient_after: Tensor, gradient_before: Tensor) -> None:
        """Keep the pair of two points, in place of the oldest one if all are taken, unless its curvature is not positive."""
        slot = next(slot for slot in range(self.slots) if slot not in self.pairs)
        change, turn = self.rows[slot], self.rows[self.slots + slot]
        torch.sub(after.reshape(-1), before.reshape(-1), out=change)
        torch.sub(gradient_after.reshape(-1), gradient_before.reshape(-1), out=turn)
        curvature, square = torch.stack([change @ turn, turn @ turn]).tolist()  # a GPU is waited for once
        if not curvature > 1e-10 * square:
            change.zero_(), turn.zero_()  # what is not used is multiplied by 0, and must be finite
            return
        self.pairs = [*self.pairs, slot][-self.history :]
        self.fresh += [slot, self.slots + slot]

    def state(self) -> dict[str, Tensor]:
        """What is remembered, as tensors that share no memory with it: `load` brings it back to the bit."""
        used = [*self.pairs, *(self.slots + slot for slot in self.pairs)]
        kept = {
            "pairs": torch.tensor(self.pairs, dtype=torch.int64),
            "fresh": torch.tensor(self.fresh, dtype=torch.int64),
        }
        return kept | {"rows": self.rows[used].cpu(), "dots": self.dots.clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Remember what `state` returned."""
        self.pairs, self.fresh = state["pairs"].tolist(), state["fresh"].tolist()
        used = [*self.pairs, *(self.slots + slot for slot in self.pairs)]
        self.rows[used] = state["rows"].to(self.rows)
        self.dots.copy_(state["dots"])

    def direction(self, gradient: Tensor) -> tuple[Tensor, float]:
        """`-H g` and its slope `-g'Hg`, which is negative: if rounding spoils that, the history is dropped."""
        m, last = self.slots, 2 * self.slots
        self.rows[last] = gradient.reshape(-1)
        new = [*self.fresh, last]
        products = select.pick("products", self.rows.device)(self.rows, new)
        self.dots[new], self.dots[:, new] = products.T, products
        self.fresh.clear()
        dots = self.dots.numpy()  # some hundred numbers: NumPy is quicker with them than torch
        combination = np.zeros(last + 1)
        combination[last] = -1
        factors = []
        for slot in reversed(self.pairs):
            factors.append(dots[slot] @ combination / dots[slot, m + slot])
            combination[m + slot] -= factors[-1]
        if self.pairs:
            newest = self.pairs[-1]
            combination *= dots[newest, m + newest] / dots[m + newest, m + newest]
        for slot, factor in zip(self.pairs, reversed(factors), strict=True):
            combination[slot] += factor - dots[m + slot] @ combination / dots[slot, m + slot]
        slope = float(dots[last] @ combination)
        if not slope < 0:
            self.pairs.clear()
            return -gradient, -float(dots[last, last])
        direction = select.pick("combine", self.rows.device)(torch.from_numpy(combination), self.rows)
        return direction.view_as(gradient), slope


def coarse_to_fine(
    problems: Iterable[Callable[[Tensor | None], tuple[Objective, Tensor]]],
    solve: Callable[[int, Objective, Tensor], Minimum],
) -> list[Minimum]:
    """Minimise a row of problems, each started from the result of the one before.

    Parameters
    ----------
    problems : iterable of callables
        Problem `k` is called with the result of problem `k - 1` (None for the first) and returns its objective and its
        start, e.g. the result scaled up. It is called only when its turn comes, so one level is in memory at a time.
    solve : callable(k, objective, start) -> Minimum
        For instance `lambda k, f, x: lbfgs(f, x, iterations=300)`. A minimum whose reason is "stopped" ends the run.

    Returns
    -------
    The minimum of each problem that was solved.

    >>> finer = lambda x: (lambda y: (y - 1).square().sum(), torch.zeros(1) if x is None else x.repeat(2))
    >>> [m.x.tolist() for m in coarse_to_fine([finer, finer], lambda k, f, x: lbfgs(f, x, iterations=9))]
    [[1.0], [1.0, 1.0]]
    """
    found: list[Minimum] = []
    for k, problem in enumerate(problems):
        objective, start = problem(found[-1].x if found else None)
        found.append(solve(k, objective, start))
        if found[-1].reason == "stopped":
            break
    return found
