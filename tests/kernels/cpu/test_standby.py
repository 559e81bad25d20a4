"""Helpers run what they are given, report errors, and never make a caller wait for one of them."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch

from glocal.bench.conv import local_graph
from glocal.kernels.cpu import standby, turns
from glocal.nn import GraphConv


@pytest.fixture
def two_cores(monkeypatch):
    """One helper, whatever the machine has, and none from earlier tests."""
    monkeypatch.setattr(standby, "_begun", [])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def come_back():
    """Wait until the helper can be given another task, which is just after the end of the last one."""
    end = time.monotonic() + 10
    while not standby._begun[0].free():
        assert time.monotonic() < end


def test_a_task_runs_on_another_thread_and_the_next_on_the_same(two_cores):
    seen = []
    for _ in range(3):
        task = standby.hand_over(lambda: seen.append(threading.get_ident()))
        task.wait()
        come_back()
    assert len(set(seen)) == 1
    assert seen[0] != threading.get_ident()


def test_a_busy_helper_is_not_waited_for(two_cores):
    inside, leave = threading.Event(), threading.Event()
    task = standby.hand_over(lambda: (inside.set(), leave.wait()))
    assert inside.wait(10)
    assert standby.hand_over(lambda: None) is None
    leave.set()
    task.wait()


def test_a_helper_that_is_awake_waits_for_the_callers_own_part(two_cores, monkeypatch):
    seen, counter = [], np.zeros(1, np.int64)
    with monkeypatch.context() as patch:
        patch.setattr(standby, "_PATIENCE", 10**12)
        standby.hand_over(lambda: None).wait()
        come_back()
        task = standby.hand_over(seen.append, 1, begun=counter)
        time.sleep(0.05)
    try:
        assert not seen
    finally:
        counter[0] = 1
    task.wait()
    assert seen == [1]


def test_the_code_that_helpers_wait_in_is_loaded_before_they_begin(two_cores, monkeypatch):
    """A fork must not find a helper in the compiler, whose lock the child would inherit."""
    loaded = []

    def watch(mail, patience):
        loaded.append(threading.get_ident())

    monkeypatch.setattr(standby, "_watch", watch)
    standby.hand_over(lambda: None).wait()
    assert loaded[0] == threading.get_ident()


@pytest.mark.parametrize("awake", [True, False])
def test_a_counter_that_never_moves_holds_no_task_back(two_cores, awake):
    standby.hand_over(lambda: None).wait()
    come_back()
    if not awake:
        time.sleep(0.05)
    standby.hand_over(lambda: None, begun=np.zeros(1, np.int64)).wait()


def test_a_helper_whose_task_is_over_is_given_the_next(two_cores):
    """It has nothing left to do but to return to Python, for which it may have to wait."""
    inside, leave = threading.Event(), threading.Event()
    first = standby.hand_over(lambda: (inside.set(), leave.wait(10)))
    assert inside.wait(10)
    first.over = True
    second = standby.hand_over(lambda: None)
    assert standby.hand_over(lambda: None) is None  # one at a time
    leave.set()
    second.wait()
    come_back()


def test_shared_work_is_over_when_all_its_parts_are_done(two_cores, monkeypatch):
    given = []

    def hand_over(*args, **options):
        given.append(standby.hand_over(*args, **options))
        return given[-1]

    monkeypatch.setattr(turns, "hand_over", hand_over)
    monkeypatch.setattr(turns, "count", lambda: 2)
    graph, layer = local_graph(16000, 5), GraphConv(4, 4, degree=5)
    layer(torch.rand(16000, 4), graph)
    assert given
    assert all(task.over for task in given)


def test_an_error_reaches_who_waits_and_the_helper_lives_on(two_cores):
    def broken():
        raise KeyError("part")

    with pytest.raises(KeyError, match="part"):
        standby.hand_over(broken).wait()
    come_back()
    standby.hand_over(lambda: None).wait()


def test_the_arguments_of_a_task_are_not_kept(two_cores):
    given = object()
    before = sys.getrefcount(given)
    task = standby.hand_over(lambda _: None, given)
    task.wait()
    assert sys.getrefcount(given) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_makes_its_own_helpers(two_cores):
    standby.hand_over(lambda: None).wait()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            standby.hand_over(lambda: None).wait()
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_interrupt_loses_no_helper(two_cores):
    """It may come before any line of `hand_over`."""
    standby.hand_over(lambda: None).wait()
    lines = 0
    while True:
        come_back()
        seen = set()

        def trace(frame, event, _, seen=seen, lines=lines):
            if frame.f_code is standby.hand_over.__code__ and event == "line" and frame.f_lineno not in seen:
                seen.add(frame.f_lineno)  # a line is traced again where its `with` ends
                if len(seen) > lines:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            task = standby.hand_over(lambda: None)
        except KeyboardInterrupt:
            lines += 1
            continue
        finally:
            sys.settrace(before)
        task.wait()
        break
    assert lines > 3
    come_back()
    standby.hand_over(lambda: None).wait()


def test_a_thread_that_cannot_start_is_no_helper(two_cores, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        assert standby.hand_over(lambda: None) is None
    standby.hand_over(lambda: None).wait()


def test_threads_together_begin_no_more_helpers_than_one(two_cores):
    ready, tasks = threading.Barrier(6), []

    def work():
        ready.wait()
        tasks.append(standby.hand_over(time.sleep, 0.05))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(standby._begun) == 1
    assert sum(task is not None for task in tasks) == 1
