"""Where compiled kernels are kept: their own folder in the user's cache directory, or nowhere.

The folder's name holds a hash of all kernel sources. A compiled kernel contains the constants of every module it uses,
so a change of any of them must not find the old ones. `GLOCAL_CACHE_DIR` (or `NUMBA_CACHE_DIR`) names another place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SETTING = "GLOCAL_CACHE_DIR"
_KEPT = 4  # folders of other versions
_DAY = 86400.0


@dataclass(frozen=True)
class CacheFolder:
    """The folder of this version's kernels, and why it cannot be used ("" if it can)."""

    path: Path
    problem: str = ""

    @property
    def files(self) -> list[Path]:
        """The files in it."""
        with contextlib.suppress(OSError):
            return [path for path in self.path.iterdir() if path.is_file()]
        return []

    @property
    def size(self) -> int:
        """Bytes of all files in it."""
        total = 0
        for path in self.files:
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        return total


@cache
def cache_folder() -> CacheFolder:
    """Make the folder for compiled kernels, or say why there is none. Folders of old versions are removed too."""
    place = place_of(os.environ)
    folder = place / source_hash()
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
    except OSError as error:
        return CacheFolder(folder, (error.strerror or str(error)).lower())
    if new:
        remove_old(place, keep=folder)
    return CacheFolder(folder)


@cache
def source_hash() -> str:
    """Hash the sources of all kernels for the CPU, with the versions of Python and Numba."""
    from importlib.metadata import version

    digest = hashlib.sha256(repr((sys.version_info[:2], version("numba"), version("llvmlite"))).encode())
    room = Path(__file__).parent
    for path in sorted([*room.glob("*.py"), *(room / "cpu").glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def place_of(settings: Mapping[str, str]) -> Path:
    """Return the folder that holds the folders of all versions, from the environment variables."""
    if settings.get(SETTING):
        return Path(settings[SETTING]).absolute() / "kernels"
    if settings.get("NUMBA_CACHE_DIR"):
        return Path(settings["NUMBA_CACHE_DIR"]).absolute() / "glocal-kernels"
    if sys.platform == "win32":
        root = Path(settings.get("LOCALAPPDATA") or "~/AppData/Local")
    elif sys.platform == "darwin":
        root = Path("~/Library/Caches")
    else:
        root = Path(settings.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        root = root.expanduser()
    except RuntimeError:  # an account without a home
        root = Path(tempfile.gettempdir()) / f"cache-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    return root / "glocal" / "kernels"


def remove_old(place: Path, *, keep: Path) -> None:
    """Remove folders of other versions, except the newest few and those used within a day.

    A process that still uses one finds its files gone, and compiles again.
    """
    with contextlib.suppress(OSError):
        others = [(path.stat().st_mtime, path) for path in place.iterdir() if path != keep and path.is_dir()]
        for used, path in sorted(others, reverse=True)[_KEPT:]:
            if time.time() - used > _DAY:
                shutil.rmtree(path, ignore_errors=True)
