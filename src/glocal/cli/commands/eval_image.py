"""`glocal eval image`: mean PSNR of the denoising networks and of the Haar baseline on test photos."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glocal.apps.denoise.options import DataOptions, EvalOptions
from glocal.cli.commands.train_image import load
from glocal.cli.shell.console import Console, RunOptions


def eval_image(
    data: Annotated[Path, typer.Argument(help="A folder of photos, a .csv list, or prepared photos (.npz).")],
    options: EvalOptions,
    photos: DataOptions,
    run: RunOptions,
) -> None:
    """Denoise the test photos and report the mean PSNR, with its standard error over photos and over trainings.

    Without --runs, the networks that ship with glocal are measured. With --runs (once for each folder that
    `glocal train image` wrote, one a seed), those are.
    """
    from glocal.apps.denoise.comparison import compare, table

    console = Console(run)
    loaded = load(data, photos, console)
    with console.progress("evaluate") as tell:
        found = compare(loaded, options, progress=tell)
    rows = [{"method": method} | asdict(score) for method, score in found.scores.items()]
    haar = [asdict(choice) for choice in found.haar]
    console.result({"sigma": options.sigma, "pictures": found.pictures, "methods": rows, "haar": haar}, table(found))
