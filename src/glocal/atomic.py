"""Files that appear whole or not at all: write to a temporary place, flush to the disk, then give the final name.

The temporary place is a hidden folder next to the output. Its writer holds a lock on it as long as it lives. If the
process is killed, the next process that writes into the same folder finds the lock free and removes the rest.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from glocal.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows has no such locks; what a killed process leaves stays there
    fcntl = None  # type: ignore[assignment]

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{8}\.glocal-part", re.DOTALL)
_INSIDE = "part"  # without the suffix of the output, so that nobody takes it for a finished file
_MAX_NAME, _MAX_PATH = 255, 4096  # bytes; the limits of nearly all file systems, and of Linux


@contextlib.contextmanager
def write_whole(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path; what is written there gets the name `path` when the block ends.

    If the block raises, or the process is killed at any moment, nothing appears under `path` and what was there before
    stays untouched. Without `overwrite` an existing file is never replaced, even if it appears while the block runs:
    the name is given by a hard link, which fails when the name is taken. The block may write into the temporary file or
    replace it by another, as some libraries do.

    Parameters
    ----------
    path : str or path
        The final name. A symbolic link is followed; its folder must exist.
    overwrite : bool
        Replace an existing file. The new file keeps the permissions of the old one.

    Yields
    ------
    Path
        The temporary path, an empty file that exists already.

    Raises
    ------
    OutputError
        The output exists, its name cannot be used, its folder does not exist or cannot be written, or the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with write_whole(out) as temporary:
    ...     _ = temporary.write_text("all of it")
    >>> out.read_text()
    'all of it'
    """
    final = check_free(path, overwrite=overwrite)
    remove_unfinished(final.parent)
    folder = _hidden_name(final)
    temporary = folder / _INSIDE
    lock = None
    try:
        lock = _claim(folder)
        temporary.touch()
        mode = temporary.stat().st_mode & 0o777
        yield temporary
        temporary.chmod(final.stat().st_mode & 0o777 if overwrite and final.exists() else mode)
        _flush(temporary)
        _give_name(temporary, final, overwrite=overwrite)
        _flush_folder(final.parent)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        _remove(folder)
        if lock is not None:
            os.close(lock)


@contextlib.contextmanager
def hidden_folder(beside: Path) -> Iterator[Path]:
    """Yield a new hidden folder next to `beside`, for files that belong to a run. It is removed at the end.

    If the process is killed, the next process that writes into the same place removes it. Folders inside of it are not
    removed.

    >>> import tempfile
    >>> with hidden_folder(Path(tempfile.mkdtemp()) / "run") as folder:
    ...     _ = (folder / "a").write_text("1")
    >>> folder.exists()
    False
    """
    remove_unfinished(beside.parent)
    folder = _hidden_name(beside)
    try:
        lock = _claim(folder)
    except OSError as error:
        raise output_error(beside, error) from error
    try:
        yield folder
    finally:
        _remove(folder)
        if lock is not None:
            os.close(lock)


@functools.lru_cache(maxsize=4096)
def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left unfinished in a folder. Each process looks into a folder once.

    Only entries with a name that `write_whole` gives are removed, and only if no living process holds their lock.
    """
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _UNFINISHED.fullmatch(entry.name) and not entry.is_symlink():
                with contextlib.suppress(OSError):
                    handle = os.open(entry.path, os.O_RDONLY)
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the writer lives
                        _remove(Path(entry.path))
                    finally:
                        os.close(handle)


def check_free(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the real path of an output after all checks that need no writing.

    Raises
    ------
    OutputError
        The output exists and `overwrite` is off, it is a folder, its folder does not exist, or its name or path is longer
        than a file system can hold.
    """
    try:
        final = Path(os.path.realpath(path))
        _check_lengths(path, final)
        if final.is_dir():
            raise OutputError(f"write file ({path}): it is a folder. Name a file inside it.")
        if not final.parent.is_dir():
            raise OutputError(f"write file ({path}): the folder {final.parent} does not exist. Make the folder first.")
        if final.exists() and not overwrite:
            raise _exists(path)
    except OSError as error:
        raise output_error(path, error) from error
    except ValueError as error:
        reason = "its name has a zero byte" if "\0" in str(path) else f"its name cannot be written to a disk ({error})"
        raise OutputError(f"write file ({str(path)!r}): {reason}. Choose another name.") from error
    return final


def check_writable(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Do what `check_free` does, and make sure that a file can be made in the folder, for work that takes long.

    Raises
    ------
    OutputError
        See `check_free`; or the folder cannot be written to.
    """
    final = check_free(path, overwrite=overwrite)
    hidden = _hidden_name(final)
    try:
        hidden.mkdir()
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        _remove(hidden)
    return final


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder if it is missing, and make sure that files can be made in it, for work that takes long.

    Raises
    ------
    OutputError
        It is a file, or it cannot be made or written to.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        hidden = _hidden_name(place / "a")
        try:
            hidden.mkdir()
        finally:
            _remove(hidden)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"make folder ({folder}): it is a file, or inside of one. Choose another folder.") from error
    except OSError as error:
        raise output_error(folder, error) from error
    return place


def output_error(path: str | os.PathLike[str], error: OSError) -> OutputError:
    """Return what the system said while writing `path`, as an `OutputError` with a remedy."""
    if isinstance(error, FileExistsError):
        return _exists(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return OutputError(
            f"write file ({path}): the disk is full or the file is too large for it; no file was left. "
            "Free some space or choose another folder."
        )
    if error.errno == errno.ENAMETOOLONG:
        return OutputError(f"write file ({path}): the name is too long for this file system. Choose a shorter name.")
    reason = error.strerror or str(error)
    return OutputError(f"write file ({path}): {reason.lower()}. Choose a folder that you may write to.")


def _exists(path: str | os.PathLike[str]) -> OutputError:
    return OutputError(f"write file ({path}): the file exists already. Add overwrite=True or choose another name.")


def _check_lengths(path: str | os.PathLike[str], final: Path) -> None:
    """Refuse names that no file can have, before any work is done."""
    name, whole = len(os.fsencode(final.name)), len(os.fsencode(final))
    if name > _MAX_NAME:
        raise OutputError(
            f"write file ({path}): the name has {name} bytes, and a file system takes {_MAX_NAME}. Choose a shorter name."
        )
    if whole >= _MAX_PATH:
        raise OutputError(
            f"write file ({path}): the path has {whole} bytes, and the system takes {_MAX_PATH - 1}. "
            "Choose a folder closer to the root."
        )


def _hidden_name(final: Path) -> Path:
    """Return a hidden name in the same folder that nobody else has."""
    # Cut to 180 bytes, so that the longer name still fits. Bytes that are not UTF-8 stay as they are.
    stem = os.fsdecode(os.fsencode(final.name)[:180])
    return final.with_name(f".{stem}.{secrets.token_hex(4)}.glocal-part")


def _claim(folder: Path) -> int | None:
    """Make a folder and hold its lock until the handle is closed; None where there are no locks."""
    while True:
        folder.mkdir()
        if fcntl is None:
            return None
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process saw it before the lock and removed it
        with contextlib.suppress(OSError):  # some network folders have no locks; nothing is removed there either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if folder.exists():
            return handle
        os.close(handle)


def _remove(place: Path) -> None:
    """Remove a temporary folder and the files in it, or a single file as earlier versions left them."""
    with contextlib.suppress(OSError):
        if not place.is_dir():
            place.unlink()
            return
        for inside in place.iterdir():
            inside.unlink()
        place.rmdir()


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


def _give_name(temporary: Path, final: Path, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, final)  # noqa: PTH105  the one call that is atomic everywhere
        return
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise
    except OSError:
        # File systems without hard links (FAT, some network shares): the check and the renaming are two steps there.
        if final.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(final)) from None
        temporary.rename(final)
