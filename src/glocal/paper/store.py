"""Test the trainings of several seeds and store them as a run that the page can print.

`python -m glocal.paper.store image --data photos/holidays_like.csv --words "..." --trained runs -o image.json
--command "..."`

`--trained` holds one folder a seed (`*-0`, `*-1`, ...) as `glocal train` leaves them, with all networks of that seed.
`--command` is what was typed to train them. Date and machine of the training are read from the folders
(`NAME.origin.json`), those of the test are of this call.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from numpy.typing import ArrayLike

from glocal.apps.denoise import comparison as image_table
from glocal.apps.denoise.data import load_photos
from glocal.apps.denoise.options import PAPER_SIGMA, RECIPES
from glocal.apps.speech import evaluate as speech_table
from glocal.apps.speech.data import load_speech
from glocal.apps.speech.networks import MIDDLES
from glocal.errors import InputError
from glocal.machine import machine, now
from glocal.paper.runs import Run, log_points, store_runs
from glocal.paper.source import Source
from glocal.training.scores import Score, with_gain


def image_run(data: Path, trained: Path, source: Source, tested: Source, words: str) -> Run:
    """Score the image networks of every seed, each on its own noise; the curves are those of the first seed."""
    photos = load_photos(data)
    folders = seed_folders(trained)
    haar = image_table.tune_haar(photos, PAPER_SIGMA)
    tables = []
    for folder in folders:
        nets = image_table.trained(folder, PAPER_SIGMA)
        tables.append(image_table.score_all(photos, nets, haar, sigma=PAPER_SIGMA, seed=_seed(folder.name)))
    epoch = photos.counts()["train"]
    first = RECIPES["pretrain"].epochs * epoch
    curves = {name: log_points(folders[0] / f"{name}.jsonl", offset=first) for name in ("local", "nonlocal")}
    curves = {"pretrain": log_points(folders[0] / "pretrain.jsonl"), **curves}
    return Run(source, tested, words, curves, epoch, _scores(tables))


def speech_run(data: Path, trained: Path, source: Source, tested: Source, words: str) -> Run:
    """Score the speech networks of every seed; the curves are those of the first seed."""
    clips = load_speech(data)
    folders = seed_folders(trained)
    haar = speech_table.haar_method(clips)
    tables = [
        speech_table.score_all(clips, speech_table.trained(folder), haar, seed=_seed(folder.name)) for folder in folders
    ]
    first = folders[0]
    curves = {middle: log_points(first / f"speech-{middle}-{_seed(first.name)}.jsonl") for middle in MIDDLES}
    steps = int(curves["local"][-1][0])
    return Run(source, tested, words, curves, steps, _scores(tables))


def seed_folders(trained: Path) -> list[Path]:
    """Return the folders of the seeds, in order. Raises InputError if there are none."""
    folders = sorted((f for f in trained.iterdir() if f.is_dir()), key=lambda f: _seed(f.name))
    if not folders:
        message = (
            f"store: {str(trained)!r} holds no folder of a training. Name the folder that holds one for each seed."
        )
        raise InputError(message)
    return folders


def origin(trained: Path, command: str) -> Source:
    """Command, seeds, first date and machines of the trainings in `trained`, as the training itself noted them."""
    folders = seed_folders(trained)
    notes = [json.loads(path.read_text()) for folder in folders for path in sorted(folder.glob("*.origin.json"))]
    if not notes:
        message = f"store: the trainings in {str(trained)!r} do not say when and on what they ran. Train them again."
        raise InputError(message)
    seeds = ", ".join(str(_seed(folder.name)) for folder in folders)
    machines = "; ".join(dict.fromkeys(note["machine"] for note in notes))
    return Source("stored run", command, seeds, min(note["date"] for note in notes), machines)


def _scores(tables: Sequence[Mapping[str, ArrayLike]]) -> dict[str, Score]:
    return with_gain({method: [table[method] for table in tables] for method in tables[0]})


def _seed(name: str) -> int:
    return int(name.rpartition("-")[2])


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, test, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("image", "speech"))
    parser.add_argument(
        "--data", type=Path, required=True, action="append", help="test data; may be given several times"
    )
    parser.add_argument("--words", required=True, action="append", help="the data set in words, one for each --data")
    parser.add_argument(
        "--trained", type=Path, required=True, action="append", help="trainings; one for all data or one for each"
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--command", required=True, help="of the training")
    given = parser.parse_args(arguments)
    typed = sys.argv[1:] if arguments is None else list(arguments)
    shown = ["python", "-m", "glocal.paper.store", given.part, *_files_only(typed)]
    make = image_run if given.part == "image" else speech_run
    trainings = given.trained * len(given.data) if len(given.trained) == 1 else given.trained
    runs = []
    for data, trained, words in zip(given.data, trainings, given.words, strict=True):
        source = origin(trained, given.command)
        tested = Source("stored run", shlex.join(shown), source.seed, now(), machine())
        runs.append(make(data, trained, source, tested, words))
    store_runs(runs, given.output)


def _files_only(typed: Sequence[str]) -> list[str]:
    """Return the part of the command line that names files, without the folders they lie in."""
    kept = []
    for flag, value in pairwise(typed):
        if flag in ("--data", "--trained"):
            kept += [flag, Path(value).name]
    return kept


if __name__ == "__main__":
    main()
