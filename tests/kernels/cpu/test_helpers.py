"""Helpers run what they are given, report errors, and never make a caller wait for one of them."""

import os
import sys
import threading

import pytest

from glocal.kernels.cpu import helpers


@pytest.fixture
def two_cores(monkeypatch):
    """One helper, whatever the machine has, and none from earlier tests."""
    monkeypatch.setattr(helpers, "_idle", [])
    monkeypatch.setattr(helpers, "_begun", [])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_a_task_runs_on_another_thread_and_the_next_on_the_same(two_cores):
    seen = []
    for _ in range(3):
        task = helpers.hand_over(lambda: seen.append(threading.get_ident()))
        task.wait()
        while not helpers._idle:  # it returns to the others just after the end
            pass
    assert len(set(seen)) == 1
    assert seen[0] != threading.get_ident()


def test_a_busy_helper_is_not_waited_for(two_cores):
    inside, leave = threading.Event(), threading.Event()
    task = helpers.hand_over(lambda: (inside.set(), leave.wait()))
    assert inside.wait(10)
    assert helpers.hand_over(lambda: None) is None
    leave.set()
    task.wait()


def test_an_error_reaches_who_waits_and_the_helper_lives_on(two_cores):
    def broken():
        raise KeyError("part")

    with pytest.raises(KeyError, match="part"):
        helpers.hand_over(broken).wait()
    while not helpers._idle:
        pass
    helpers.hand_over(lambda: None).wait()


def test_the_arguments_of_a_task_are_not_kept(two_cores):
    given = object()
    before = sys.getrefcount(given)
    task = helpers.hand_over(lambda _: None, given)
    task.wait()
    assert sys.getrefcount(given) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_makes_its_own_helpers(two_cores):
    helpers.hand_over(lambda: None).wait()
    child = os.fork()
    if child == 0:
        task = helpers.hand_over(lambda: None)
        task.wait()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
