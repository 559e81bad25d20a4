"""`glocal eval speech`: the speech denoisers and their baselines on test clips."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.apps.speech.options import SpeechEvaluation
from glocal.cli.shell.console import Console, RunOptions

if TYPE_CHECKING:
    from glocal.apps.speech.evaluate import Measured

LEVELS = (-5.0, 0.0, 5.0, 10.0, 15.0)


def eval_speech(
    data: Annotated[Path, typer.Argument(help="A folder of speech: with clips.csv, in TIMIT's layout, or any tree.")],
    options: SpeechEvaluation,
    run: RunOptions,
) -> None:
    """Denoise the test clips and report means with standard errors over clips and over trainings.

    STOI and PESQ, noisereduce and RNNoise appear where their packages are installed.
    """
    from glocal.apps.speech.data import load_speech
    from glocal.apps.speech.evaluate import compare_all, compare_levels, compare_paper
    from glocal.errors import InputError

    console = Console(run)
    loaded = load_speech(data)
    if len(loaded.test) == 0 or len(loaded.val) == 0:
        raise InputError(f"eval speech ({data}): it holds no test or no validation clips. Add speakers or a clips.csv.")
    loaded = replace(loaded, test=loaded.test[: options.clips])
    with console.progress("evaluate") as tell:
        if options.table == "levels":
            found = compare_levels(loaded, LEVELS, seed=options.seed, tell=tell)
        elif options.table == "all":
            found = {0.0: compare_all(loaded, seed=options.seed, tell=tell)}
        else:
            runs = [Path(folder) for folder in options.runs]
            found = {0.0: compare_paper(loaded, runs=runs, seed=options.seed, tell=tell)}
    leveled = options.table == "levels"
    rows = [asdict(s) | ({"input_snr": level} if leveled else {}) for level, scores in found.items() for s in scores]
    lines = [_line(s, level if leveled else None) for level, scores in found.items() for s in scores]
    console.result({"clips": len(loaded.test), "table": options.table, "scores": rows}, "\n".join(lines))


def _line(score: Measured, level: float | None) -> str:
    where = "" if level is None else f"{level:g} dB in, "
    spread = f", {score.error_seeds:.3f} over seeds" if score.error_seeds else ""
    return f"{where}{score.method}: {score.measure} {score.mean:.2f} (error {score.error:.2f} over clips{spread})"
