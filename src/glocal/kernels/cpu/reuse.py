"""Large arrays that are made and dropped again and again.

Fresh memory comes from the system page by page, set to zero, which takes a good part of the time that is needed to
compute what goes into it. Inside `reusing`, the memory of dropped arrays is kept for the next who asks.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_MOST = 8  # arrays kept
_spare: list[Any] | None = None


@contextmanager
def reusing() -> Iterator[None]:
    """Keep the memory of dropped arrays until the end."""
    global _spare
    if _spare is not None:
        yield
        return
    _spare = []
    try:
        yield
    finally:
        _spare = None


def room(count: int, dtype: Any) -> Any:
    """Make an array of `count` numbers, not set to anything, that begins at a cache line.

    Inside `reusing`, hold the array itself for as long as its memory is used: a slice of it does not keep it.

    >>> with reusing():
    ...     first = room(1000, np.float32).ctypes.data
    ...     first == room(500, np.float64).ctypes.data
    True
    """
    size = count * np.dtype(dtype).itemsize
    base = _take(size)
    if base is None:
        whole = np.empty(size + 64, np.uint8)
        skip = -whole.ctypes.data % 64
        base = whole[skip : skip + size]
    array = base.view(dtype)
    if _spare is not None:
        weakref.finalize(array, _give_back, base).atexit = False
    return array


def _take(size: int) -> Any:
    for place, base in enumerate(_spare or ()):
        if base.size == size:
            assert _spare is not None
            return _spare.pop(place)
    return None


def _give_back(base: Any) -> None:
    if _spare is not None:
        _spare[:] = [*_spare, base][-_MOST:]
