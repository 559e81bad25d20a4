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
    """A thread that runs one task after the other. Between them `task` is None."""

    def __init__(self) -> None:
        super().__init__(name="glocal-helper", daemon=True)
        self.task: Task | None = None
        self._bell = Lock()
        self._bell.acquire()

    def ring(self, task: Task) -> None:
        """Give it a task; it must have none."""
        self.task = task
        self._bell.release()  # nothing, not even an interrupt, comes between these two lines

    def run(self) -> None:
        while True:
            self._bell.acquire()
            if self.task is not None:
                self.task.run()
            self.task = None  # and with it the arrays


_begun: list[_Helper] = []
_giving = Lock()


def hand_over(function: Callable[..., Any], *args: Any) -> Task | None:
    """Let a helper call a function. Returns None where all helpers are busy, one less than there are cores.

    >>> seen = []
    >>> task = hand_over(seen.append, 1)
    >>> if task is not None:
    ...     task.wait()
    >>> len(seen) == (task is not None)
    True
    """
    task = Task(function, args)
    with _giving:
        for helper in _begun:
            if helper.task is None:
                helper.ring(task)
                return task
        if len(_begun) >= (os.cpu_count() or 1) - 1:
            return None
        helper = _Helper()
        helper.ring(task)
        try:
            helper.start()
        except RuntimeError:  # there can be no more threads, or Python ends
            return None
        _begun.append(helper)
        return task


def _forget() -> None:
    global _giving
    _begun.clear()
    _giving = Lock()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork; the child makes its own
    os.register_at_fork(after_in_child=_forget)
