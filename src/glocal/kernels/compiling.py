"""Who wants to know that kernels are being compiled. Light: nothing heavy is imported here.

The first run on a machine compiles the kernels it needs, which takes seconds. `compiling` lets a caller show that as a
step of its own, instead of hiding it in an estimate of the time left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Compiling:
    """A kernel that is being compiled, or just was.

    Attributes
    ----------
    kernel : str
        Its name, such as "convolve.forward".
    done : bool
        False when compiling begins, True when it ended.
    count : int
        Kernels compiled so far in this process.
    seconds : float
        Time that this took so far in this process.
    """

    kernel: str
    done: bool
    count: int
    seconds: float


_callbacks: list[Callable[[Compiling], None]] = []


@contextmanager
def compiling(callback: Callable[[Compiling], None]) -> Iterator[None]:
    """Call `callback` before and after each kernel that is compiled inside the block, on the thread that compiles.

    >>> seen = []
    >>> with compiling(seen.append):
    ...     announce(Compiling("grams.forward", False, 0, 0.0))
    >>> seen[0].kernel
    'grams.forward'
    """
    _callbacks.append(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)


def announce(event: Compiling) -> None:
    """Tell all callbacks about a kernel."""
    for callback in list(_callbacks):
        callback(event)
