"""The shared training loop: resuming, the log, the random numbers and every message."""

import contextlib
import json

import pytest
import torch
from torch import nn

from glocal.errors import ArgumentError, InputError
from glocal.training.draws import Draws
from glocal.training.loop import Stage, fit, read_log


class Slope(nn.Module):
    """y = a x with a >= 0: the smallest model with a constraint."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([1.0, -0.5]))
        self.projected = 0

    @torch.no_grad()
    def project(self) -> None:
        self.projected += 1
        self.a.clamp_(min=0)


def problem(model, target=3.0):
    draws = Draws(7, "demo")

    def loss(step):
        x = 1 + 0.1 * draws.normal(step, (4,))
        scale = 1 + draws.example(step, 5)
        return ((model.a[0] - target) * x * scale).square().sum() + (model.a[1] + 2).square()

    return loss, lambda: -float((model.a[0].detach() - target).abs())


def run(folder, steps=23, stop_at=None, every=5):
    model = Slope()
    loss, validate = problem(model)
    seen = []

    def counted(step):
        seen.append(step)
        if stop_at is not None and step == stop_at:
            raise KeyboardInterrupt
        return loss(step)

    ended = None
    with contextlib.suppress(KeyboardInterrupt):
        ended = fit(model, counted, Stage("demo", steps, 0.05, every), validate=validate, folder=folder)
    return model, ended, seen


def without_seconds(path):
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in path.read_text().splitlines()]


def test_interrupted_run_ends_bit_for_bit_like_an_uninterrupted_one(tmp_path):
    whole, ended, _ = run(tmp_path / "whole")
    assert ended.finished
    assert ended.step == 23
    run(tmp_path / "parts", stop_at=13)
    resumed, ended, seen = run(tmp_path / "parts")
    assert seen[0] == 10  # the last checkpoint, not the start
    assert ended.finished
    assert torch.equal(resumed.a, whole.a)
    logs = [without_seconds(tmp_path / name / "demo.jsonl")[1:] for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    assert [line["step"] for line in logs[0]] == [5, 10, 15, 20, 23]


def test_the_folder_says_when_and_on_what_a_run_was_started(tmp_path):
    run(tmp_path, stop_at=13)
    origin = json.loads((tmp_path / "demo.origin.json").read_text())
    assert origin["date"].endswith(" UTC")
    assert f"torch {torch.__version__}" in origin["machine"]
    (tmp_path / "demo.origin.json").write_text('{"date": "before"}')
    run(tmp_path)  # goes on: its start stays what it was
    assert json.loads((tmp_path / "demo.origin.json").read_text()) == {"date": "before"}


def test_progress_can_stop_between_checkpoints_and_the_loss_mean_survives(tmp_path, monkeypatch):
    whole, ended, _ = run(tmp_path / "whole")
    clock = iter(range(10**6))
    monkeypatch.setattr("glocal.training.loop.time.perf_counter", lambda: float(next(clock)))
    model = Slope()
    loss, validate = problem(model)
    told = []
    stop = lambda p: told.append(p.step) or p.step == 7  # noqa: E731
    half = fit(model, loss, Stage("demo", 23, 0.05, 5), validate=validate, folder=tmp_path / "parts", progress=stop)
    assert (half.step, half.finished) == (7, False)
    assert told == [1, 2, 3, 4, 5, 6, 7]
    resumed, again, seen = run(tmp_path / "parts")
    assert seen[0] == 7
    assert torch.equal(resumed.a, whole.a)
    assert [r.loss for r in again.records[1:]] == pytest.approx([r.loss for r in ended.records[1:]], rel=1e-6)


def test_projects_after_every_step_and_learns():
    model, ended, _ = run(None, steps=300, every=100)
    assert model.projected == 300
    assert model.a[1] == 0  # its best value, -2, is not allowed
    assert abs(float(model.a[0].detach()) - 3) < 0.02
    assert [r.step for r in ended.records] == [0, 100, 200, 300]
    assert ended.records[-1].loss < ended.records[1].loss


def test_every_epoch_is_a_permutation_and_epochs_differ():
    draws = Draws(0, "order")
    epochs = [[draws.example(step, 20) for step in range(start, start + 20)] for start in (0, 20, 40)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_noise_differs_between_steps_seeds_and_streams():
    draws = [
        Draws(0, "a").normal(0, (8,)),
        Draws(0, "a").normal(1, (8,)),
        Draws(1, "a").normal(0, (8,)),
        Draws(0, "b").normal(0, (8,)),
    ]
    assert len({tuple(d.tolist()) for d in draws}) == 4
    assert abs(float(Draws(0, "a").normal(5, (10000,)).std()) - 1) < 0.03


def test_diverging_loss_is_named(tmp_path):
    model = Slope()
    with pytest.raises(InputError, match=r"loss of stage 'demo' is not finite at step 2. Use a smaller step size"):
        fit(model, lambda step: model.a.sum() * float("nan"), Stage("demo", 4, 1.0, 2), validate=lambda: 0.0)


def test_damaged_checkpoint_is_named(tmp_path):
    run(tmp_path)
    (tmp_path / "demo.checkpoint.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    with pytest.raises(InputError, match=r"is damaged or belongs to another model .* Delete it"):
        run(tmp_path)


def test_log_messages(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*Check the path"):
        read_log(tmp_path / "no.jsonl")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(InputError, match=r"is not a training log"):
        read_log(tmp_path / "x.jsonl")


def test_stage_refuses_nothing_to_do():
    with pytest.raises(ArgumentError, match=r"`steps` \(=0\).*must be positive"):
        Stage("demo", 0, 0.1)
