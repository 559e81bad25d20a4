"""Run the tasks of a batch, one after the other or in several processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from glocal.atomic import remove_unfinished
from glocal.errors import GlocalError
from glocal.jobs.batch import Outcome, Work, failure, is_wanted, perform
from glocal.jobs.job import Cost
from glocal.jobs.paths import Task
from glocal.jobs.processes import run_in_processes
from glocal.progress import Callback


def run_tasks(
    tasks: list[Task],
    work: Work,
    estimate: Callable[[Task], Cost],
    *,
    jobs: int,
    overwrite: bool,
    progress: Callable[[str], contextlib.AbstractContextManager[Callback]],
    elsewhere: Callable[[list[Task], Callback], Iterator[Outcome]] | None = None,
) -> Iterator[Outcome]:
    """Outcomes as they come; a single task raises instead of failing, so that its exit code is the command's.

    `progress(title)` gives a callback for one file, or for all of them if several run at once. `elsewhere(tasks, callback)`
    does the tasks instead of this process, for example on a cluster.
    """
    waiting: list[Task] = []
    for task in tasks:
        try:
            if is_wanted(task, overwrite=overwrite):
                waiting.append(task)
            else:
                remove_unfinished(task.target.parent)  # what a killed run left, also where nothing is written any more
                yield Outcome(task, "skipped")
        except (GlocalError, OSError) as error:
            if len(tasks) == 1:
                raise
            yield failure(task, error)
    if elsewhere is not None:
        if waiting:
            with progress(f"{len(waiting)} files") as tell:
                yield from elsewhere(waiting, tell)
        return
    if jobs > 1 and len(waiting) > 1:
        with progress(f"{len(waiting)} files") as tell:
            yield from run_in_processes(waiting, work, estimate, jobs=jobs, tell=tell)
        return
    for count, task in enumerate(waiting, 1):
        title = task.source.name if len(waiting) == 1 else f"{task.source.name} ({count}/{len(waiting)})"
        try:
            with progress(title) as tell:
                outcome = perform(task, work, estimate, tell)
        except Exception as error:
            if len(tasks) == 1:
                raise
            outcome = failure(task, error)
        yield outcome
