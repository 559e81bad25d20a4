"""Threads share a work by turns: the caller waits for every part, and a helper waits in compiled code for the next work."""

import os
import threading
import time

import numpy as np
import pytest

from glocal.kernels.cpu import standby, turns

ROWS = 8  # numbers between the counters in `turns`


@pytest.fixture
def shared(monkeypatch):
    """Two threads, with no helper from earlier tests, and a function that shares a work which counts as compiled."""
    monkeypatch.setattr(standby, "_helpers", [])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(turns, "count", lambda: 2)
    monkeypatch.setattr(turns, "_compiled", set())

    def share(parts, loop, *args):
        turns._compiled.add((loop, args[0].dtype))
        turns.share_turns(parts, loop, *args)

    return share


def slow_in_a_helper(both, broken=False, seen=None):
    """Make a loop of Python in which each of two threads takes one part, and the helper takes longer."""
    lock = threading.Lock()

    def loop(numbers, helps, out):
        with lock:
            part = int(numbers[0])
            numbers[0] += 1
        both.wait(10)
        if helps:
            end = time.monotonic() + 10  # until the caller waits, however long it compiles
            while not numbers[turns._WAITED] and time.monotonic() < end:
                time.sleep(0.01)
            if seen is not None:
                seen.append(int(numbers[turns._WAITED]))
            if broken:
                raise KeyError("part")
        out[part] = 1
        with lock:
            numbers[ROWS] += 1

    return loop


def test_the_caller_waits_for_the_part_of_a_helper(shared):
    done, seen = np.zeros(2), []
    shared(2, slow_in_a_helper(threading.Barrier(2), seen=seen), done)
    assert done.tolist() == [1, 1]
    assert seen == [1]  # so the helper does not linger


def test_an_error_in_a_helper_reaches_the_caller(shared):
    with pytest.raises(KeyError, match="part"):
        shared(2, slow_in_a_helper(threading.Barrier(2), broken=True), np.zeros(2))


def test_a_loop_that_is_not_compiled_yet_runs_in_the_caller_alone(shared):
    """A fork must not find a helper in the compiler, whose lock the child would inherit."""
    seen = []

    def loop(numbers, helps, out):
        seen.append(helps)
        numbers[ROWS] = 2

    turns.share_turns(2, loop, np.zeros(1))
    assert (seen, standby._helpers) == ([0], [])
    turns.share_turns(2, loop, np.zeros(1, np.float32))
    assert (seen, standby._helpers) == ([0, 0], [])
    turns.share_turns(2, loop, np.zeros(1))
    assert len(standby._helpers) == 1


def a_work():
    work = np.zeros(turns._SIZE, np.int64)
    work[turns._WORKS] = turns._BEGUN
    turns.enter(work, 0)
    return work


def lingering(work, helps=1):
    """Start a thread that lingers after this work."""
    thread = threading.Thread(target=turns.linger, args=(work, helps), daemon=True)
    thread.start()
    return thread


def ended(thread):
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def patient(monkeypatch):
    """Let helpers linger for minutes: the constant is compiled into a copy of the function."""
    monkeypatch.setattr(turns, "_LINGER", 10**9)
    monkeypatch.setattr(turns, "linger", turns.njit(nogil=True)(turns.linger.py_func))
    work = a_work()
    work[turns._WAITED] = 1
    turns.linger(work, 1)  # compiled here
    return a_work()


def test_a_helper_lingers_until_the_next_work_begins(patient):
    thread = lingering(patient)
    thread.join(0.05)
    assert thread.is_alive()
    a_work()
    ended(thread)


def test_a_helper_does_not_linger_where_the_caller_waits(patient):
    thread = lingering(patient)
    thread.join(0.05)
    assert thread.is_alive()
    patient[turns._WAITED] = 1
    ended(thread)


def test_the_caller_does_not_linger(patient):
    ended(lingering(patient, helps=0))


def test_nobody_lingers_for_long():
    ended(lingering(a_work()))
