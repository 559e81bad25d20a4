"""L-BFGS on a GPU: an iteration is two recorded launches, and the host waits once, for three numbers.

The steps are those of `glocal.optim.lbfgs.lbfgs`. What that computes on the host from inner products, one small kernel
computes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import torch
from torch import Tensor

from glocal.optim.lbfgs import History, Minimum, Objective, shorter_step, value_and_gradient


class DeviceHistory(History):
    """A `History` whose pairs follow one another in a ring that the GPU itself turns."""

    captured = True

    def __init__(self, x: Tensor, history: int) -> None:
        super().__init__(x, history)
        wide = len(self.rows)
        self.ring = torch.zeros(2, dtype=torch.int32, device=x.device)  # the slot written next, the pairs before it
        self.factors = torch.zeros(wide, dtype=torch.float64, device=x.device)
        self.slope = torch.zeros((), dtype=torch.float64, device=x.device)

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
        """How long the step along what `turn` returned shall be: 1, or that of a first step (see `lbfgs`) where there are no pairs."""
        sizes = gradient.abs()
        plain = (1 / sizes.sum()).clamp(max=1) if first is None else first / sizes.max()
        return torch.where(self.ring[1] > 0, torch.ones_like(self.slope), plain.double())

    def direction(self, gradient: Tensor) -> tuple[Tensor, float]:
        """As `History.direction`."""
        return self.turn(gradient, None), float(self.slope)

    def add(self, after: Tensor, before: Tensor, gradient_after: Tensor, gradient_before: Tensor) -> None:
        """As `History.add`."""
        self.turn(gradient_after, (after - before, gradient_after - gradient_before))

    def state(self) -> dict[str, Tensor]:
        """As `History.state`; inner products are computed anew."""
        head, count = self.ring.tolist()
        self.pairs = [(head - count + j) % self.slots for j in range(count)]
        self.fresh = [*self.pairs, *(self.slots + slot for slot in self.pairs)]
        return super().state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Remember what `state` returned, also that of a plain `History`."""
        super().load(state)
        old = self.pairs
        head = (old[-1] + 1) % self.slots if old else 0
        ring = [(head - len(old) + j) % self.slots for j in range(len(old))]
        if ring != old:  # a plain history that was once dropped
            rows = self.rows[[*old, *(self.slots + slot for slot in old)]].clone()
            self.rows[[*ring, *(self.slots + slot for slot in ring)]] = rows
        self.ring.copy_(torch.tensor([head, len(old)]))


def captured_lbfgs(
    objective: Objective,
    x: Tensor,
    *,
    iterations: int,
    memory: DeviceHistory,
    first: float | None,
    tolerance: float = 0.0,
    callback: Callable[[int, float, Tensor], bool | None] | None = None,
) -> Minimum:
    """`lbfgs` for an objective that launches the same work at every point and never waits for the GPU."""
    x = x.detach().clone()
    loss, gradient = value_and_gradient(objective, x)
    value, evaluations = float(loss), 1
    losses, reason = [value], "iterations"
    direction = memory.turn(gradient, None)
    step = memory.length(gradient, first)
    trial, turned, seen = x.clone(), gradient.clone(), torch.zeros(3, dtype=torch.float64, device=x.device)

    def evaluate() -> None:
        torch.add(x, direction * step, out=trial)
        value, slope = value_and_gradient(objective, trial)
        turned.copy_(slope)
        torch.stack([value.double(), memory.slope, step], out=seen)

    def accept() -> None:
        direction.copy_(memory.turn(turned, (trial - x, turned - gradient)))
        x.copy_(trial)
        gradient.copy_(turned)
        step.copy_(memory.length(gradient, first))

    changed = (x, gradient, direction, step, memory.rows, memory.ring, memory.slope)
    before = [tensor.clone() for tensor in changed]
    launches = [_recorded(work) for work in (evaluate, accept)]
    for tensor, old in zip(changed, before, strict=True):
        tensor.copy_(old)
    del before
    for iteration in range(iterations):
        launches[0].replay()
        trial_value, slope, length = seen.tolist()
        evaluations += 1
        if not slope < 0 or (tolerance > 0 and not float(gradient.abs().max()) > tolerance):
            reason = "gradient"
            break
        for _ in range(19):
            if trial_value <= value + 1e-4 * length * slope:
                break
            length = shorter_step(length, value, slope, trial_value)
            step.fill_(length)
            launches[0].replay()
            trial_value = seen.tolist()[0]
            evaluations += 1
        if not trial_value <= value + 1e-4 * length * slope:
            reason = "line search"
            break
        launches[1].replay()
        fell, value = value - trial_value, trial_value
        losses.append(value)
        if callback is not None and callback(iteration + 1, value, x):
            reason = "stopped"
            break
        if fell <= tolerance * max(abs(value), 1e-30):
            reason = "loss"
            break
    return Minimum(x, tuple(losses), evaluations, reason)


def _recorded(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Record what a function launches. It runs twice before, to compile kernels and to find out what is then known."""
    aside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            work()
        aside.synchronize()
        graph.capture_begin()
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # what went wrong inside is what counts
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(aside)
    return graph
