"""Trainings and their test scores: of this run, or stored with command, seeds, date and machine in `runs/*.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.errors import InputError
from glocal.paper.source import Source

FOLDER = Path(__file__).parent / "runs"
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Score:
    """A mean over test items (and seeds), its standard error over the items, and over the seeds if there were several."""

    mean: float
    error: float
    error_seeds: float | None = None


@dataclass(frozen=True)
class Run:
    """A training with its results.

    Attributes:
        source: Command, seeds, date and machine of the training.
        tested: The same of the test.
        data: The data set, in words.
        curves: (step, validation score) for each training.
        epoch: Steps of an epoch.
        scores: Test scores by method: "noisy", "haar", "local", "nonlocal", "gain" and others.
    """

    source: Source
    tested: Source
    data: str
    curves: Mapping[str, Points]
    epoch: int
    scores: Mapping[str, Score]

    def as_dict(self) -> dict[str, Any]:
        """What `load_runs` reads."""
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
    """The stored runs of a part, "image" or "speech".

    Raises:
        InputError: The file is missing or damaged.
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
    scores = {name: Score(**score) for name, score in record["scores"].items()}
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


def scored(by_seed: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Score]:
    """Means and standard errors of `by_seed[method][seed][item]`, and of the gain of "nonlocal" over "local".

    The standard error is over the items, of their means over the seeds. That of the gain is of the differences item by
    item, which is smaller than what the two errors would suggest: both networks see the same noise.

    Example:
        >>> scored({"local": [[1.0, 3.0]], "nonlocal": [[2.0, 4.0]]})["gain"]
        Score(mean=1.0, error=0.0, error_seeds=None)
    """
    table = {method: [list(map(float, items)) for items in seeds] for method, seeds in by_seed.items()}
    if "local" in table and "nonlocal" in table:
        table["gain"] = [
            [b - a for a, b in zip(low, high, strict=True)]
            for low, high in zip(table["local"], table["nonlocal"], strict=True)
        ]
    return {method: _score(seeds) for method, seeds in table.items()}


def _score(seeds: Sequence[Sequence[float]]) -> Score:
    items = [sum(column) / len(seeds) for column in zip(*seeds, strict=True)]
    means = [sum(row) / len(row) for row in seeds]
    return Score(sum(items) / len(items), standard_error(items), standard_error(means) if len(seeds) > 1 else None)


def standard_error(values: Sequence[float]) -> float:
    """`s / sqrt(m)` of m values with sample deviation s; 0 for one value."""
    m = len(values)
    mean = sum(values) / m
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (m - 1) / m) if m > 1 else 0.0


def log_points(path: Path, *, offset: int = 0) -> Points:
    """The validation curve of a training's log (`NAME.jsonl`), its steps moved by `offset`."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return tuple((line["step"] + offset, line["validation"]) for line in lines)
