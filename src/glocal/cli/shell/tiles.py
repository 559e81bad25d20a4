"""A file command for one picture that is too large for memory: the same flags, in tiles."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from glocal.cli.shell.batch import BatchOptions
from glocal.cli.shell.console import Console
from glocal.cluster.options import ZARR
from glocal.errors import ArgumentError, GlocalError
from glocal.files.images.formats import SUFFIXES
from glocal.jobs.batch import Outcome, Work, check_here, failure, perform
from glocal.jobs.failures import Stopped
from glocal.jobs.job import Cost, ImageOutput, Job
from glocal.jobs.memory import available_memory
from glocal.jobs.paths import Task, check_mounted
from glocal.jobs.processes import run_in_processes
from glocal.progress import Callback, Progress, seconds_text

_LOOKED_AT = 64 << 20  # bytes of a TIFF file whose number of pixels is worth looking at
_WORTH_IT = 10.0  # seconds of work for which processes are started
Run = Callable[[list[Task], Work, Callable[[Task], Cost], str], Iterator[Outcome]]


def needs_tiles(job: type[Job], sources: list[str], output: str | None) -> bool:
    """Whether a command is about one picture that is read and written in tiles.

    It is if the picture or the output is a Zarr store, or if it is a TIFF file with too many pixels to be read as a whole.
    """
    if len(sources) != 1 or not issubclass(job.Output, ImageOutput):
        return False
    source = Path(sources[0])
    if ZARR in (source.suffix.lower(), Path(output or "").suffix.lower()):
        return True
    if SUFFIXES.get(source.suffix.lower()) != "TIFF" or not source.is_file() or source.stat().st_size < _LOOKED_AT:
        return False
    from glocal.files.images.read import MAX_PIXELS
    from glocal.files.images.windows import TiffPixels

    try:
        height, width, _ = TiffPixels(source).shape
    except GlocalError:
        return False  # reading it as a whole will say what is wrong
    return height * width > MAX_PIXELS


def run_tiles(job: Job, source: str, *, options: BatchOptions, console: Console, gpu: bool) -> None:
    """Do a job for one large picture and print the result.

    Raises
    ------
    GlocalError
        See `glocal.cluster.pictures.run_picture`.
    Stopped
        After Ctrl-C.
    """
    from glocal.cluster.pictures import plan_text, run_picture

    options.check(jobs=options.jobs)
    job.check(1)
    check_mounted(source, options.output)
    if options.output is None:
        raise ArgumentError(f"-o: a picture in tiles needs the name of its output. Write -o NAME{ZARR} or -o NAME.tif.")
    target, started, done = Path(options.output), time.monotonic(), [0]
    if not options.on_cluster:
        check_here(job)
    if options.dry_run:
        text = plan_text(Path(source), options.tile)
        console.result({"command": job.name, "input": source, "output": str(target), "plan": text}, text)
        return
    with _runner(options, target, console, done, gpu=gpu) as run:
        try:
            shown = run_picture(
                job, Path(source), target, run, tile=options.tile, skip=options.skip_existing, overwrite=options.overwrite,
                say=console.say,
            )  # fmt: skip
        except KeyboardInterrupt as stop:
            raise Stopped(f"{done[0]} tiles done; go on with --skip-existing") from stop
    seconds = time.monotonic() - started
    row = {"input": source, "output": str(target), "seconds": round(seconds, 3), **shown}
    console.result({"command": job.name, "results": [row]}, str(target))
    console.say(f"{job.name}: {shown['state']}, {done[0]} tiles in {seconds_text(seconds)}")


@contextlib.contextmanager
def _runner(options: BatchOptions, target: Path, console: Console, done: list[int], *, gpu: bool) -> Iterator[Run]:
    """Yield what does the tasks: a cluster, several processes, or this one. It counts them in `done`."""
    memory = options.max_memory or available_memory()
    with contextlib.ExitStack() as stack:
        if options.on_cluster:
            from glocal.cluster.connection import prepare_workers
            from glocal.cluster.folders import cluster_runner

            target.absolute().parent.mkdir(parents=True, exist_ok=True)
            runner = cluster_runner(
                options, folder=target.absolute().parent, memory=options.max_memory, overwrite=False, gpu=gpu,
                say=console.say,
            )  # fmt: skip
            connected = functools.cache(lambda: stack.enter_context(runner))
            if options.processes:
                prepare_workers("glocal.nn")  # while the command plans the picture
            else:
                connected()
            inner: Any = lambda *task: connected()(*task)  # noqa: E731
        else:
            inner = _several(options.jobs, memory) if options.jobs > 1 else _one_by_one(memory)

        def run(tasks: list[Task], work: Work, estimate: Callable[[Task], Cost], title: str) -> Iterator[Outcome]:
            with console.progress(title) as tell:
                for outcome in inner(tasks, tell, work, estimate):
                    done[0] += outcome.state == "done"
                    yield outcome

        yield run


def _several(jobs: int, memory: int) -> Callable[..., Iterator[Outcome]]:
    def run(tasks: list[Task], tell: Callback, work: Work, estimate: Callable[[Task], Cost]) -> Iterator[Outcome]:
        if len(tasks) * (estimate(tasks[0]).seconds or 1.0) < _WORTH_IT:
            return _one_by_one(memory)(tasks, tell, work, estimate)
        shared = [replace(task, memory=memory // jobs) for task in tasks]
        return run_in_processes(shared, work, estimate, jobs=jobs, tell=tell)

    return run


def _one_by_one(memory: int) -> Callable[..., Iterator[Outcome]]:
    def run(tasks: list[Task], tell: Callback, work: Work, estimate: Callable[[Task], Cost]) -> Iterator[Outcome]:
        for count, task in enumerate(tasks, 1):
            try:
                yield perform(replace(task, memory=memory), work, estimate, lambda value: None)
            except Exception as error:
                yield failure(task, error)
            tell(Progress(count / len(tasks)))

    return run
