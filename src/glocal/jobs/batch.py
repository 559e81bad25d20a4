"""Many inputs, one job: who works on which file, within which memory, and a run that survives a bad file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.atomic import check_free, check_writable
from glocal.errors import ArgumentError, GlocalError, MemoryLimitError, OutputError
from glocal.files.images.formats import SUFFIXES
from glocal.jobs.failures import describe, exit_code_of
from glocal.jobs.job import Cost, Inputs, Job
from glocal.jobs.memory import bytes_text
from glocal.jobs.paths import Task
from glocal.progress import Callback, seconds_text

if TYPE_CHECKING:
    from glocal.files.images.scratch import Scratch

try:
    import fcntl
except ImportError:  # Windows has no such locks; there, two batches may work on one file
    fcntl = None  # type: ignore[assignment]

Work = Callable[[Task, Callback], dict[str, Any]]
Estimate = Cost  # its name in 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one task ended: "done", "skipped" or "failed"."""

    task: Task
    state: str
    seconds: float = 0.0
    result: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    exit_code: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` and failed.json show."""
        out: dict[str, Any] = {"input": str(self.task.source), "output": str(self.task.target), "state": self.state}
        if self.state == "failed":
            return out | {"error": self.message, "exit_code": self.exit_code}
        return out | {"seconds": round(self.seconds, 3)} | self.result


def failure(task: Task, error: BaseException) -> Outcome:
    """Return the outcome of a task that ended with an error."""
    return Outcome(task, "failed", message=describe(error), exit_code=exit_code_of(error))


def job_work(task: Task, tell: Callback, *, job: Job, overwrite: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """One source from file to file; outputs that cannot be written are noticed before the work."""
    if str(task.target) != "-":
        check_writable(task.target, overwrite=overwrite)
    for path in job.more_outputs():
        check_writable(path, overwrite=overwrite)
    for output in (task.target, *map(Path, job.more_outputs())):
        if output.suffix.lower() in SUFFIXES:
            _check_format(output)
    if job.announced and task.needs is not None:
        say(announce(task.source.name, task.needs))
    inputs = Inputs(task.source, job.others, task.target, overwrite, _scratch(task, say), say)
    return job.run_file(inputs, tell)


def _check_format(path: Path) -> None:
    from glocal.files.images.write import check_format  # not before it is needed: it loads the codecs

    check_format(path)


def _scratch(task: Task, say: Callable[[str], None]) -> Scratch | None:
    """Return a place for large arrays next to the output, if the work does not fit into its memory otherwise."""
    if task.needs is None or task.needs.memory <= task.memory:
        return None
    from glocal.files.images.scratch import Scratch

    say(
        f"{task.source.name}: {bytes_text(task.needs.memory)} do not fit into {bytes_text(task.memory)}: "
        f"in smaller parts, with temporary files in {task.target.parent}"
    )
    return Scratch(task.target.parent, memory=task.memory)


def job_cost(task: Task, *, job: Job) -> Cost:
    """Estimate the cost of a job for one source from the headers of its files."""
    header = job.header(Inputs(task.source, job.others))
    needs = job.cost(header)
    return needs if needs.memory <= task.memory else replace(needs, smaller=job.smaller(header, task.memory))


def planned_cost(task: Task, *, job: Job) -> Cost:
    """Do what `job_cost` does for a plan, which ends as the work would: also with the error of a device that is not there."""
    needs = job_cost(task, job=job)
    fits = min(needs.memory, needs.least or needs.memory) <= task.memory
    if fits and not (task.skip and task.target.exists()):
        check_here(job)
    return needs


def check_here(job: Job) -> None:
    """Refuse a device that this computer does not have, with the words of the work itself."""
    device = getattr(job.options, "device", "cpu")
    if device != "cpu":
        from glocal.machine import check_device  # not before it is needed: it loads torch

        check_device(job.options.call, device)


def announce(name: str, needs: Cost) -> str:
    """Return the line that is shown before a long job."""
    takes = "on the GPU"
    if needs.seconds is not None:
        takes = f"about {bytes_text(needs.memory)} and {seconds_text(needs.seconds)}"
    return f"{name}: {needs.size} pixels, {needs.parts}, {takes}"


def perform(task: Task, work: Work, estimate: Callable[[Task], Cost], tell: Callback) -> Outcome:
    """Do one task, unless it is to be left out.

    Raises
    ------
    MemoryLimitError
        It needs more memory than it may take.
    OutputError
        The folder of its output cannot be made.
    """
    needs = task.needs if task.needs is not None and task.needs.memory <= task.memory else estimate(task)
    check_memory(needs, task)
    if not os.path.isdir(os.path.dirname(task.target) or "."):  # noqa: PTH112, PTH120  for millions of files
        try:
            task.target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OutputError(
                f"make folder ({task.target.parent}): {reason}. Choose a folder that you may write to."
            ) from error
    started = time.monotonic()
    task = Task(task.source, task.target, task.memory, task.problem, task.skip, needs)
    with claimed(task.target) if task.skip else contextlib.nullcontext(True) as mine:
        if not mine or (task.skip and task.target.exists()):
            return Outcome(task, "skipped")
        result = work(task, tell)
    return Outcome(task, "done", time.monotonic() - started, result)


def check_memory(needs: Cost, task: Task) -> None:
    """Refuse a task that does not fit into its memory, even in smaller parts.

    Raises
    ------
    MemoryLimitError
        With the least memory that is enough.
    """
    least = min(needs.memory, needs.least or needs.memory)
    if least > task.memory:
        raise MemoryLimitError(
            f"memory ({task.source}): the work needs {bytes_text(least)}, and it may take {bytes_text(task.memory)}. "
            f"Use {needs.smaller} or a larger --max-memory."
        )


@contextlib.contextmanager
def claimed(target: Path) -> Iterator[bool]:
    """Claim an output, so that no other process works on it: gives False if another one has it.

    The claim is a lock on a hidden file in the same folder. It ends with the process, however that ends, and the file is
    named like an unfinished output, so that the next process which writes there removes what a killed one left.

    >>> import tempfile
    >>> with claimed(Path(tempfile.mkdtemp()) / "a.png") as mine:
    ...     mine
    True
    """
    if fcntl is None or str(target) == "-":
        yield True
        return
    name = os.fsencode(target.name)
    mark = hashlib.sha256(name).hexdigest()[:8]
    path = target.with_name(os.fsdecode(b"." + name[:180]) + f".{mark}.glocal-part")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield True  # the work will say what is wrong with the folder
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # some network folders have no locks
            yield True
            return
        try:
            # Another process may have finished, and removed the file, between the opening and the lock.
            yield os.fstat(handle).st_nlink > 0 or not target.exists()
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def check_more(paths: list[str], tasks: list[Task], *, overwrite: bool) -> None:
    """Refuse, before any work, further outputs that would replace other outputs, inputs or existing files."""
    taken = {task.target.absolute() for task in tasks} | {task.source.absolute() for task in tasks}
    for path in paths:
        if Path(path).absolute() in taken:
            raise ArgumentError(f"{path}: it is an input or another output too. Give each file its own name.")
        taken.add(Path(path).absolute())
        if Path(path).parent.is_dir():  # else the work makes it
            check_free(path, overwrite=overwrite)


def is_wanted(task: Task, *, overwrite: bool) -> bool:
    """Whether the task has to be done; an existing output is an error unless the user said what to do with it."""
    if task.problem is not None:
        raise task.problem
    if not task.target.exists() or overwrite:
        return True
    if task.skip:
        return False
    raise OutputError(
        f"write file ({task.target}): the file exists already. Add --overwrite, --skip-existing or another -o."
    )


def fit_jobs(
    tasks: list[Task], estimate: Callable[[Task], Cost], *, jobs: int, memory: int
) -> tuple[list[Task], int, int]:
    """Give each task its share of the memory, with fewer jobs if they do not fit.

    Returns
    -------
    The tasks, the number of jobs, and the bytes that the largest task needs (0 if there is one job only).
    """
    jobs, worst = min(jobs, max(len(tasks), 1)), 0
    if jobs > 1:
        tasks = [replace(task, needs=_cost_or_none(task, estimate)) for task in tasks]
        worst = max((task.needs.memory for task in tasks if task.needs is not None), default=0)
        jobs = max(1, min(jobs, memory // max(worst, 1)))
    return [replace(task, memory=memory // jobs) for task in tasks], jobs, worst


def _cost_or_none(task: Task, estimate: Callable[[Task], Cost]) -> Cost | None:
    try:
        return estimate(task) if task.problem is None else None
    except GlocalError:
        return None
