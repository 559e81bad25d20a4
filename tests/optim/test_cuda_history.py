"""L-BFGS on a GPU: its recursion and its recorded iterations are those of the plain one.

Without a GPU, Triton's interpreter runs the kernels, and work that would be recorded is simply done again.
"""

import pytest
import torch

pytest.importorskip("triton", reason="there is no Triton for this system")

from glocal.optim import cuda_history
from glocal.optim.cuda_history import DeviceHistory
from glocal.optim.history import History
from glocal.optim.lbfgs import lbfgs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_the_recursion_on_the_gpu_equals_that_on_the_host():
    """Over more steps than are remembered; the fifth has no curvature and is not kept."""
    make = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, dtype=torch.float64, generator=make)
    matrix = (root @ root.T + 0.1 * torch.eye(12)).to(DEVICE)
    x = torch.randn(12, dtype=torch.float64, generator=make).to(DEVICE)
    gradient = matrix @ x
    host, device = History(x, 3), DeviceHistory(x, 3)
    pair = None
    for step in range(9):
        if pair is not None:
            host.add(x, x - pair[0], gradient, gradient - pair[1])
        expected, slope = host.direction(gradient)
        torch.testing.assert_close(device.turn(gradient, pair), expected)
        assert float(device.slope) == pytest.approx(slope)
        assert int(device.ring[1]) == len(host.pairs)
        moved = 0.0 if step == 4 else 0.15
        pair = moved * expected, matrix @ (x + moved * expected) - gradient
        x, gradient = x + pair[0], gradient + pair[1]
    again, other = DeviceHistory(x, 3), DeviceHistory(x, 3)
    again.load(device.state())
    assert torch.equal(again.turn(gradient, None), device.turn(gradient, None))
    host.pairs = host.pairs[::-1]  # not in the order of the ring
    other.load(host.state())
    torch.testing.assert_close(other.turn(gradient, None), host.direction(gradient)[0])


class Replays:
    """Stands in for a recorded graph where there is no GPU: runs the work again."""

    def __init__(self, work):
        self.replay = work


@pytest.fixture
def recorded(monkeypatch):
    if DEVICE == "cpu":
        monkeypatch.setattr(cuda_history, "recorded", lambda work: (work(), Replays(work))[1])


def valley(x):
    return (x[1:] - x[:-1] ** 2).square().sum() * 3 + (1 - x).square().sum()


def hilltop(x):
    return x.cos().sum()


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("objective", "first"),
    [(valley, 0.1), (valley, 50.0), (valley, None), (hilltop, 0.01)],  # the second is far too long a step
)
def test_recorded_iterations_are_those_of_lbfgs(objective, first):
    """On a hilltop the first pairs have no positive curvature and are not kept."""
    start = torch.linspace(-1, 1, 6, dtype=torch.float64, device=DEVICE) * (1 if objective is valley else 0.01)
    seen: list[float] = []
    plain = lbfgs(objective, start, iterations=25, history=4, first=first)
    ours = lbfgs(
        objective, start, iterations=25, history=DeviceHistory(start, 4), first=first, callback=lambda k, v, x: seen.append(v)
    )  # fmt: skip
    assert ours.reason == plain.reason
    assert ours.evaluations == plain.evaluations
    torch.testing.assert_close(torch.tensor(ours.losses), torch.tensor(plain.losses), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(ours.x, plain.x, rtol=1e-5, atol=1e-7)
    assert tuple(seen) == ours.losses[1:]
    stopped = lbfgs(
        objective, start, iterations=25, history=DeviceHistory(start, 4), first=first, callback=lambda *_: True
    )
    assert stopped.reason == "stopped"
    assert len(stopped.losses) == 2
    # Going on from what is remembered is the same as not having been interrupted.
    for pause in (2, 10):
        memory, again = DeviceHistory(start, 4), DeviceHistory(start, 4)
        half = lbfgs(objective, start, iterations=pause, history=memory, first=first)
        again.load(memory.state())
        rest = lbfgs(objective, half.x, iterations=25 - pause, history=again, first=first)
        torch.testing.assert_close(rest.x, ours.x)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("first", [None, 0.1])
def test_a_start_without_slope(first):
    start = torch.zeros(3, dtype=torch.float64, device=DEVICE)
    found = lbfgs(lambda x: x.square().sum(), start, iterations=5, history=DeviceHistory(start, 4), first=first)
    assert found.reason == "gradient"
    assert found.losses == (0.0,)
