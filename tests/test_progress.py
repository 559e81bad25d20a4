"""Progress: a sane estimate from the first line, and compiling as a step of its own."""

import time

import numba
import pytest

from glocal.progress import COMPILE, Meter, Progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_record_is_a_number():
    progress = Progress(0.25, step="graph", level=1, levels=4)
    assert progress == 0.25
    assert f"{progress:.0%}" == "25%"
    assert (progress.fraction, progress.step, progress.loss) == (0.25, "graph", None)
    assert Progress(1.5) == 1


def test_the_first_estimate_is_the_expected_time_and_the_pace_takes_over(clock):
    seen = []
    meter = Meter(seen.append, expected=30)
    clock[0] += 2.0  # a slow start must not become hours
    meter(0.001)
    assert 25 < seen[-1].seconds_left < 60
    clock[0] += 58
    meter(0.5)  # the machine is four times as slow as expected
    assert 40 < seen[-1].seconds_left < 60
    meter(1.0)
    assert seen[-1].seconds_left == 0


def test_without_an_expectation_there_is_no_estimate_before_it_means_something(clock):
    seen = []
    meter = Meter(seen.append)
    clock[0] += 0.5
    meter(0.01)
    assert seen[-1].seconds_left is None
    clock[0] += 9.5
    meter(0.25)
    assert seen[-1].seconds_left == pytest.approx(30)


def test_a_run_that_goes_on_counts_from_where_it_was(clock):
    seen = []
    meter = Meter(seen.append, begun=0.5)
    clock[0] += 10
    meter(0.75)
    assert seen[-1].seconds_left == pytest.approx(10)


def test_compiling_is_told_and_left_out_of_the_estimate():
    seen = []
    with Meter(seen.append, expected=1) as meter:
        fresh = numba.njit(lambda x: x + 1)
        assert fresh(1) == 2
        meter(0.5)
    assert seen[0].step == COMPILE
    assert meter.compiled > 0
    assert seen[-1].step != COMPILE
    assert seen[-1].seconds < meter.compiled


def test_the_callback_can_ask_to_stop():
    assert Meter(lambda progress: True)(0.5)
    assert not Meter(lambda progress: None)(0.5)
    assert not Meter(None)(0.5)
