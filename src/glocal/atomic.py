"""Files that appear whole or not at all: write beside, flush to the disk, then give the final name.

A process that is killed leaves its unfinished file under a hidden name. Its writer holds a lock on it as long as it lives,
so that the next process which writes into the folder can tell that nobody will finish it, and removes it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from glocal.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows has no such locks; there, what a killed process leaves stays
    fcntl = None  # type: ignore[assignment]

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{8}\.glocal-part")


@contextlib.contextmanager
def write_whole(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary path in the folder of `path`; what is written there gets the name `path` when the block ends.

    If the block raises, or the process is killed at any moment, nothing appears under `path` and what was there before
    stays untouched. Without `overwrite` an existing file is never replaced, even if it appears while the block runs:
    the name is given by a hard link, which fails when the name is taken.

    Args:
        path: The final name. A symbolic link is followed; its folder must exist.
        overwrite: Replace an existing file.

    Yields:
        The temporary path, an empty file that exists already.

    Raises:
        OutputError: The output exists, its folder does not exist or cannot be written, or the disk is full.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with write_whole(out) as beside:
        ...     _ = beside.write_text("all of it")
        >>> out.read_text()
        'all of it'
    """
    final = check_free(path, overwrite=overwrite)
    remove_unfinished(final.parent)
    beside = _name_beside(final)
    lock = None
    try:
        lock = _claim(beside)
        yield beside
        if overwrite and final.exists():
            shutil.copymode(final, beside)
        _flush(beside)
        _give_name(beside, final, overwrite=overwrite)
        _flush_folder(final.parent)
    except OSError as error:
        raise output_error(final, error) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


@functools.lru_cache(maxsize=4096)
def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left unfinished in a folder; looked for once in each process.

    Only files go whose name is one that `write_whole` gives and on which no living process holds the lock.
    """
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _UNFINISHED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError), Path(entry.path).open("rb+") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the writer lives
                    Path(entry.path).unlink()


def check_free(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The real path of an output, after checking what can be checked before the work is done.

    Raises:
        OutputError: The output exists and `overwrite` is off, is a folder, or its folder does not exist.
    """
    final = Path(os.path.realpath(path))
    if final.is_dir():
        raise OutputError(f"write file ({path}): it is a folder. Name a file inside it.")
    if not final.parent.is_dir():
        raise OutputError(f"write file ({path}): the folder {final.parent} does not exist. Make the folder first.")
    if final.exists() and not overwrite:
        raise _exists(path)
    return final


def check_writable(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """`check_free`, and a file can be made in the folder: for work that takes long before it writes.

    Raises:
        OutputError: See `check_free`, or the folder cannot be written to.
    """
    final = check_free(path, overwrite=overwrite)
    beside = _name_beside(final)
    try:
        beside.touch(exist_ok=False)
    except OSError as error:
        raise output_error(final, error) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return final


def output_error(path: str | os.PathLike[str], error: OSError) -> OutputError:
    """What the system said while writing `path`, as an `OutputError` with a remedy."""
    if isinstance(error, FileExistsError):
        return _exists(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return OutputError(
            f"write file ({path}): the disk is full or the file is too large for it; no file was left. "
            "Free some space or choose another folder."
        )
    reason = error.strerror or str(error)
    return OutputError(f"write file ({path}): {reason.lower()}. Choose a folder that you may write to.")


def _exists(path: str | os.PathLike[str]) -> OutputError:
    return OutputError(f"write file ({path}): the file exists already. Add --overwrite or choose another name.")


def _name_beside(final: Path) -> Path:
    """A hidden name in the same folder that nobody else has."""
    # Cut to 180 bytes, since it must not be longer than file systems allow.
    stem = final.name.encode()[:180].decode(errors="ignore")
    return final.with_name(f".{stem}.{secrets.token_hex(4)}.glocal-part")


def _claim(beside: Path) -> int | None:
    """Make an empty file and hold its lock until the handle is closed; None where there are no locks."""
    while True:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if fcntl is None:
            os.close(handle)
            return None
        with contextlib.suppress(OSError):  # some network folders know no locks; nothing is removed there either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # another process came in before the lock, and removed it


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut, where the system lets a folder be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _give_name(beside: Path, final: Path, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(beside, final)  # noqa: PTH105  the one call that is atomic everywhere
        return
    try:
        os.link(beside, final)
    except FileExistsError:
        raise
    except OSError:
        # File systems without hard links (FAT, some network shares): the check and the renaming are two steps there.
        if final.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(final)) from None
        beside.rename(final)
