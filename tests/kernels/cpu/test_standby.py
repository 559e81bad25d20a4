"""Helpers run what they are given, report errors, and never make a caller wait for one of them."""

import os
import signal
import sys
import threading
import time

import pytest
import torch

from glocal.bench.conv import local_graph
from glocal.kernels.cpu import standby, turns
from glocal.nn import GraphConv


@pytest.fixture
def two_cores(monkeypatch):
    """One helper, whatever the machine has, and none from earlier tests."""
    monkeypatch.setattr(standby, "_helpers", [])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def come_back():
    """Wait until the helper can be given another task, which is just after the end of the last one."""
    end = time.monotonic() + 10
    while not standby._helpers[0].free():
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


def test_a_helper_whose_task_is_over_is_given_the_next(two_cores):
    """It has nothing left to do but to return to Python, for which it may have to wait."""
    inside, leave = threading.Event(), threading.Event()
    first = standby.hand_over(lambda: (inside.set(), leave.wait(10)))
    assert inside.wait(10)
    first.finished = True
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
    for _ in range(2):  # the first compiles
        layer(torch.rand(16000, 4), graph)
    assert given
    assert all(task.finished for task in given)


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
    assert len(standby._helpers) == 1
    assert sum(task is not None for task in tasks) == 1


def test_a_helper_is_busy_while_it_takes_what_it_was_given(two_cores):
    """A caller that asks in between must not see it free: the order in which its fields are read matters."""
    standby.hand_over(lambda: None).wait()
    come_back()
    (helper,) = standby._helpers
    leave, bell, lines = threading.Event(), helper._bell, []

    class Late:
        """Rings 20 ms later, as if the helper were slow to wake."""

        def release(self):
            threading.Timer(0.02, bell.release).start()

    def slowly(frame, event, _):
        if frame.f_code is standby._Helper.free.__code__ and event == "line":
            time.sleep(0.05 if lines else 0)  # the helper takes it after the first line
            lines.append(frame.f_lineno)
        return slowly

    helper._bell = Late()
    first = standby.hand_over(leave.wait, 10)
    helper._bell = bell
    before = sys.gettrace()
    sys.settrace(slowly)
    try:
        second = standby.hand_over(lambda: None)
    finally:
        sys.settrace(before)
        leave.set()
    first.wait()
    assert second is None


def test_a_signal_that_comes_while_a_task_is_given_gives_none(two_cores):
    inside = []

    def trace(frame, event, _):
        if frame.f_code is standby._Helper.free.__code__ and event == "call":
            sys.settrace(None)
            inside.append(standby.hand_over(lambda: None))
        return trace

    def interrupted():
        sys.settrace(trace)
        standby.hand_over(lambda: None).wait()

    standby.hand_over(lambda: None).wait()
    come_back()
    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert inside == [None]
    come_back()
    standby.hand_over(lambda: None).wait()


def test_an_interrupt_while_a_helper_starts_loses_no_thread(two_cores, monkeypatch):
    start = threading.Thread.start

    def interrupted(self):
        start(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            standby.hand_over(lambda: None)
    come_back()
    standby.hand_over(lambda: None).wait()
    assert len(standby._helpers) == 1
