"""Trainings and their test scores: of this run, or stored with command, seeds, date and machine in `runs/*.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.errors import InputError
from glocal.paper.source import Source
from glocal.training.scores import Score

FOLDER = Path(__file__).parent / "runs"
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Run:
    """A training with its results.

    Attributes
    ----------
    source
        Command, seeds, date and machine of the training.
    tested
        The same of the test.
    data
        The data set, in words.
    curves
        (step, validation score) for each training.
    epoch
        Steps of an epoch.
    scores
        Test scores by method: "noisy", "haar", "local", "nonlocal", "gain" and others.
    """

    source: Source
    tested: Source
    data: str
    curves: Mapping[str, Points]
    epoch: int
    scores: Mapping[str, Score]

    def as_dict(self) -> dict[str, Any]:
        """Return what `load_runs` reads."""
        return {
            "trained": _origin(self.source),
            "tested": _origin(self.tested),
            "data": self.data,
            "epoch": self.epoch,
            "curves": {name: [list(point) for point in points] for name, points in self.curves.items()},
            "scores": {name: asdict(score) for name, score in self.scores.items()},
        }


def _origin(source: Source) -> dict[str, str]:
    return {key: value for key, value in vars(source).items() if key != "kind"}


def load_runs(name: str, *, folder: Path = FOLDER) -> tuple[Run, ...]:
    """Return the stored runs of a part, "image" or "speech".

    Raises
    ------
    InputError
        The file is missing or damaged.
    """
    path = folder / f"{name}.json"
    try:
        return tuple(_run(record) for record in json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"load_runs ({path}): it cannot be read ({error}). Install glocal again."
        raise InputError(message) from error


def _run(record: Mapping[str, Any]) -> Run:
    trained, tested = (_source(record[key]) for key in ("trained", "tested"))
    curves = {name: tuple((float(x), float(y)) for x, y in points) for name, points in record["curves"].items()}
    scores = {
        name: Score(**score | {"by_seed": tuple(score.get("by_seed", ()))}) for name, score in record["scores"].items()
    }
    return Run(trained, tested, str(record["data"]), curves, int(record["epoch"]), scores)


def _source(record: Mapping[str, str]) -> Source:
    origin = [str(record[key]) for key in ("command", "seed", "date", "machine")]
    if not all(origin):
        message = "a stored run needs its command, seed, date and machine"
        raise ValueError(message)
    return Source("stored run", *origin)


def store_runs(runs: Sequence[Run], path: Path) -> None:
    """Write runs so that `load_runs` can read them."""
    path.write_text(json.dumps([run.as_dict() for run in runs], indent=1) + "\n", encoding="utf-8")


def log_points(path: Path, *, offset: int = 0) -> Points:
    """Return the validation curve of a training's log (`NAME.jsonl`), its steps moved by `offset`."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return tuple((line["step"] + offset, line["validation"]) for line in lines)
