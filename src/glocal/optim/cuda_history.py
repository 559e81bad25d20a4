"""L-BFGS on a GPU: an iteration is two recorded launches, and the host waits once, for three numbers.

The steps are those of `History` and `Search`. One small kernel does the recursion that `History` does on the host.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from glocal.optim.history import History, Search
from glocal.optim.objectives import Objective, value_and_gradient
from glocal.optim.recording import recorded


class DeviceHistory(History):
    """A `History` whose pairs are a ring buffer that the GPU itself advances.

    Give it to `lbfgs` with an objective that launches the same work at every point and never waits for the GPU.
    """

    def __init__(self, x: Tensor, history: int) -> None:
        super().__init__(x, history)
        wide = len(self.rows)
        self.ring = torch.zeros(2, dtype=torch.int32, device=x.device)  # the slot written next, the number of pairs
        self.factors = torch.zeros(wide, dtype=torch.float64, device=x.device)
        self.slope = torch.zeros((), dtype=torch.float64, device=x.device)

    def search(self, objective: Objective, x: Tensor, gradient: Tensor, first: float | None) -> Search:
        """Start a search whose iterations are recorded launches."""
        return RecordedSearch(self, objective, x, gradient, first)

    def turn(self, gradient: Tensor, pair: tuple[Tensor, Tensor] | None) -> Tensor:
        """Keep a pair (step, gradient change), if there is one, and return `-H g`; its slope is in `self.slope`."""
        from glocal.kernels.cuda.operations import inner_products
        from glocal.kernels.cuda.vector_kernels import recursion

        if pair is not None:
            place = self.ring[:1].long()
            for rows, vector in zip((self.rows[: self.slots], self.rows[self.slots : -1]), pair, strict=True):
                rows.index_copy_(0, place, vector.reshape(1, -1).to(rows))
        self.rows[-1] = gradient.reshape(-1)
        dots = inner_products(self.rows)
        lanes = 1 << (len(dots) - 1).bit_length()
        recursion[(1,)](
            dots, self.ring, self.factors, self.slope, SLOTS=self.slots, LANES=lanes, ADD=pair is not None, num_warps=1
        )
        return (self.factors.to(self.rows) @ self.rows).view_as(gradient)

    def length(self, gradient: Tensor, first: float | None) -> Tensor:
        """Return the first step length along the result of `turn`: 1, or that of a first step if there are no pairs."""
        sizes = gradient.abs()
        plain = (1 / sizes.sum()).clamp(max=1) if first is None else first / sizes.max()
        return torch.where(self.ring[1] > 0, torch.ones_like(self.slope), plain.double())

    def direction(self, gradient: Tensor) -> tuple[Tensor, float]:
        """Do what `History.direction` does."""
        return self.turn(gradient, None), float(self.slope)

    def add(self, after: Tensor, before: Tensor, gradient_after: Tensor, gradient_before: Tensor) -> None:
        """Do what `History.add` does."""
        self.turn(gradient_after, (after - before, gradient_after - gradient_before))

    def state(self) -> dict[str, Tensor]:
        """Do what `History.state` does; inner products are computed again after `load`."""
        head, count = self.ring.tolist()
        self.pairs = [(head - count + j) % self.slots for j in range(count)]
        self.fresh = [*self.pairs, *(self.slots + slot for slot in self.pairs)]
        return super().state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned, also that of a plain `History`."""
        super().load(state)
        old = self.pairs
        head = (old[-1] + 1) % self.slots if old else 0
        ring = [(head - len(old) + j) % self.slots for j in range(len(old))]
        if ring != old:  # a plain history that once dropped its pairs
            rows = self.rows[[*old, *(self.slots + slot for slot in old)]].clone()
            self.rows[[*ring, *(self.slots + slot for slot in ring)]] = rows
        self.ring.copy_(torch.tensor([head, len(old)]))


class RecordedSearch(Search):
    """A `Search` whose `attempt` and `accept` are recorded once and replayed."""

    def __init__(
        self, history: DeviceHistory, objective: Objective, x: Tensor, gradient: Tensor, first: float | None
    ) -> None:
        super().__init__(history, objective, x, gradient.clone(), first)
        direction = history.turn(gradient, None)
        self.step = history.length(gradient, first)
        self.seen = torch.zeros(3, dtype=torch.float64, device=x.device)  # loss, slope, step length
        self.tried = (0.0, 0.0)  # a step length and its loss
        x, gradient, trial, trial_gradient = self.x, self.gradient, self.x.clone(), self.gradient.clone()

        def attempt() -> None:
            torch.add(x, direction * self.step, out=trial)
            loss, slope = value_and_gradient(objective, trial)
            trial_gradient.copy_(slope)
            torch.stack([loss.double(), history.slope, self.step], out=self.seen)

        def accept() -> None:
            direction.copy_(history.turn(trial_gradient, (trial - x, trial_gradient - gradient)))
            x.copy_(trial)
            gradient.copy_(trial_gradient)
            self.step.copy_(history.length(gradient, first))

        changed = (x, gradient, direction, self.step, history.rows, history.ring, history.slope)
        before = [tensor.clone() for tensor in changed]
        self.launches = [recorded(work) for work in (attempt, accept)]
        for tensor, old in zip(changed, before, strict=True):
            tensor.copy_(old)

    def aim(self) -> tuple[float, float]:
        """Return slope and step length. The step is attempted in the same launch, so that the host waits once."""
        self.launches[0].replay()
        loss, slope, step = self.seen.tolist()
        self.tried = (step, loss)
        return slope, step

    def attempt(self, step: float) -> float:
        """Return the loss at `x + step * direction`."""
        if step != self.tried[0]:
            self.step.fill_(step)
            self.launches[0].replay()
            self.tried = (step, self.seen.tolist()[0])
        return self.tried[1]

    def accept(self) -> None:
        """Move to the point that was attempted last, and remember the step."""
        self.launches[1].replay()
