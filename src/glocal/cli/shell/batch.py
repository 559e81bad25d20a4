"""Many inputs, one command: which files are meant, where their results go, and a run that survives a bad file.

A command gives `run_batch` its inputs and two functions. `estimate(task)` says from the header of a file what the work
will take; `work(task, tell)` does it, writes `task.target` and returns what is worth reporting. Both must be functions
of a module (or `functools.partial`s of one), since `--jobs` sends them to other processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import typer

from glocal.atomic import check_free, write_whole
from glocal.cli.shell.console import Report, Tell, bytes_text, seconds_text
from glocal.cli.shell.failures import Stopped, describe, exit_code_of
from glocal.cli.shell.memory import available_memory, parse_bytes
from glocal.cli.shell.paths import Task, output_root, plan_tasks
from glocal.errors import ArgumentError, GlocalError, MemoryLimitError, OutputError

Work = Callable[[Task, Tell], dict[str, Any]]
FAILED_NAME = "failed.json"


@dataclass(frozen=True)
class BatchOptions:
    """Flags of every command that turns files into files."""

    output: str | None = field(
        default=None,
        metadata={
            "short": "-o",
            "help": "A file, a folder, or a pattern such as out/{stem}_{command}{ext}. "
            "Default: {stem}_{command}{ext} beside each input.",
        },
    )
    recursive: bool = field(default=False, metadata={"help": "Look into the folders inside of folders."})
    skip_existing: bool = field(
        default=False,
        metadata={"help": "Leave out inputs whose output exists; continues a batch that was interrupted."},
    )
    overwrite: bool = field(default=False, metadata={"help": "Replace outputs that exist."})
    jobs: int = field(default=1, metadata={"help": "Files worked on at the same time.", "min": 1})
    dry_run: bool = field(default=False, metadata={"help": "Only say what would be done, and what it would take."})
    max_memory: int | None = field(
        default=None,
        metadata={
            "help": "Memory for all jobs together, such as 4G. Default: what is free.",
            "parse": parse_bytes,
            "metavar": "<size>",
        },
    )


@dataclass(frozen=True)
class ImageFileOptions:
    """Flags of every command that writes images."""

    depth: Literal["keep", "8", "16", "float"] = field(default="keep", metadata={"help": "Bits of a channel."})
    quality: int = field(default=95, metadata={"help": "Of JPEG, WebP, AVIF and HEIC.", "min": 1, "max": 100})
    metadata: Literal["keep", "strip"] = field(
        default="keep", metadata={"help": "EXIF, XMP and recipe; the colour profile always stays."}
    )


@dataclass(frozen=True)
class Estimate:
    """What a task will take: `size` and `parts` are words ("4000 x 3000", "6 bands"), memory in bytes.

    `smaller` is what a user can do when that is too much. `seconds` is None where nobody knows.
    """

    size: str
    memory: int
    seconds: float | None
    parts: str = ""
    smaller: str = "a smaller input, fewer --jobs"


@dataclass(frozen=True)
class Outcome:
    """How one task ended: "done", "skipped" or "failed"."""

    task: Task
    state: str
    seconds: float = 0.0
    result: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    exit_code: int = 0

    def as_json(self) -> dict[str, Any]:
        """What `--json` and failed.json show."""
        out: dict[str, Any] = {"input": str(self.task.source), "output": str(self.task.target), "state": self.state}
        if self.state == "failed":
            return out | {"error": self.message, "exit_code": self.exit_code}
        return out | {"seconds": round(self.seconds, 3)} | self.result


def run_batch(
    command: str,
    inputs: Sequence[str],
    work: Work,
    *,
    estimate: Callable[[Task], Estimate],
    suffixes: Collection[str],
    options: BatchOptions,
    report: Report,
    also: Sequence[str | None] = (),
) -> None:
    """Do the work for every input and report.

    Args:
        command: The command's name, for patterns and messages.
        inputs: Files, folders and globs as the user gave them.
        work: Called with a task and a progress callback; returns what `--json` should tell about it.
        estimate: Called with a task before anything is done.
        suffixes: Which files of a folder are meant, such as `glocal.files.images.formats.SUFFIXES`.
        options: The user's flags.
        report: Where to write.
        also: Files that are written beside the outputs, None for those that are not.

    Raises:
        GlocalError: The error of the only input. With several inputs, each failure is reported and the rest go on.
        typer.Exit: With code 1, when some of several inputs failed.
    """
    if options.skip_existing and options.overwrite:
        raise ArgumentError("--skip-existing and --overwrite contradict each other. Give one of them.")
    tasks = plan_tasks(command, inputs, output=options.output, recursive=options.recursive, suffixes=suffixes)
    _check_also([path for path in also if path is not None], tasks, options)
    memory = options.max_memory or available_memory()
    if options.dry_run:
        return _show_plan(command, tasks, estimate, options, memory, report)
    tasks, jobs = _fit_jobs(tasks, estimate, options, memory, report)
    started = time.monotonic()
    outcomes: list[Outcome] = []
    alone = len(tasks) == 1
    try:
        for outcome in _outcomes(tasks, work, estimate, options, jobs, report):
            outcomes.append(outcome)
            if outcome.state == "failed" and not alone:
                report.say(f"{outcome.task.source}: {outcome.message}")
    except KeyboardInterrupt as stop:
        done = sum(outcome.state == "done" for outcome in outcomes)
        detail = f"{stop}. " if isinstance(stop, Stopped) else ""
        message = f"{detail}{done} of {len(tasks)} done; go on with --skip-existing" if not alone else str(stop)
        raise Stopped(message) from stop
    _summarise(command, outcomes, options, report, time.monotonic() - started)
    if any(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(1)
    return None


def _outcomes(
    tasks: list[Task],
    work: Work,
    estimate: Callable[[Task], Estimate],
    options: BatchOptions,
    jobs: int,
    report: Report,
) -> Any:
    """Outcomes as they come; a single task raises instead of failing, so that its exit code is the command's."""
    waiting: list[Task] = []
    for task in tasks:
        try:
            if _is_wanted(task, options):
                waiting.append(task)
            else:
                yield Outcome(task, "skipped")
        except GlocalError as error:
            if len(tasks) == 1:
                raise
            yield _failure(task, error)
    if jobs > 1 and len(waiting) > 1:
        from glocal.cli.shell.processes import run_in_processes

        with report.progress(f"{len(waiting)} files") as tell:
            yield from run_in_processes(waiting, work, estimate, jobs=jobs, tell=tell)
        return
    for count, task in enumerate(waiting, 1):
        title = task.source.name if len(waiting) == 1 else f"{task.source.name} ({count}/{len(waiting)})"
        try:
            with report.progress(title) as tell:
                outcome = perform(task, work, estimate, tell)
        except Exception as error:
            if len(tasks) == 1:
                raise
            outcome = _failure(task, error)
        yield outcome


def perform(task: Task, work: Work, estimate: Callable[[Task], Estimate], tell: Tell) -> Outcome:
    """Do one task that is wanted.

    Raises:
        MemoryLimitError: It needs more memory than it may take.
    """
    needs = estimate(task)
    if needs.memory > task.memory:
        raise MemoryLimitError(
            f"memory ({task.source}): the work needs {bytes_text(needs.memory)}, and it may take {bytes_text(task.memory)}. "
            f"Use {needs.smaller} or a larger --max-memory."
        )
    try:
        task.target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(
            f"make folder ({task.target.parent}): {reason}. Choose a folder that you may write to."
        ) from error
    started = time.monotonic()
    result = work(task, tell)
    return Outcome(task, "done", time.monotonic() - started, result)


def _failure(task: Task, error: BaseException) -> Outcome:
    return Outcome(task, "failed", message=describe(error), exit_code=exit_code_of(error))


def _check_also(also: list[str], tasks: list[Task], options: BatchOptions) -> None:
    """Refuse, before any work, further outputs that are in the way of others or of files that exist."""
    taken = {task.target.absolute() for task in tasks} | {task.source.absolute() for task in tasks}
    for path in also:
        if Path(path).absolute() in taken:
            raise ArgumentError(f"{path}: it is an input or another output too. Give each file its own name.")
        taken.add(Path(path).absolute())
        if Path(path).parent.is_dir():  # else the work makes it
            check_free(path, overwrite=options.overwrite or options.skip_existing)


def _is_wanted(task: Task, options: BatchOptions) -> bool:
    """Whether the task has to be done; an output in the way is an error unless the user said what to do about it."""
    if task.problem is not None:
        raise task.problem
    if not task.target.exists() or options.overwrite:
        return True
    if options.skip_existing:
        return False
    raise OutputError(
        f"write file ({task.target}): the file exists already. Add --overwrite, --skip-existing or another -o."
    )


def _fit_jobs(
    tasks: list[Task], estimate: Callable[[Task], Estimate], options: BatchOptions, memory: int, report: Report
) -> tuple[list[Task], int]:
    """Give each task its share of the memory, with fewer jobs if that is what it takes to fit."""
    jobs = min(options.jobs, max(len(tasks), 1))
    if jobs > 1:
        worst = max((_estimate_or_none(task, estimate) or 0 for task in tasks), default=0)
        fitting = max(1, min(jobs, memory // max(worst, 1)))
        if fitting < jobs:
            report.say(f"{fitting} jobs instead of {jobs}: one may need {bytes_text(worst)} of {bytes_text(memory)}")
            jobs = fitting
    return [replace(task, memory=memory // jobs) for task in tasks], jobs


def _estimate_or_none(task: Task, estimate: Callable[[Task], Estimate]) -> int | None:
    try:
        return estimate(task).memory if task.problem is None else None
    except GlocalError:
        return None


def _show_plan(
    command: str,
    tasks: list[Task],
    estimate: Callable[[Task], Estimate],
    options: BatchOptions,
    memory: int,
    report: Report,
) -> None:
    """What `--dry-run` prints: for each input its size, parts, memory, time and output."""
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for task in tasks:
        row: dict[str, Any] = {"input": str(task.source), "output": str(task.target)}
        try:
            action = "run" if _is_wanted(task, options) else "skip"
            need = estimate(task)
        except GlocalError as error:
            rows.append(row | {"action": "refuse", "error": describe(error)})
            lines.append(f"{task.source}: {describe(error)}")
            continue
        fits = need.memory <= memory
        row |= {"action": action if fits else "refuse", "size": need.size, "parts": need.parts}
        rows.append(row | {"memory": need.memory, "seconds": need.seconds})
        parts = f", {need.parts}" if need.parts else ""
        verdict = "" if fits else f" (more than the {bytes_text(memory)} there are)"
        takes = "" if need.seconds is None else f", about {seconds_text(need.seconds)}"
        lines.append(
            f"{action} {task.source} -> {task.target}: {need.size}{parts}, {bytes_text(need.memory)}{verdict}{takes}"
        )
    report.result({"command": command, "plan": rows, "memory": memory, "jobs": options.jobs}, "\n".join(lines))


def _summarise(command: str, outcomes: list[Outcome], options: BatchOptions, report: Report, seconds: float) -> None:
    """Results on stdout, counts on stderr, and failed.json beside the outputs if anything failed."""
    states = [outcome.state for outcome in outcomes]
    failed = [outcome.as_json() for outcome in outcomes if outcome.state == "failed"]
    lines = [f"{outcome.task.target}" for outcome in outcomes if outcome.state == "done"]
    where = output_root(options.output) / FAILED_NAME
    listed = ""
    if failed:
        text = json.dumps({"glocal": command, "failed": failed}, indent=2)
        where.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(where, overwrite=True) as beside:
            beside.write_text(text + "\n")
        listed = f" (listed in {where})"
    else:
        _forget_failures(where)
    rows = [outcome.as_json() for outcome in outcomes]
    # When the result itself went to the standard output, nothing else may be written there.
    data = {"command": command, "results": rows, "seconds": round(seconds, 3)}
    report.result(data, "\n".join(lines), taken=any(str(outcome.task.target) == "-" for outcome in outcomes))
    if len(outcomes) > 1 or states == ["skipped"]:
        counts = f"{states.count('done')} done, {states.count('skipped')} skipped, {states.count('failed')} failed"
        report.say(f"{command}: {counts}{listed} in {seconds_text(seconds)}")


def _forget_failures(where: Path) -> None:
    """Remove the list that an earlier run left, now that nothing fails; a file of somebody else stays."""
    try:
        ours = "glocal" in json.loads(where.read_text())
    except (OSError, ValueError, TypeError):
        return
    if ours:
        where.unlink(missing_ok=True)
