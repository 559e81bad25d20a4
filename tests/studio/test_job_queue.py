"""The queue: one job at a time, in order; stops, crashes and refusals lose nothing."""

import time

import pytest
import work_for_tests as work

from glocal.errors import ArgumentError, MemoryLimitError
from glocal.jobs.job import Cost
from glocal.studio import job_queue
from glocal.studio.job_queue import JobQueue

SMALL = Cost("8 x 8", memory=1, seconds=1.0)


@pytest.fixture(scope="module")
def queue():
    found = JobQueue(["torch"])
    yield found
    found.close()


def ended(ticket):
    assert ticket.ended.wait(60)
    return ticket.events()[-1]


def shown(ticket):
    """Wait until a job has shown something; it then runs."""
    while not (events := ticket.events()):
        time.sleep(0.01)
    return events


def test_jobs_run_one_after_the_other_in_their_order(queue):
    running = queue.submit("a", work.paint, cost=SMALL)
    second = queue.submit("b", work.doubled, 2, cost=SMALL)
    third = queue.submit("a", work.doubled, 3, cost=SMALL)
    shown(running)
    assert [queue.position(ticket) for ticket in (running, second, third)] == [0, 1, 2]
    assert not second.ended.is_set()
    queue.stop(running)
    assert (ended(running).name, ended(second).value, ended(third).value) == ("stopped", 4, 6)


def test_a_waiting_job_is_stopped_before_it_begins_and_a_session_takes_all_its_jobs_along(queue):
    running = queue.submit("a", work.deaf, cost=SMALL)
    waiting = queue.submit("a", work.doubled, 2, cost=SMALL)
    of_another = queue.submit("b", work.doubled, 3, cost=SMALL)
    queue.stop(waiting)
    assert ended(waiting).name == "stopped"
    queue.stop_session("a")
    assert (ended(running).name, ended(of_another).value) == ("stopped", 6)


def test_a_job_with_nothing_to_keep_is_ended_at_once_and_a_stubborn_one_by_the_second_stop(queue):
    ticket = queue.submit("a", work.deaf, cost=SMALL)
    shown(ticket)
    queue.stop(ticket)
    assert ended(ticket).name == "stopped"
    ticket = queue.submit("a", work.stubborn, cost=SMALL)
    while not ticket.can_keep:
        time.sleep(0.01)
    queue.stop(ticket)
    assert not ticket.ended.wait(0.3)
    queue.stop(ticket)
    assert ended(ticket).name == "stopped"


def test_a_job_that_is_killed_fails_and_the_next_one_runs(queue):
    killed = queue.submit("a", work.die, work.KILLED, cost=SMALL)
    following = queue.submit("a", work.doubled, 2, cost=SMALL)
    assert ended(killed).name == "failed"
    assert ended(following).value == 4


def test_memory_is_checked_before_a_job_waits_and_again_before_it_begins():
    free = [100]
    queue = JobQueue(memory=lambda: free[0])
    try:
        with pytest.raises(
            MemoryLimitError, match=r"needs about 0.2 kB of memory, and 0.1 kB are free. Use a smaller input."
        ):
            queue.submit("a", work.doubled, 2, cost=Cost("", memory=200, seconds=None))
        first = queue.submit("a", work.nap, 0.2, "rested", cost=SMALL)
        second = queue.submit("a", work.doubled, 2, cost=Cost("", memory=90, seconds=None))
        free[0] = 50
        assert ended(first).value == "rested"
        end = ended(second)
        assert end.name == "failed"
        assert "90" not in end.value
        assert "0.1 kB of memory, and 0.1 kB are free" in end.value
    finally:
        queue.close()


def test_a_full_queue_refuses(queue, monkeypatch):
    monkeypatch.setattr(job_queue, "PER_SESSION", 1)
    running = queue.submit("a", work.deaf, cost=SMALL)
    shown(running)
    queue.submit("a", work.doubled, 1, cost=SMALL)
    with pytest.raises(ArgumentError, match="1 jobs wait already"):
        queue.submit("a", work.doubled, 2, cost=SMALL)
    queue.stop_session("a")
    assert ended(running).name == "stopped"
