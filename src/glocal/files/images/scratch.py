"""Scratch: large arrays in temporary files instead of memory.

The files have no names, so the system removes them when the process ends, even if it is killed.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from glocal.atomic import output_error
from glocal.errors import OutputError
from glocal.files.images.picture import Array


class Scratch:
    """A place for arrays that should not stay in memory.

    Parameters
    ----------
    folder : path
        Where the files are made. It must be on a disk: the temporary folder of some systems is memory.
    memory : int
        The bytes that its user may take in memory.

    Examples
    --------
    >>> scratch = Scratch(tempfile.gettempdir(), memory=1 << 30)
    >>> array = scratch.empty((2, 3), np.uint8)
    >>> array[:] = 7
    >>> scratch.release()
    >>> int(array.sum())
    42
    """

    def __init__(self, folder: str | os.PathLike[str], *, memory: int) -> None:
        self.folder, self.memory = Path(folder), memory
        self._maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a new array in a file. Its content is zero.

        Raises
        ------
        OutputError
            The folder cannot be written to, or the disk is full.
        """
        dtype = np.dtype(dtype)
        size = max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        try:
            with tempfile.TemporaryFile(dir=self.folder, prefix=".", suffix=".glocal-part") as file:
                _reserve(file.fileno(), size)
                space = mmap.mmap(file.fileno(), size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                message = (
                    f"temporary file ({self.folder}): there is no space for {size:,} bytes. "
                    "Free some space, or allow more memory."
                )
                raise OutputError(message) from error
            raise output_error(self.folder, error) from error
        self._maps.add(space)
        return np.frombuffer(space, dtype, count=int(np.prod(shape, dtype=np.int64))).reshape(shape)

    def release(self) -> None:
        """Give back the memory that the arrays take at this moment; what they hold stays in their files."""
        for space in list(self._maps):
            if hasattr(space, "madvise"):
                space.madvise(mmap.MADV_DONTNEED)


def _reserve(handle: int, size: int) -> None:
    """Take the space now: a disk that becomes full later would kill the process that writes into the mapping."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.ftruncate(handle, size)
