"""`glocal reproduce`: the figures and tables of the paper, run again, on one page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from glocal.cli.shell.console import Console, RunOptions
from glocal.jobs.memory import bytes_text
from glocal.paper.options import ReproduceOptions


def reproduce(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the page, the JSON and the PNG files.")],
    options: ReproduceOptions,
    run: RunOptions,
) -> None:
    """Run the figures and tables of the paper again and write them to one page that needs no network."""
    from glocal.paper.reproduce import reproduce as write_page

    console = Console(run)
    command = shlex.join(["glocal", *sys.argv[1:]])
    with console.progress("reproduce") as tell:
        written = write_page(output, options, command=command, progress=tell)
    console.say(f"{len(written.pictures)} pictures, {bytes_text(written.size)}; raw files in {output}")
    files = {"page": str(written.page), "bytes": written.size}
    files |= {"pictures": [str(p) for p in written.pictures], "records": [str(p) for p in written.records]}  # type: ignore[dict-item]
    console.result(files, str(written.page))
