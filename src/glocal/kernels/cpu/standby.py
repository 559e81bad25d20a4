"""Threads that wait for compiled loops to run. To wake one takes a few microseconds.

An executor makes a future for each task, puts it into a queue, and reports the end, all in Python. Where a task takes a
tenth of a millisecond, caller and helper then spend a good part of it on waiting for each other's interpreter lock.
Here a task is handed over with one lock, and its end needs no report: who shares a work counts its parts (`turns`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, Thread, get_ident
from typing import Any


class Task:
    """A call that a helper makes.

    Who gave it sets `finished` where nothing is left to do for it: its helper may then still look for the next work, or
    wait for the interpreter.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self.finished = False
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
    """A thread that runs one task after the other: `task` is what it runs, `coming` what it has been given since."""

    def __init__(self) -> None:
        super().__init__(name="glocal-helper", daemon=True)
        self.task: Task | None = None
        self.coming: Task | None = None
        self._bell = Lock()
        self._bell.acquire()

    def free(self) -> bool:
        """Whether it would begin a task at once. `run` writes `task` before it clears `coming`, so they are read in turn."""
        if self.coming is not None:
            return False
        task = self.task
        return task is None or task.finished

    def ring(self, task: Task) -> None:
        """Give it a task; it must be free."""
        self.coming = task
        self._bell.release()  # nothing, not even an interrupt, comes between these two lines

    def run(self) -> None:
        while True:
            self._bell.acquire()
            self.task = self.coming
            self.coming = None
            if self.task is not None:
                self.task.run()
            self.task = None  # and with it the arrays


_helpers: list[_Helper] = []
_giving = Lock()
_giver = 0  # the thread that gives, or gave last


def hand_over(function: Callable[..., Any], *args: Any) -> Task | None:
    """Let a helper call a function. Returns None where all helpers are busy, one less than there are cores.

    >>> seen = []
    >>> task = hand_over(seen.append, 1)
    >>> if task is not None:
    ...     task.wait()
    >>> len(seen) == (task is not None)
    True
    """
    global _giver
    task, me = Task(function, args), get_ident()
    if _giver == me and _giving.locked():  # a signal has interrupted this function in this thread
        return None
    with _giving:
        _giver = me
        for helper in _helpers:
            if helper.free():
                helper.ring(task)
                return task
        return task if len(_helpers) < (os.cpu_count() or 1) - 1 and _begin(task) else None


def _begin(task: Task) -> bool:
    """Begin another helper with this task; there may be no more threads, or Python ends."""
    helper = _Helper()
    helper.ring(task)
    try:
        helper.start()
    except RuntimeError:
        return False
    finally:
        if helper.is_alive():  # also where an interrupt came
            _helpers.append(helper)
    return True


def _forget() -> None:
    global _giving
    _helpers.clear()
    _giving = Lock()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork; the child makes its own
    os.register_at_fork(after_in_child=_forget)
