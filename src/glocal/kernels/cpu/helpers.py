"""Threads that wait for compiled loops to run. To wake one takes a few microseconds.

An executor makes a future for each task, puts it into a queue, and reports the end, all in Python. Where a task takes a
tenth of a millisecond, caller and helper then spend a good part of it on waiting for each other's interpreter lock.
Here a task is handed over with one lock, and its end needs no report: who shares a work counts its parts (`turns`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any


class Task:
    """A call that a helper makes."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self._error: BaseException | None = None
        self._running = Lock()
        self._running.acquire()

    def run(self) -> None:
        """Call the function. What it raises is kept for `wait`."""
        try:
            self._function(*self._args)
        except BaseException as error:
            self._error = error
        self._args = ()
        self._running.release()

    def wait(self) -> None:
        """Wait until it ended, and raise what it raised."""
        with self._running:
            if self._error is not None:
                raise self._error


class _Helper(Thread):
    """A thread that runs one task after the other. Between them it is in `_idle`."""

    def __init__(self) -> None:
        super().__init__(name="glocal-helper", daemon=True)
        self._task: Task | None = None
        self._bell = Lock()
        self._bell.acquire()

    def ring(self, task: Task) -> None:
        """Give it a task; it must have been taken out of `_idle`."""
        self._task = task
        self._bell.release()

    def run(self) -> None:
        while True:
            self._bell.acquire()
            if self._task is not None:
                self._task.run()
            self._task = None  # and with it the arrays
            _idle.append(self)


_idle: list[_Helper] = []
_begun: list[_Helper] = []


def hand_over(function: Callable[..., Any], *args: Any) -> Task | None:
    """Let a helper call a function. Returns None where all helpers are busy, one less than there are cores.

    >>> seen = []
    >>> task = hand_over(seen.append, 1)
    >>> if task is not None:
    ...     task.wait()
    >>> len(seen) == (task is not None)
    True
    """
    try:
        helper = _idle.pop()  # the last one that worked; atomic under the interpreter lock
    except IndexError:
        if len(_begun) >= (os.cpu_count() or 1) - 1:
            return None
        helper = _Helper()
        _begun.append(helper)
        helper.start()
    task = Task(function, args)
    helper.ring(task)
    return task


def _forget() -> None:
    _idle.clear()
    _begun.clear()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork; the child makes its own
    os.register_at_fork(after_in_child=_forget)
