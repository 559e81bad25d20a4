"""The temporary folder of a studio: it contains uploads and results, and is removed at the end.

The folder is private to the user. The studio holds a lock on it as long as it lives. The next studio that starts removes
the folders whose lock is free: those of studios that were killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks; what a killed studio leaves stays there
    fcntl = None  # type: ignore[assignment]

PREFIX = "glocal-studio-"
_NOTED = "noted"


class Workspace:
    """A private folder: `served` contains what the browser may fetch, `private` what only the studio reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.served, self.private = root / "served", root / "private"
        self.served.mkdir()
        self.private.mkdir()
        self._sessions: dict[str, list[Path]] = {}

    def new_folder(self, session: str) -> Path:
        """Make a folder for one job of a session, with a name that cannot be guessed."""
        folder = self.served / secrets.token_hex(16)
        folder.mkdir()
        self._sessions.setdefault(session, []).append(folder)
        return folder

    def new_private_file(self, session: str, suffix: str) -> Path:
        """Return a name for a file of a session that the browser may not fetch."""
        path = self.private / (secrets.token_hex(16) + suffix)
        self._sessions.setdefault(session, []).append(path)
        return path

    def note(self, folder: str) -> None:
        """Note a temporary folder of the libraries, which goes with this one if the studio is killed."""
        (self.root / _NOTED).write_text(folder)

    def forget(self, session: str) -> None:
        """Remove everything of a session."""
        for path in self._sessions.pop(session, ()):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with everything in it; say nothing if that fails."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def workspace(parent: str | os.PathLike[str] | None = None) -> Iterator[Workspace]:
    """Make a workspace in the system's temporary folder, or in `parent`, and remove it at the end.

    First removes the workspaces of studios that were killed.

    >>> with workspace() as found:
    ...     root = found.root
    ...     root.exists()
    True
    >>> root.exists()
    False
    """
    place = Path(parent) if parent is not None else Path(tempfile.gettempdir())
    remove_abandoned(place)
    while True:
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place)).resolve()
        lock = _locked(root)
        if root.exists():  # else another studio saw it before the lock and removed it
            break
    try:
        yield Workspace(root)
    finally:
        remove(root)
        if lock is not None:
            os.close(lock)


def remove_abandoned(place: Path) -> list[Path]:
    """Remove the workspaces in a folder that no running studio has locked; returns those that were removed."""
    removed: list[Path] = []
    if fcntl is None:
        return removed
    for root in place.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if root.is_symlink() or not root.is_dir() or root.stat().st_uid != os.getuid():
                continue
            lock = _locked(root)
            if lock is not None:
                _remove_noted(root)
                remove(root)
                os.close(lock)
                removed.append(root)
    return removed


def _remove_noted(root: Path) -> None:
    """Remove the folder of `multiprocessing` that a killed studio noted, if it is one."""
    with contextlib.suppress(OSError):
        noted = Path((root / _NOTED).read_text())
        if noted.parent == root.parent and noted.name.startswith("pymp-") and noted.stat().st_uid == os.getuid():
            remove(noted)


def _locked(folder: Path) -> int | None:
    """Return a handle with the lock of a folder, or None if another process has it or there are no locks."""
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
