"""Threads that wait for compiled loops to run. To wake one takes a few microseconds.

An executor makes a future for each task, puts it into a queue, and reports the end, all in Python. Where a task takes a
tenth of a millisecond, caller and helper then spend a good part of it on waiting for each other's interpreter lock.
Here a task is handed over with one lock, and its end needs no report: who shares a work counts its parts (`turns`).

A sleeping thread takes up to 50 microseconds to wake. So after each task a helper looks for the next one for a while,
in compiled code that leaves the interpreter to others, and comes back when the caller has gone into its own part.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glocal.kernels.cpu.compiled import njit

_PATIENCE = 250  # looks before a helper sleeps: about 300 microseconds
_PAUSE = platform.machine().lower() in ("x86_64", "amd64")


@intrinsic
def _look(typing: Any, address: Any) -> Any:
    """Read the number at an address that another thread writes to."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.IntType(64)
        return builder.load_atomic(builder.inttoptr(args[0], number.as_pointer()), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def _pause(typing: Any) -> Any:
    """Leave the core to its other thread for a moment, where it has one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _PAUSE:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), generate


if os.name == "posix":
    _let_others = types.ExternalFunction("sched_yield", types.int32())
else:

    @njit(nogil=True)
    def _let_others():
        """Nothing: Windows has no such function."""


@njit(nogil=True, cache=True)
def _watch(mail, patience):
    """Look up to `patience` times for a counter's address in `mail`, then until that counter has moved.

    In between, threads of torch that are woken for an operation get the core.
    """
    look = 0
    while look < patience and (_look(mail) == 0 or _look(_look(mail)) == 0):
        look += 1
        for _ in range(40):
            _pause()
        _let_others()


class Task:
    """A call that a helper makes, not before the counter `begun` has moved or the helper's patience ends.

    Who gave it sets `over` where nothing is left to do for it: its helper may then still wait for the interpreter.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], begun: np.ndarray) -> None:
        self._function, self._args = function, args
        self.begun, self.over = begun, False
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
        self._mail = np.zeros(1, np.int64)
        self._bell = Lock()
        self._bell.acquire()

    def free(self) -> bool:
        """Whether it would begin a task at once."""
        task = self.task
        return self.coming is None and (task is None or task.over)

    def ring(self, task: Task) -> None:
        """Give it a task; it must be free."""
        begun = task.begun.ctypes.data
        self.coming = task  # it keeps the counter at that address
        self._mail[0] = begun
        self._bell.release()  # nothing, not even an interrupt, comes between these three lines

    def run(self) -> None:
        mail = self._mail.ctypes.data
        while True:
            self._bell.acquire()
            self._mail[0] = 0
            self.task, self.coming = self.coming, None
            if self.task is not None:
                self.task.run()
            self.task = None  # and with it the arrays
            _watch(mail, _PATIENCE)


_NOW = np.ones(1, np.int64)
_begun: list[_Helper] = []
_giving = Lock()


def hand_over(function: Callable[..., Any], *args: Any, begun: np.ndarray = _NOW) -> Task | None:
    """Let a helper call a function. Returns None where all helpers are busy, one less than there are cores.

    `begun` is a counter (int64) that the caller moves from 0 in compiled code, soon after this. A helper that is awake
    waits for that, since the interpreter is free by then. Otherwise it begins at once.

    >>> seen = []
    >>> task = hand_over(seen.append, 1)
    >>> if task is not None:
    ...     task.wait()
    >>> len(seen) == (task is not None)
    True
    """
    task = Task(function, args, begun)
    if not _begun:
        _watch(_NOW.ctypes.data, 0)  # compiled here: a fork must not find its thread in the compiler
    with _giving:
        for helper in _begun:
            if helper.free():
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
