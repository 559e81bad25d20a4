"""Batches on the command line: the flags, the plan, the summary, and the list of what failed.

A command gives `run_batch` its inputs and two functions. `estimate(task)` says from the header of a file what the work
will take; `work(task, tell)` does it, writes `task.target` and returns what `--json` shows. Both must be functions
of a module (or `functools.partial`s of one), since `--jobs` sends them to other processes.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from glocal.atomic import write_whole
from glocal.cli.shell.console import Console
from glocal.cluster.options import ClusterOptions
from glocal.errors import ArgumentError, GlocalError
from glocal.jobs.batch import Outcome, Work, check_more, fit_jobs, is_wanted
from glocal.jobs.failures import Stopped, describe
from glocal.jobs.job import Cost
from glocal.jobs.memory import available_memory, bytes_text, parse_bytes
from glocal.jobs.paths import Task, output_root, plan_tasks
from glocal.jobs.runner import run_tasks
from glocal.options import option
from glocal.progress import Callback, seconds_text

FAILED_NAMES = ("failed.json", "failed.glocal.json")


@dataclass(frozen=True)
class FolderOptions:
    """Which files a command turns into which, and how many at a time."""

    output: str | None = option(
        None,
        "A file, a folder, or a pattern such as out/{stem}_{command}{ext}. Default: {stem}_{command}{ext} next to each input.",
        short="-o",
    )
    recursive: bool = option(False, "Look into the folders inside of folders.")
    skip_existing: bool = option(
        False, "Leave out inputs whose output exists; continues a batch that was interrupted, or shares one."
    )
    overwrite: bool = option(False, "Replace outputs that exist.")
    jobs: int = option(1, "Files worked on at the same time.", min=1)
    dry_run: bool = option(False, "Only say what would be done, and what it would take.")
    max_memory: int | None = option(
        None, "Memory for all jobs together, such as 4G. Default: what is free.", parse=parse_bytes, metavar="<size>"
    )


@dataclass(frozen=True)
class BatchOptions(ClusterOptions, FolderOptions):
    """Flags of every command that turns files into files."""


def run_batch(
    command: str,
    inputs: Sequence[str],
    work: Work,
    *,
    estimate: Callable[[Task], Cost],
    suffixes: Collection[str],
    options: BatchOptions,
    console: Console,
    also: Sequence[str | None] = (),
    check: Callable[[int], None] | None = None,
    gpu: bool = False,
) -> None:
    """Do the work for every input and print the results.

    Parameters
    ----------
    command : str
        The command's name, for patterns and messages.
    inputs : list of str
        Files, folders and globs as the user gave them.
    work, estimate : callables
        See the module's text.
    suffixes : collection of str
        Which files of a folder are meant, such as `glocal.files.images.formats.SUFFIXES`.
    options, console
        The user's flags, and where to write.
    also : list of str
        Files that are written next to the outputs, None for those that are not.
    check : callable or None
        Called with the number of inputs before anything is done; raises if the flags do not fit it.
    gpu : bool
        The work needs a GPU, which a cluster then has to provide.

    Raises
    ------
    GlocalError
        The error of the only input. With several inputs, each failure is printed, and the others continue.
    typer.Exit
        With code 1, when some of several inputs failed.
    """
    if options.skip_existing and options.overwrite:
        raise ArgumentError("--skip-existing and --overwrite contradict each other. Give one of them.")
    options.check(jobs=options.jobs)
    tasks = plan_tasks(
        command,
        inputs,
        output=options.output,
        recursive=options.recursive,
        suffixes=suffixes,
        say=console.say,
    )
    if options.skip_existing:
        tasks = [replace(task, skip=True) for task in tasks]
    if check is not None:
        check(1 if options.dry_run else len(tasks))
    named = [path for path in also if path is not None]
    check_more(named, tasks, overwrite=options.overwrite or options.skip_existing)
    memory = options.max_memory or available_memory()
    if options.dry_run:
        return _show_plan(command, tasks, estimate, options, memory, console)
    jobs, worst = 1, 0
    if not options.on_cluster:  # there, each worker knows its memory
        tasks, jobs, worst = fit_jobs(tasks, estimate, jobs=options.jobs, memory=memory)
    if jobs < min(options.jobs, len(tasks)):
        console.say(
            f"{jobs} jobs instead of {min(options.jobs, len(tasks))}: "
            f"one may need {bytes_text(worst)} of {bytes_text(memory)}"
        )
    started = time.monotonic()
    outcomes: list[Outcome] = []
    alone = len(tasks) == 1 and not options.on_cluster
    elsewhere = _cluster(work, estimate, options, console, gpu=gpu) if options.on_cluster else None
    try:
        for outcome in run_tasks(
            tasks,
            work,
            estimate,
            jobs=jobs,
            overwrite=options.overwrite,
            progress=console.progress,
            elsewhere=elsewhere,
        ):
            outcomes.append(outcome)
            if outcome.state == "failed" and not alone:
                console.say(f"{outcome.task.source}: {outcome.message}")
    except KeyboardInterrupt as stop:
        done = sum(outcome.state == "done" for outcome in outcomes)
        detail = f"{stop}. " if isinstance(stop, Stopped) else ""
        message = f"{detail}{done} of {len(tasks)} done; go on with --skip-existing" if not alone else str(stop)
        raise Stopped(message) from stop
    _summarise(command, outcomes, options, console, time.monotonic() - started)
    if any(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(1)
    return None


def _cluster(
    work: Work, estimate: Callable[[Task], Cost], options: BatchOptions, console: Console, *, gpu: bool
) -> Callable[[list[Task], Callback], Iterator[Outcome]]:
    """Return a function that runs tasks on a cluster. Only it imports Dask."""
    from glocal.cluster.folders import run_on_cluster

    return functools.partial(
        run_on_cluster, work=work, estimate=estimate, options=options, folder=output_root(options.output),
        memory=options.max_memory, overwrite=options.overwrite, gpu=gpu, say=console.say,
    )  # fmt: skip


def _show_plan(
    command: str,
    tasks: list[Task],
    estimate: Callable[[Task], Cost],
    options: BatchOptions,
    memory: int,
    console: Console,
) -> None:
    """Print what `--dry-run` shows: the size, parts, memory, time and output of each input."""
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    wrong = False
    for task in tasks:
        row: dict[str, Any] = {"input": str(task.source), "output": str(task.target)}
        try:
            action = "run" if is_wanted(task, overwrite=options.overwrite) else "skip"
            need = estimate(task)
        except GlocalError as error:
            if len(tasks) == 1:
                raise
            rows.append(row | {"action": "refuse", "error": describe(error)})
            lines.append(f"{task.source}: {describe(error)}")
            wrong = True
            continue
        least = min(need.memory, need.least or need.memory)
        fits = least <= memory
        row |= {"action": action if fits else "refuse", "size": need.size, "parts": need.parts}
        rows.append(row | {"memory": need.memory, "seconds": need.seconds})
        parts = f", {need.parts}" if need.parts else ""
        verdict = "" if fits else f" (more than the {bytes_text(memory)} there are)"
        if fits and need.memory > memory:
            verdict = f" (with temporary files, in {bytes_text(memory)})"
        takes = "" if need.seconds is None else f", about {seconds_text(need.seconds)}"
        lines.append(
            f"{action} {task.source} -> {task.target}: {need.size}{parts}, {bytes_text(need.memory)}{verdict}{takes}"
        )
    console.result({"command": command, "plan": rows, "memory": memory, "jobs": options.jobs}, "\n".join(lines))
    if wrong:
        raise typer.Exit(1)


def _summarise(command: str, outcomes: list[Outcome], options: BatchOptions, console: Console, seconds: float) -> None:
    """Write results to stdout, counts to stderr, and a list next to the outputs if anything failed."""
    states = [outcome.state for outcome in outcomes]
    failed = [outcome.as_json() for outcome in outcomes if outcome.state == "failed"]
    lines = [line for outcome in outcomes for line in outcome.result.pop("lines", ())]
    lines += [str(outcome.task.target) for outcome in outcomes if outcome.state == "done"]
    listed = _list_failures(command, failed, output_root(options.output), overwrite=options.overwrite)
    rows = [outcome.as_json() for outcome in outcomes] if console.options.json else []
    # When the result itself went to the standard output, nothing else may be written there.
    data = {"command": command, "results": rows, "seconds": round(seconds, 3)}
    console.result(data, "\n".join(lines), taken=any(str(outcome.task.target) == "-" for outcome in outcomes))
    if len(outcomes) > 1 or states == ["skipped"]:
        counts = f"{states.count('done')} done, {states.count('skipped')} skipped, {states.count('failed')} failed"
        console.say(f"{command}: {counts}{listed} in {seconds_text(seconds)}")


def _list_failures(command: str, failed: list[dict[str, Any]], folder: Path, *, overwrite: bool) -> str:
    """Write the list of failures, and remove the list of an earlier run; a file that glocal did not write is not changed."""
    for name in FAILED_NAMES:
        if _is_ours(folder / name):
            (folder / name).unlink(missing_ok=True)
    if not failed:
        return ""
    free = [folder / name for name in FAILED_NAMES if overwrite or not (folder / name).exists()]
    if not free:
        return " (not listed: the names for the list are taken)"
    folder.mkdir(parents=True, exist_ok=True)
    with write_whole(free[0], overwrite=overwrite) as beside:
        beside.write_text(json.dumps({"glocal": command, "failed": failed}, indent=2) + "\n")
    return f" (listed in {free[0]})"


def _is_ours(path: Path) -> bool:
    """Whether a file is a list that an earlier run left."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and set(found) == {"glocal", "failed"} and isinstance(found["failed"], list)
