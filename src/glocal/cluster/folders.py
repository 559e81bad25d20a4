"""Many files on a cluster: groups of files are sent to workers, and their outcomes come back.

At most a few groups per worker are submitted at a time, so the memory of the scheduler does not grow with the number of
files. Nothing but names, outcomes and the job itself travels: workers read and write the files.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.atomic import hidden_folder
from glocal.cluster.connection import connected, workers_of
from glocal.cluster.manifest import Manifest
from glocal.cluster.options import ClusterOptions
from glocal.cluster.pace import Pace, expected_seconds
from glocal.cluster.worker import STOP, Row, Setup, run_group, topic_of
from glocal.errors import DeviceError, GlocalError
from glocal.jobs.batch import Outcome, Work, failure
from glocal.jobs.interrupt import stop_on_interrupt
from glocal.jobs.job import Cost
from glocal.jobs.paths import Task
from glocal.jobs.processes import threads_for
from glocal.progress import Callback, Progress

if TYPE_CHECKING:
    from distributed import Client, Future

_AHEAD = 2  # groups per worker: one that runs and one that waits
_DEATHS = 10  # of a group's workers before the first file was started
_LOOK = 5.0  # seconds between looks at the number of workers


Run = Callable[[list[Task], Callback, Work, Callable[[Task], Cost]], Iterator[Outcome]]
"""Does tasks on a cluster: `run(tasks, callback, work, estimate)` yields outcomes in the order in which they end."""


def run_on_cluster(
    tasks: list[Task], tell: Callback, *, work: Work, estimate: Callable[[Task], Cost], folder: Path, **settings: Any
) -> Iterator[Outcome]:
    """Connect, do the tasks and yield their outcomes. `folder` gets a manifest. For `settings` see `cluster_runner`."""
    folder.mkdir(parents=True, exist_ok=True)
    with cluster_runner(folder=folder, manifest=Manifest(folder), **settings) as run:
        yield from run(tasks, tell, work, estimate)


@contextlib.contextmanager
def cluster_runner(
    options: ClusterOptions,
    *,
    folder: Path,
    memory: int | None,
    overwrite: bool,
    gpu: bool,
    say: Callable[[str], None],
    manifest: Manifest | None = None,
) -> Iterator[Run]:
    """Yield a function that does tasks on the cluster that the options name. It may be called several times.

    Parameters
    ----------
    folder : Path
        A folder that all workers see, for the journals.
    memory : int or None
        Bytes for all processes of a local cluster together, or for each worker of another one.
    gpu : bool
        Each worker needs a GPU: the groups ask Dask for the resource GPU.

    Raises
    ------
    DeviceError
        The cluster does not answer, or the connection to its scheduler is lost.
    KeyboardInterrupt
        After Ctrl-C, when the files in progress have ended.
    """
    share = memory // options.processes if memory and options.processes else memory
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(connected(options, memory=share, say=say))
        journals = stack.enter_context(hidden_folder(folder.absolute() / "cluster"))
        stopping = stack.enter_context(stop_on_interrupt(say, "the files in progress"))
        threads = options.worker_threads or (threads_for(options.processes) if options.processes else None)
        resources = {"GPU": 1.0} if gpu and not options.processes else None
        numbers = itertools.count()

        def run(tasks: list[Task], tell: Callback, work: Work, estimate: Callable[[Task], Cost]) -> Iterator[Outcome]:
            setup = Setup(
                work, estimate, str(Path.cwd()), str(journals), _version(), tasks[0].skip, overwrite, share, threads
            )
            pace = Pace(options.batch_seconds, expected=expected_seconds(tasks, estimate))
            state = _Run(
                client, tasks, setup, pace, manifest, options.retries, resources, tell, numbers, options.processes
            )
            yield from state.outcomes(stopping)
            if stopping():
                raise KeyboardInterrupt

        yield run


def _version() -> str:
    import glocal

    return glocal.__version__


@dataclass
class _Group:
    """Files that travel together: their places among all tasks, and what is known of them so far."""

    number: int
    places: list[int]
    deaths: int = 0
    done: int = 0
    failed: int = 0


@dataclass
class _Run:
    """The client's side of a run."""

    client: Client
    tasks: list[Task]
    setup: Setup
    pace: Pace
    manifest: Manifest | None
    retries: int
    resources: dict[str, float] | None
    tell: Callback
    numbers: Iterator[int]
    processes: int
    done: int = 0
    failed: int = 0
    running: dict[str, _Group] = field(default_factory=dict)
    tried: dict[int, int] = field(default_factory=dict)

    def outcomes(self, stopping: Callable[[], bool]) -> Iterator[Outcome]:
        """Submit groups and yield what comes back, until nothing is left."""
        left = deque(range(len(self.tasks)))
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self.client.subscribe_topic(topic_of(self.setup.journals), self._hear)
        workers, looked, started = 1, 0.0, time.monotonic()
        try:
            while self.running or (left and not stopping()):
                if time.monotonic() - looked > _LOOK:
                    workers, looked = workers_of(self.client, self.processes), time.monotonic()
                while left and not stopping() and len(self.running) < _AHEAD * workers:
                    size = self.pace.size(left=len(left), workers=workers)
                    self._submit(_Group(next(self.numbers), [left.popleft() for _ in range(size)]), ended)
                if stopping():
                    Path(self.setup.journals, STOP).touch()
                with contextlib.suppress(queue.Empty):
                    future = ended.get(timeout=0.5)
                    for place, outcome in self._finish(future, ended):
                        if outcome.state == "failed" and self.tried.get(place, 0) < self.retries:
                            self.tried[place] = self.tried.get(place, 0) + 1
                            left.append(place)
                            continue
                        self.failed += outcome.state == "failed"
                        self.done += outcome.state != "failed"
                        yield outcome
                self._show(time.monotonic() - started)
        except BaseException:
            self.client.cancel([*self.running], force=True)
            raise
        finally:
            self.client.unsubscribe_topic(topic_of(self.setup.journals))

    def _submit(self, group: _Group, ended: queue.SimpleQueue[Future]) -> None:
        files = [(str(self.tasks[place].source), str(self.tasks[place].target)) for place in group.places]
        key = f"{topic_of(self.setup.journals)} {group.number} {group.deaths}"
        future = self.client.submit(
            run_group, group.number, pickle.dumps(files), self.setup, key=key, pure=False, resources=self.resources
        )
        self.running[key] = group
        future.add_done_callback(ended.put)

    def _finish(self, future: Future, ended: queue.SimpleQueue[Future]) -> list[tuple[int, Outcome]]:
        """Return the outcomes of a group, or submit it again if its workers died too often for Dask."""
        from distributed.scheduler import KilledWorker

        group = self.running.pop(str(future.key))
        try:
            rows: list[Row] = pickle.loads(future.result())
        except KilledWorker:
            group.deaths += 1
            if group.deaths < _DEATHS + 2 * len(group.places):
                self._submit(group, ended)
                return []
            rows = [(place, *_lost(self.tasks[at])) for place, at in enumerate(group.places)]
        except CancelledError as error:
            raise DeviceError(
                f"cluster: the connection to the scheduler was lost with {self.done} of {len(self.tasks)} files done. "
                "Start it again and go on with --skip-existing."
            ) from error
        except GlocalError:
            raise
        except Exception as error:
            raise DeviceError(
                f"cluster: a worker cannot do the work ({type(error).__name__}: {error}). "
                "Install the same glocal on all machines."
            ) from error
        found = [(group.places[row[0]], Outcome(self.tasks[group.places[row[0]]], *row[1:])) for row in rows]
        worked = [outcome.seconds for _, outcome in found if outcome.state == "done"]
        if worked:
            self.pace.measured(len(worked), sum(worked))
        if self.manifest is not None:
            self.manifest.add(outcome for _, outcome in found)
        Path(self.setup.journals, str(group.number)).unlink(missing_ok=True)
        return found

    def _hear(self, event: tuple[Any, tuple[int, int, int]]) -> None:
        """Take a report of a worker about the group it works on."""
        number, done, failed = event[1]
        for group in list(self.running.values()):
            if group.number == number:
                group.done, group.failed = done, failed

    def _show(self, seconds: float) -> None:
        inside = [(group.done, group.failed) for group in self.running.values()]
        done = self.done + sum(one for one, _ in inside)
        failed = self.failed + sum(one for _, one in inside)
        ended = done + failed
        rate = ended / seconds if seconds else 0.0
        rest = (len(self.tasks) - ended) / rate if rate else None
        note = f"{done} done, {failed} failed, {rate:.3g}/s"
        self.tell(Progress(ended / len(self.tasks), note=note, seconds=seconds, seconds_left=rest))


def _lost(task: Task) -> tuple[str, float, dict[str, Any], str, int]:
    error = DeviceError(f"{task.source}: every worker that got it ended. Look at the logs of the workers.")
    outcome = failure(task, error)
    return outcome.state, outcome.seconds, outcome.result, outcome.message, outcome.exit_code
