"""A training loop that can be stopped and resumed with the same result.

Everything random in a step comes from `glocal.training.draws`. Checkpoints are safetensors; the log is one JSON object a
line. Nothing here knows what is trained.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glocal.atomic import write_whole
from glocal.errors import ArgumentError, InputError
from glocal.machine import machine, now
from glocal.training.ranks import ALONE, Ranks

_QUEUE = 20  # steps between waits for a GPU
_ASK = 16  # steps between questions whether to stop, which all processes have to answer alike


@dataclass(frozen=True)
class Stage:
    """One training run: `steps` ADAM steps at the step size `rate`, validated every `every` steps.

    Step `s` uses the examples `s batch` to `s batch + batch - 1`.
    """

    name: str
    steps: int
    rate: float
    every: int = 100
    batch: int = 1

    def __post_init__(self) -> None:
        if min(self.steps, self.every, self.batch) < 1 or not self.rate > 0:
            message = (
                f"Stage: `steps` (={self.steps}), `every` (={self.every}), `batch` (={self.batch}) and `rate` (={self.rate}) "
                "must be positive. Train on more data or for more epochs."
            )
            raise ArgumentError(message)


@dataclass(frozen=True)
class Record:
    """One line of the log: the mean loss since the last line (None at the start) and the validation score."""

    stage: str
    step: int
    loss: float | None
    validation: float
    seconds: float


@dataclass(frozen=True)
class StepProgress:
    """The state of a training run, reported a few times a second."""

    stage: str
    step: int
    steps: int
    seconds: float
    seconds_left: float
    last: Record | None


StepCallback = Callable[[StepProgress], bool | None]
"""Called a few times a second during a training; returning True stops it."""


@dataclass(frozen=True)
class Fitted:
    """The result of a training run: the last step, whether it is finished, and its log."""

    step: int
    finished: bool
    records: tuple[Record, ...]


def repeat(
    advance: Callable[[int], object],
    *,
    done: int,
    steps: int,
    every: int,
    each: Callable[[int, float], object],
    ask: Callable[[int, float], bool] | None = None,
    seconds: float = math.inf,
    device: torch.device | None = None,
) -> int:
    """Do the steps of a training that are left: the one loop of all trainings.

    Parameters
    ----------
    advance : callable(step)
        Does one step, counted from 0.
    done, steps : int
        The number of steps that are done, and of all steps.
    every : int
        Steps between calls of `each`.
    each : callable(done, seconds)
        Validates, writes and reports; also called after the last step. The seconds are those of this call.
    ask : callable(done, seconds) -> bool, optional
        Called after each step; returning True stops.
    seconds : float
        The time limit of this call.
    device : torch.device, optional
        If it is a GPU, it is waited for every 20 steps: otherwise its queue grows, and the clock is of no use.

    Returns
    -------
    int
        The number of steps that are done.

    Examples
    --------
    >>> seen = []
    >>> repeat(seen.append, done=2, steps=5, every=2, each=lambda done, seconds: seen.append(f"after {done}"))
    5
    >>> seen
    [2, 3, 'after 4', 4, 'after 5']
    """
    cuda = device is not None and device.type == "cuda"
    began = time.perf_counter()
    while done < steps and (seconds == math.inf or time.perf_counter() - began < seconds):
        advance(done)
        done += 1
        if cuda and done % _QUEUE == 0:
            torch.cuda.synchronize(device)
        spent = time.perf_counter() - began
        if done % every == 0 or done == steps:
            each(done, spent)
        if ask is not None and ask(done, spent):
            break
    if cuda:
        torch.cuda.synchronize(device)
    return done


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    stage: Stage,
    *,
    validate: Callable[[], float],
    folder: Path | None = None,
    progress: StepCallback | None = None,
    ranks: Ranks = ALONE,
) -> Fitted:
    """Minimise the mean of `loss(example)` over the parameters of `model` by ADAM, projecting after each step.

    If `model` has a method `project`, it is called after each step.

    Parameters
    ----------
    loss : callable(example) -> scalar Tensor
        The loss of one example; must depend on its number and the parameters only (see `Draws`).
    validate : callable() -> float
        The score that is logged before the first step, every `stage.every` steps and at the end.
    folder : Path or None
        Where `NAME.jsonl` (the log), `NAME.origin.json` (when it was started, on what) and
        `NAME.checkpoint.safetensors` go. A checkpoint found there is continued; on the CPU the result then equals an
        uninterrupted run to the bit.
    progress : callable or None
        Called a few times a second; returning True saves a checkpoint and stops.
    ranks : Ranks
        The processes that share each batch. All of them call `fit` with the same arguments; the first one writes.
        A checkpoint can be continued by another number of processes.

    Returns
    -------
    Fitted; the model is changed in place. Cost: three times that of the loss for each step.

    Examples
    --------
    >>> model = nn.Linear(1, 1)
    >>> fit(model, lambda step: (model.weight - 2).square().sum(), Stage("demo", 4, 0.1), validate=lambda: 0.0).step
    4
    """
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=stage.rate, fused=parameters[0].is_cuda)
    project: Callable[[], None] | None = getattr(model, "project", None)
    state = _State(model, optimizer, stage, folder, writes=ranks.first)
    mine = ranks.share(stage.batch)

    def batch_loss(step: int) -> Tensor:
        losses = [loss(step * stage.batch + number) for number in mine]
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    first, total = state.load()
    ranks.wait()  # the first process may only write once all have read
    step_loss = ranks.together(model, batch_loss)
    if first == 0:
        state.begin()
        state.record(0, None, validate(), 0.0)
    reported, stop = 0.0, False

    def advance(step: int) -> None:
        nonlocal total
        optimizer.zero_grad(set_to_none=True)
        value = step_loss(step)
        value.backward()
        optimizer.step()
        if project is not None:
            project()
        total = total + value.detach()

    def each(done: int, seconds: float) -> None:
        nonlocal total
        state.record(done, float(ranks.mean(total)) / (done % stage.every or stage.every), validate(), seconds)
        total = torch.zeros_like(total)
        state.save(done, total)

    def ask(done: int, seconds: float) -> bool:
        nonlocal reported, stop
        if progress is not None and (seconds - reported > 0.25 or done == stage.steps):
            reported = seconds
            left = seconds / (done - first) * (stage.steps - done)
            last = state.records[-1] if state.records else None
            stop = bool(progress(StepProgress(stage.name, done, stage.steps, seconds, left, last))) or stop
        return (ranks.count == 1 or done % _ASK == 0) and ranks.agreed(stop, total.device)

    done = repeat(advance, done=first, steps=stage.steps, every=stage.every, each=each, ask=ask, device=total.device)
    if done < stage.steps:
        state.save(done, ranks.mean(total))
    return Fitted(done, done == stage.steps, tuple(state.records))


def same_options(path: Path, wanted: dict[str, Any], *, writes: bool) -> None:
    """Refuse to continue a training with other options than those in `path`. Record the options of a new one.

    Raises
    ------
    ArgumentError
        If the file has other options, or cannot be read.
    """
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = "options that cannot be read"
        if found != wanted:
            message = f"train: {str(path.parent)!r} has a training with {found}, not {wanted}. Use another folder."
            raise ArgumentError(message)
    elif writes:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(path) as temporary:
            temporary.write_text(json.dumps(wanted) + "\n", encoding="utf-8")


def read_log(path: Path) -> list[Record]:
    """Read the records of a `.jsonl` log that `fit` wrote. Raises InputError for anything else."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Record(**json.loads(line)) for line in lines if line.strip()]
    except OSError as error:
        message = f"read_log: cannot read {str(path)!r}: {error}. Check the path."
        raise InputError(message) from error
    except (ValueError, TypeError) as error:
        message = f"read_log: {str(path)!r} is not a training log ({error}). Give a .jsonl file of a training folder."
        raise InputError(message) from error


class _State:
    """The files of a run: parameters, ADAM's moments and the log, all at the same step."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Adam, stage: Stage, folder: Path | None, *, writes: bool
    ) -> None:
        self.model, self.optimizer, self.stage, self.folder = model, optimizer, stage, folder
        self.writes = writes and folder is not None
        self.names = [name for name, _ in model.named_parameters()]
        self.records: list[Record] = []

    def path(self, suffix: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.stage.name}{suffix}"

    def begin(self) -> None:
        if self.writes and self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            origin = {"date": now(), "machine": machine(next(self.model.parameters()).device)}
            self.path(".origin.json").write_text(json.dumps(origin) + "\n", encoding="utf-8")

    def record(self, step: int, loss: float | None, validation: float, seconds: float) -> None:
        if loss is not None and not math.isfinite(loss):
            message = (
                f"fit: the loss of stage {self.stage.name!r} is not finite at step {step}. Use a smaller step size."
            )
            raise InputError(message)
        self.records.append(Record(self.stage.name, step, loss, validation, round(seconds, 3)))
        if self.writes:
            with self.path(".jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(self.records[-1])) + "\n")

    def save(self, step: int, total: Tensor) -> None:
        if not self.writes:
            return
        from safetensors.torch import save_file

        tensors = {f"model.{name}": t.detach().cpu() for name, t in self.model.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{self.names[index]}.{key}": t.detach().cpu() for key, t in moments.items()}
        tensors |= {"step": torch.tensor(step), "total": total.detach().cpu()}
        with write_whole(self.path(".checkpoint.safetensors"), overwrite=True) as temporary:
            save_file({name: t.clone().contiguous() for name, t in tensors.items()}, temporary)

    def load(self) -> tuple[int, Tensor]:
        """Continue from the checkpoint, if there is one; later lines of the log are dropped."""
        device = next(self.model.parameters()).device
        checkpoint = None if self.folder is None else self.path(".checkpoint.safetensors")
        if checkpoint is None or not checkpoint.exists():
            if self.writes:
                self.path(".jsonl").unlink(missing_ok=True)
            return 0, torch.zeros((), device=device)
        step, total = self._read(checkpoint, device)
        if not self.writes:
            return step, total
        self.records = [r for r in read_log(self.path(".jsonl")) if r.step <= step]
        lines = [json.dumps(asdict(r)) + "\n" for r in self.records]
        self.path(".jsonl").write_text("".join(lines), encoding="utf-8")
        return step, total

    def _read(self, checkpoint: Path, device: torch.device) -> tuple[int, Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tensors = load_file(checkpoint, device=str(device))
            self.model.load_state_dict({name: tensors[f"model.{name}"] for name in self.model.state_dict()})
            moments: dict[int, dict[str, Any]] = {}
            for index, name in enumerate(self.names):
                moments[index] = {key: tensors[f"adam.{name}.{key}"] for key in ("step", "exp_avg", "exp_avg_sq")}
            step, total = int(tensors["step"]), tensors["total"].reshape(())
            if step < 0:
                raise ValueError("its step is negative")
        except (OSError, SafetensorError, KeyError, RuntimeError, ValueError, OverflowError) as error:
            message = (
                f"fit: {str(checkpoint)!r} is damaged or belongs to another model ({error}). "
                "Delete it to start this stage again."
            )
            raise InputError(message) from error
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        return step, total
