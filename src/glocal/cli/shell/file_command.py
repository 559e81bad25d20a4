"""The one command that turns files into files: it makes a function with flags from any job."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer

from glocal.cli.shell.batch import BatchOptions, run_batch
from glocal.cli.shell.console import Console, RunOptions
from glocal.cli.shell.tiles import needs_tiles, run_tiles
from glocal.jobs.batch import job_cost, job_work, planned_cost
from glocal.jobs.job import Job


def file_command(job: type[Job]) -> Callable[..., None]:
    """Return a command with the flags of the job, of batches and of every command (see `glocal.cli.shell.flags`)."""

    def command(inputs: list[str], options: Any, files: Any, output: Any, batch: BatchOptions, run: RunOptions) -> None:
        sources, others = job.split(inputs, files)
        if sources == ["-"] and batch.output is None:
            batch = replace(batch, output="-")
        work = job(options, files, output, others)
        console = Console(run)
        gpu = str(getattr(options, "device", "cpu")).startswith("cuda")
        planned = batch.dry_run and not batch.on_cluster  # a cluster may have what this computer does not
        if needs_tiles(job, sources, batch.output):
            run_tiles(work, sources[0], options=batch, console=console, gpu=gpu)
            return
        run_batch(
            job.name,
            sources,
            functools.partial(job_work, job=work, overwrite=batch.overwrite, say=console.say),
            estimate=functools.partial(planned_cost if planned else job_cost, job=work),
            suffixes=job.suffixes,
            options=batch,
            console=console,
            also=work.more_outputs(),
            check=work.check,
            gpu=gpu,
        )

    command.__doc__, command.__name__ = job.__doc__, job.name
    command.__annotations__ = {
        "inputs": Annotated[list[str], typer.Argument(help=job.arguments)],
        "options": job.Options,
        "files": job.Files,
        "output": job.Output,
        "batch": BatchOptions,
        "run": RunOptions,
    }
    return command
