"""The history of L-BFGS, and the steps that it takes with one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.kernels import select
from glocal.optim.objectives import Objective, value_and_gradient


class History:
    """The last pairs (step, gradient change), and the two-loop recursion on their inner products.

    Every vector of the recursion is a combination of the stored vectors and the gradient. So the inner products are
    computed first, the recursion runs on a few hundred numbers, and one product gives the direction. This takes two
    passes over the stored vectors; the plain recursion takes `4 history` passes over single vectors.

    Parameters
    ----------
    x : Tensor
        Any tensor with the shape, dtype and device of the gradients.
    history : int
        The number of pairs to keep. Memory: `2 history + 3` copies of `x`.

    Raises
    ------
    ArgumentError
        `history` is not positive.
    """

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

    def search(self, objective: Objective, x: Tensor, gradient: Tensor, first: float | None) -> Search:
        """Start a search from `x`, where the objective has this gradient. `first` is explained in `lbfgs`."""
        return Search(self, objective, x, gradient, first)

    def add(self, after: Tensor, before: Tensor, gradient_after: Tensor, gradient_before: Tensor) -> None:
        """Keep the pair of two points if its curvature is positive. It replaces the oldest pair if the history is full."""
        slot = next(slot for slot in range(self.slots) if slot not in self.pairs)
        change, turn = self.rows[slot], self.rows[self.slots + slot]
        torch.sub(after.reshape(-1), before.reshape(-1), out=change)
        torch.sub(gradient_after.reshape(-1), gradient_before.reshape(-1), out=turn)
        curvature, square = torch.stack([change @ turn, turn @ turn]).tolist()  # waits for a GPU only once
        if not curvature > 1e-10 * square:
            change.zero_(), turn.zero_()  # unused rows are multiplied by 0, so they must be finite
            return
        self.pairs = [*self.pairs, slot][-self.history :]
        self.fresh += [slot, self.slots + slot]

    def state(self) -> dict[str, Tensor]:
        """Return the pairs as tensors that share no memory with the history. `load` restores them to the bit."""
        used = [*self.pairs, *(self.slots + slot for slot in self.pairs)]
        kept = {
            "pairs": torch.tensor(self.pairs, dtype=torch.int64),
            "fresh": torch.tensor(self.fresh, dtype=torch.int64),
        }
        return kept | {"rows": self.rows[used].cpu(), "dots": self.dots.clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.pairs, self.fresh = state["pairs"].tolist(), state["fresh"].tolist()
        used = [*self.pairs, *(self.slots + slot for slot in self.pairs)]
        self.rows[used] = state["rows"].to(self.rows)
        self.dots.copy_(state["dots"])

    def direction(self, gradient: Tensor) -> tuple[Tensor, float]:
        """Return `-H g` and its slope `-g'Hg`, which is negative. If rounding spoils that, the pairs are dropped."""
        m, last = self.slots, 2 * self.slots
        self.rows[last] = gradient.reshape(-1)
        new = [*self.fresh, last]
        products = select.pick("products", self.rows.device)(self.rows, new)
        self.dots[new], self.dots[:, new] = products.T, products
        self.fresh.clear()
        dots = self.dots.numpy()  # a few hundred numbers: NumPy is faster with them than torch
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


class Search:
    """The current point of L-BFGS, and the three moves of an iteration: `aim`, `attempt`, `accept`.

    Attributes
    ----------
    x, gradient : Tensor
        The current point and the gradient there.
    """

    def __init__(
        self, history: History, objective: Objective, x: Tensor, gradient: Tensor, first: float | None
    ) -> None:
        self.history, self.objective, self.first = history, objective, first
        self.x, self.gradient = x.detach().clone(), gradient
        self.direction = self.trial = self.trial_gradient = x

    def aim(self) -> tuple[float, float]:
        """Choose a direction. Return its slope and the first step length to attempt."""
        self.direction, slope = self.history.direction(self.gradient)
        if self.history.pairs or not slope < 0:
            return slope, 1.0
        if self.first is None:
            return slope, min(1.0, 1.0 / float(self.gradient.abs().sum()))
        return slope, self.first / float(self.gradient.abs().max())

    def attempt(self, step: float) -> float:
        """Return the loss at `x + step * direction`."""
        self.trial = torch.add(self.x, self.direction, alpha=step)
        loss, self.trial_gradient = value_and_gradient(self.objective, self.trial)
        return float(loss)

    def accept(self) -> None:
        """Move to the point that was attempted last, and remember the step."""
        self.history.add(self.trial, self.x, self.trial_gradient, self.gradient)
        self.x, self.gradient = self.trial, self.trial_gradient
