"""Test the trainings of several seeds and store them as a run that the page can print.

`python -m glocal.report.store image --data photos/holidays_like.csv --words "..." --trained runs -o image.json
--command "..." --seeds "0, 1" --date 2026-11-15 --machine "..."`

`--trained` holds one folder a seed for images (`*-0`, `*-1`, ... as `glocal train image` leaves them) and the files
`speech-KIND-SEED.jsonl` and `.safetensors` for speech. Command, date and machine are those of the training; those of
the test are of this call.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from safetensors.torch import load_file

from glocal.apps.denoise.data import load_photos
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import PAPER_NETWORKS, PAPER_SIGMA, RECIPES
from glocal.apps.speech.data import load_speech
from glocal.apps.speech.networks import KINDS, SampleNet
from glocal.report import image_training, speech_training
from glocal.report.runs import Run, log_points, scored, store_runs
from glocal.machine import machine
from glocal.report.source import Source, this_run

Table = dict[str, list[list[float]]]


def image_run(data: Path, trained: Path, source: Source, tested: Source, words: str) -> Run:
    """Score the image networks of every seed, each on its own noise; the curves are those of the first seed."""
    photos = load_photos(data)
    folders = sorted(folder for folder in trained.iterdir() if folder.is_dir())
    table: Table = {}
    for folder in folders:
        nets = {name: _image_net(folder, name) for name in PAPER_NETWORKS}
        _append(table, image_training.score_all(photos, nets, _seed(folder.name)))
    epoch = photos.counts()["train"]
    first = RECIPES["pretrain"].epochs * epoch
    curves = {name: log_points(folders[0] / f"{name}.jsonl", offset=first) for name in ("local", "nonlocal")}
    curves = {"pretrain": log_points(folders[0] / "pretrain.jsonl"), **curves}
    return Run(source, tested, words, curves, epoch, scored(table))


def speech_run(data: Path, trained: Path, source: Source, tested: Source, words: str) -> Run:
    """Score the speech networks of every seed; the curves are those of the first seed."""
    clips = load_speech(data)
    seeds = sorted(_seed(path.stem) for path in trained.glob("speech-local-*.safetensors"))
    table: Table = {}
    for seed in seeds:
        nets = {kind: SampleNet(kind) for kind in KINDS}
        for kind, net in nets.items():
            net.load_state_dict(load_file(trained / f"speech-{kind}-{seed}.safetensors"))
        _append(table, speech_training.score_all(clips, nets, seed))
    curves = {kind: log_points(trained / f"speech-{kind}-{seeds[0]}.jsonl") for kind in KINDS}
    steps = int(curves["local"][-1][0])
    return Run(source, tested, words, curves, steps, scored(table))


def _image_net(folder: Path, name: str) -> ImageDenoiser:
    net = ImageDenoiser(RECIPES[name].architecture, sigma=PAPER_SIGMA)
    net.load_state_dict(load_file(folder / f"{name}.safetensors"))
    return net


def _append(table: Table, more: Table) -> None:
    for method, seeds in more.items():
        table.setdefault(method, []).extend(seeds)


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
    for name in ("trained", "output"):
        parser.add_argument(*(["-o"] if name == "output" else []), f"--{name}", type=Path, required=True)
    for name in ("command", "seeds", "date", "machine"):
        parser.add_argument(f"--{name}", required=True, help="of the training")
    given = parser.parse_args(arguments)
    typed = sys.argv[1:] if arguments is None else list(arguments)
    shown = ["python", "-m", "glocal.report.store", given.part, *_files_only(typed)]
    tested = Source("stored run", shlex.join(shown), given.seeds, this_run("", 0).date, machine())
    source = Source("stored run", given.command, given.seeds, given.date, given.machine)
    make = image_run if given.part == "image" else speech_run
    runs = [
        make(data, given.trained, source, tested, words) for data, words in zip(given.data, given.words, strict=True)
    ]
    store_runs(runs, given.output)


def _files_only(typed: Sequence[str]) -> list[str]:
    """The part of the command line that names files, without the folders they lie in."""
    kept = []
    for flag, value in pairwise(typed):
        if flag in ("--data", "--trained"):
            kept += [flag, Path(value).name]
    return kept


if __name__ == "__main__":
    main()
