"""What runs on a worker: one group of files after the other, with a journal that survives the worker.

The journal is a file next to the outputs. It says which files of the group were started and which ended. If the worker is
killed, Dask gives the group to another one, which continues there. A file that was started twice and never ended has
killed two workers: it fails, and the group goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.errors import InputError, MemoryLimitError
from glocal.jobs.batch import Outcome, Work, failure, perform
from glocal.jobs.job import Cost
from glocal.jobs.memory import available_memory
from glocal.jobs.paths import Task
from glocal.jobs.processes import set_threads

STOP = "stop"  # this file in the folder of journals asks workers to stop after the current file
_TELL_SECONDS = 1.0
_LOOK_SECONDS = 0.05  # between looks whether to stop
_encoded = json.JSONEncoder(default=str).encode
_one_at_a_time = threading.Lock()  # a worker with several threads would share its memory and its working folder

Row = tuple[int, str, float, dict[str, Any], str, int]
"""How a file of a group ended: its place in the group, then the fields of an `Outcome`."""


@dataclass(frozen=True)
class Setup:
    """What all groups of a run share.

    Attributes
    ----------
    folder
        The working folder of the command; names of files may be relative to it.
    journals
        The folder of the journals.
    memory, threads
        What a file may take; None for the worker's own limits.
    """

    work: Work
    estimate: Callable[[Task], Cost]
    folder: str
    journals: str
    version: str
    skip: bool
    overwrite: bool
    memory: int | None = None
    threads: int | None = None


def run_group(number: int, packed: bytes, setup: Setup) -> bytes:
    """Work on files one after the other. Errors of files become rows.

    Parameters
    ----------
    packed : bytes
        A pickled list of (source, target). Dask would look into each item of a list, which takes longer than the rest.

    Returns
    -------
    bytes
        A pickled list of `Row`, in the order of the files. Files that were not started because the run was stopped are missing.

    Raises
    ------
    InputError
        This worker cannot do the work: it has another version of glocal, or does not see the folder.
    """
    with _one_at_a_time:
        memory = _prepared(setup)
        journal = Journal(Path(setup.journals) / str(number))
        stop = Path(setup.journals, STOP)
        files: Sequence[tuple[str, str]] = pickle.loads(packed)
        rows: list[Row] = []
        last_report = looked = time.monotonic()
        for place, (source, target) in enumerate(files):
            if place in journal.ended:
                rows.append(journal.ended[place])
                continue
            now = time.monotonic()
            if now - looked > _LOOK_SECONDS or not rows:
                looked = now
                if stop.exists():
                    break
            if now - last_report > _TELL_SECONDS:
                last_report = now
                _tell(setup, number, rows)
            task = Task(Path(source), Path(target), memory, skip=setup.skip)
            rows.append(_row(place, _outcome(task, place, setup, journal)))
            journal.end(rows[-1])
        journal.close()
        return pickle.dumps(rows)


def _outcome(task: Task, place: int, setup: Setup, journal: Journal) -> Outcome:
    starts = journal.starts[place]
    if starts and not setup.overwrite and task.target.exists():
        return Outcome(task, "done")  # outputs appear whole: it was done, and only its report was lost
    if starts > 1:
        return failure(task, _killed(task))
    journal.start(place)
    try:
        return perform(task, setup.work, setup.estimate, _silent)
    except Exception as error:
        return failure(task, error)


def _killed(task: Task) -> MemoryLimitError:
    return MemoryLimitError(
        f"{task.source}: it killed its worker twice, most likely because memory ran out. "
        "Use a smaller input or workers with more memory."
    )


def _row(place: int, outcome: Outcome) -> Row:
    return place, outcome.state, outcome.seconds, outcome.result, outcome.message, outcome.exit_code


def _silent(value: Any) -> None:
    """Progress inside of a file is not shown when several files run at once."""


def _prepared(setup: Setup) -> int:
    """Bring this process into the state that the work expects; returns the bytes that a file may take."""
    from distributed import get_worker

    import glocal

    worker = get_worker()
    if glocal.__version__ != setup.version:
        raise InputError(
            f"cluster: the worker {worker.name} has glocal {glocal.__version__}, and the command {setup.version}. "
            "Install the same version on all machines."
        )
    try:
        os.chdir(setup.folder)
        Path(setup.journals).stat()
    except OSError as error:
        raise InputError(
            f"cluster: the worker {worker.name} does not see {error.filename} ({error.strerror}). "
            "Use folders that all machines see."
        ) from error
    set_threads(setup.threads or worker.state.nthreads)
    return setup.memory or worker.memory_manager.memory_limit or available_memory()


def _tell(setup: Setup, number: int, rows: list[Row]) -> None:
    """Report the state of a group to the client."""
    from distributed import get_worker

    failed = sum(row[1] == "failed" for row in rows)
    get_worker().log_event(topic_of(setup.journals), (number, len(rows) - failed, failed))


def topic_of(journals: str) -> str:
    """Return the name under which the workers of a run report."""
    return f"glocal {Path(journals).name}"


class Journal:
    """The starts and ends of the files of a group, one line each.

    A start is written at once, together with the end of the file before it. `close` writes the last end, so that a
    group whose result is lost on its way is not done again.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "0"
    >>> journal = Journal(path)
    >>> journal.start(3)
    >>> Journal(path).starts[3], Journal(path).ended
    (1, {})
    >>> journal.end((3, "done", 0.5, {}, "", 0))
    >>> journal.close()
    >>> Journal(path).ended[3][1]
    'done'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts: Counter[int] = Counter()
        self.ended: dict[int, Row] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_bytes().split(b"\n")[:-1]:
                found = json.loads(line)
                if isinstance(found, int):
                    self.starts[found] += 1
                else:
                    self.ended[found[0]] = (*found,)  # type: ignore[assignment]
        self._handle: int | None = None
        self._last = ""

    def start(self, place: int) -> None:
        """Note that the work on a file begins."""
        if self._handle is None:
            self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(self._handle, f"{self._last}{place}\n".encode())
        self._last = ""

    def end(self, row: Row) -> None:
        """Note how the work on a file ended."""
        self._last += f"{_encoded(row)}\n"

    def close(self) -> None:
        """Write the last end, and close the file."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            os.write(handle, self._last.encode())
            os.close(handle)

    def __del__(self) -> None:
        self.close()


def dask_setup(worker: Any) -> None:
    """Prepare a worker of a local cluster; Dask calls it when the process starts (`preload`).

    Ctrl-C in a terminal reaches all processes. Only the command may act on it.
    """
    if threading.current_thread() is threading.main_thread() and sys.platform != "win32":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
