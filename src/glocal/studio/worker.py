"""A process that does one piece of work after another and reports what happens. If it dies, the studio continues.

The studio itself imports neither torch nor a decoder: files of strangers are read, and jobs are run, in such processes.
They are forked from a server process that has imported everything and does nothing else. So a job starts at once, and the
processes share the memory of the libraries. Windows has no such server; there each process imports for itself.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

from glocal.errors import GlocalError, MemoryLimitError
from glocal.jobs.failures import Stopped, describe
from glocal.jobs.processes import end_with_parent
from glocal.progress import Progress

EventName = Literal["progress", "preview", "message", "stopping", "done", "stopped", "failed"]
ENDS = ("done", "stopped", "failed")
_PROGRESS_SECONDS = 0.2
_PREVIEW_SECONDS = 0.5
_PREVIEW_SIDE = 1024
_STOP = "stop"


@dataclass(frozen=True)
class Event:
    """An event of a worker: progress (a `State`), a preview (JPEG bytes), a message (text), or how the work ended.

    The value of "done" and "stopped" is what the function returned; that of "failed" is a text for people.
    """

    name: EventName
    value: Any = None


@dataclass(frozen=True)
class State:
    """How far a job is: the fields of `glocal.progress.Progress` that a page shows."""

    fraction: float
    step: str = ""
    seconds_left: float | None = None
    level: int = 0
    levels: int = 1


class StoppedWork(Exception):  # noqa: N818  no error: it carries the best result so far
    """The work was asked to stop and did; `value` is what it has."""

    def __init__(self, value: Any) -> None:
        super().__init__("stopped")
        self.value = value


class Link:
    """The worker's end of the pipe: it reports events and answers whether the work should stop."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._next_progress = self._next_preview = 0.0
        self._stopping = False

    def message(self, text: str) -> None:
        """Report a message for the user."""
        self._pipe.send(Event("message", text))

    def progress(self, now: Progress) -> bool:
        """Report the progress, and a picture now and then; returns True if the work should stop."""
        moment = time.monotonic()
        if moment >= self._next_progress:
            self._next_progress = moment + _PROGRESS_SECONDS
            self._pipe.send(Event("progress", State(float(now), now.step, now.seconds_left, now.level, now.levels)))
        if now.image is not None and moment >= self._next_preview:
            self._pipe.send(Event("preview", encoded_preview(now.image)))
            spent = time.monotonic() - moment  # previews take a tenth of the time at most
            self._next_preview = moment + max(_PREVIEW_SECONDS, 10 * spent)
        return self.stopping()

    def stopping(self) -> bool:
        """Whether the studio asked the work to stop."""
        while not self._stopping and self._pipe.poll():
            self._stopping = self._pipe.recv() == _STOP
        return self._stopping


def encoded_preview(lab: Any) -> bytes:
    """Encode a picture in Lab (h, w, 3) as JPEG, at most 1024 pixels long; small ones are enlarged to be seen."""
    from PIL import Image

    from glocal.color_space import rgb_from_lab
    from glocal.files.images.picture import to_depth

    shown = Image.fromarray(to_depth(rgb_from_lab(lab.detach()).clamp(0, 1).float().cpu().numpy(), "8"))
    longer = max(shown.size)
    scale = max(1, 256 // longer) if longer < 256 else min(1.0, _PREVIEW_SIDE / longer)
    if scale != 1:
        size = tuple(max(1, round(side * scale)) for side in shown.size)
        shown = shown.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR)  # type: ignore[arg-type]
    buffer = io.BytesIO()
    shown.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


class Worker:
    """A process for one piece of work at a time.

    Parameters
    ----------
    modules : sequence of str
        What to import at once, so that the work begins without delay. The first worker waits for it.

    Raises
    ------
    WorkError
        The system starts no process.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when the libraries are loaded
        method: Any = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(list(modules))
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, tuple(modules)), daemon=True)
        try:
            self._process.start()
        except (EOFError, OSError) as error:
            message = "studio: no process could be started for the work. Close other programs, then try again."
            raise WorkError(message) from error
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether the process can take work."""
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid or 0

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Start `function(link, *arguments)`, a function of a module; `events` gives what it reports."""
        with contextlib.suppress(OSError):  # `next_event` says that the process is gone
            self._pipe.send((function, arguments))

    def next_event(self, timeout: float) -> Event | None:
        """Wait for the next event; None if there is none in time. A process that dies fails."""
        try:
            if self._pipe.poll(timeout):
                event: Event = self._pipe.recv()
                return event
        except (EOFError, OSError):
            self._process.join()
            return Event("failed", describe(_died(self._process.exitcode)))
        return None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Do a short piece of work and return its value.

        Raises
        ------
        GlocalError
            The work failed; the message is for people.
        """
        self.begin(function, *arguments)
        while True:
            event = self.next_event(1.0)
            if event is not None and event.name == "failed":
                raise WorkError(event.value)
            if event is not None and event.name in ENDS:
                return event.value

    def stop(self) -> None:
        """Ask the work to stop and to return the best so far."""
        with contextlib.suppress(OSError):
            self._pipe.send(_STOP)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class WorkError(GlocalError, RuntimeError):
    """Work in another process failed; the message was written there, for the user."""


def _died(code: int | None) -> GlocalError:
    """Say in words why a process ended."""
    if code is not None and code == -signal.SIGKILL:
        return MemoryLimitError(
            "studio: the job's process was killed, most likely because the memory was full. Use a smaller input or size."
        )
    how = f"exit code {code}" if code is None or code >= 0 else f"signal {signal.Signals(-code).name}"
    return WorkError(f"studio: the job's process crashed ({how}). Run the same job on the command line with --debug.")


def _serve(pipe: Connection, modules: tuple[str, ...]) -> None:
    """Do work until the pipe is closed."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the studio, which ends its workers
    for module in modules:
        importlib.import_module(module)
    while True:
        try:
            found = pipe.recv()
        except (EOFError, OSError):
            return
        if found == _STOP:  # it came after the end of the work
            continue
        function, arguments = found
        try:
            event = Event("done", function(Link(pipe), *arguments))
        except StoppedWork as stop:
            event = Event("stopped", stop.value)
        except Stopped as stop:
            event = Event("stopped", str(stop))
        except Exception as error:
            event = Event("failed", describe(error))
        pipe.send(event)
