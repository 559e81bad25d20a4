"""Studio: the workspace, the queue and the quick worker behind a page, and what each session has."""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.errors import GlocalError, InputError
from glocal.studio.job_queue import JobQueue, Ticket
from glocal.studio.orders import Made
from glocal.studio.worker import Worker
from glocal.studio.workspace import Workspace, workspace

MODULES = (
    "glocal.studio.orders",
    "glocal.studio.views",
    "glocal.apps.style.transfer",
    "glocal.apps.color.recolor",
    "glocal.graphs.vertex",
)
MAX_BYTES = 256 << 20
MAX_PIXELS = 64_000_000


@dataclass
class Session:
    """What belongs to one open page: its running job of each tab, and everything it has made."""

    name: str
    tickets: dict[str, list[Ticket]] = field(default_factory=dict)
    made: dict[str, list[Made]] = field(default_factory=dict)
    shown: int = 0  # which style result the page shows
    graph_folder: Path | None = None  # where the pictures of the graph tab lie


class Studio:
    """Everything that a page needs, without the page."""

    def __init__(self, place: Workspace, *, max_bytes: int = MAX_BYTES, max_pixels: int = MAX_PIXELS) -> None:
        self.place, self.max_bytes, self.max_pixels = place, max_bytes, max_pixels
        self.queue = JobQueue(MODULES)
        self.sessions: dict[str, Session] = {}
        self._quick: Worker | None = None
        self._lock = threading.Lock()

    def session(self, name: str | None) -> Session:
        """Return what belongs to a page; a new one has nothing."""
        return self.sessions.setdefault(name or "", Session(name or ""))

    def leave(self, name: str | None) -> None:
        """End the jobs of a page that was closed, and remove its files."""
        self.queue.stop_session(name or "")
        self.sessions.pop(name or "", None)
        self.place.forget(name or "")

    def quick(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Do a short piece of work in a process that stays; if it dies, the next call gets a new one.

        Raises
        ------
        GlocalError
            The work failed.
        """
        with self._lock:
            if self._quick is None or not self._quick.alive:
                self._quick = Worker(MODULES)
            return self._quick.call(function, *arguments)

    def warm(self) -> None:
        """Start the quick process, so that the first upload and the first job need not wait for imports."""
        with self._lock, contextlib.suppress(GlocalError):  # the first use says it
            if self._quick is None:
                self._quick = Worker(MODULES)
        with contextlib.suppress(OSError):  # the studio may have ended meanwhile, and its folder with it
            self.place.note(multiprocessing.util.get_temp_dir())  # where the server of the workers has its socket

    def uploaded(self, path: str | os.PathLike[str]) -> Path:
        """Return the path of an upload after checking that it is one, and not too large.

        Raises
        ------
        InputError
            It lies elsewhere, or is larger than the studio takes.
        """
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self.place.served) or not real.is_file():
            message = "upload: the file did not come from this page. Upload it again."
            raise InputError(message)
        if real.stat().st_size > self.max_bytes:
            message = f"upload ({real.name}): it has {real.stat().st_size:,} bytes, more than {self.max_bytes:,}. Make it smaller."
            raise InputError(message)
        return real

    def collected(self, session: str, uploads: Sequence[str | os.PathLike[str]]) -> tuple[Path, list[str]]:
        """Put uploads into a new folder under their own names, each file once; returns the folder and the names."""
        folder = self.place.new_folder(session)
        names: dict[Path, str] = {}
        reals = [self.uploaded(upload) for upload in uploads]
        for real in reals:
            if real in names:
                continue
            name, count = real.name, 1
            while name in names.values():
                count += 1
                name = f"{real.stem}-{count}{real.suffix}"
            try:
                os.link(real, folder / name)
            except OSError:  # no hard links here
                shutil.copyfile(real, folder / name)
            names[real] = name
        return folder, [names[real] for real in reals]

    def close(self) -> None:
        """End all processes."""
        self.queue.close()
        with self._lock:
            if self._quick is not None:
                self._quick.kill()


@contextlib.contextmanager
def open_studio(parent: str | os.PathLike[str] | None = None, **limits: int) -> Iterator[Studio]:
    """Open a studio in a new workspace, and end its processes and remove its files at the end."""
    with workspace(parent) as place:
        studio = Studio(place, **limits)
        try:
            yield studio
        finally:
            studio.close()
