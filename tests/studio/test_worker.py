"""Work in processes: what they tell, how they stop, how they die."""

import io
import signal

import pytest
import work_for_tests as work
from PIL import Image

from glocal.studio.worker import ENDS, Worker, WorkError


@pytest.fixture(scope="module")
def worker():
    found = Worker(["torch"])
    yield found
    found.kill()


def until_end(worker):
    events = []
    while not events or events[-1].name not in ENDS:
        event = worker.next_event(20)
        assert event is not None, events
        events.append(event)
    return events


def test_one_process_does_one_piece_of_work_after_the_other(worker):
    worker.begin(work.doubled, 4)
    message, end = until_end(worker)
    assert (message.name, message.value) == ("message", "doubling 4")
    assert (end.name, end.value) == ("done", 8)
    assert worker.call(work.doubled, 21) == 42
    assert worker.call(work.pid) == worker.pid


def test_an_error_is_text_and_the_process_lives_on(worker):
    with pytest.raises(WorkError, match=r"error: read image \(a.png\): there is no such file. Try: check the name."):
        worker.call(work.refused)
    assert worker.call(work.doubled, 1) == 2


def test_work_shows_pictures_and_stops_when_asked(worker):
    worker.begin(work.paint)
    kinds = []
    while "preview" not in kinds or "progress" not in kinds:
        event = worker.next_event(20)
        kinds.append(event.name)
        if event.name == "preview":
            assert Image.open(io.BytesIO(event.value)).size == (256, 256)  # 8 x 8 pixels, enlarged
        else:
            assert (event.value.fraction, event.value.step, event.value.levels) == (0.25, "paint", 3)
    worker.stop()
    end = until_end(worker)[-1]
    assert (end.name, end.value) == ("stopped", "the best so far")
    worker.stop()  # too late, and without effect on the next work
    assert worker.call(work.doubled, 5) == 10


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (work.die, (signal.SIGKILL,), r"was killed, most likely because the memory was full. Try: use a smaller input"),
        (work.die, (signal.SIGSEGV,), r"crashed \(signal SIGSEGV\)"),
        (work.leave, (), r"crashed \(exit code 3\)"),
    ],
)
def test_a_process_that_dies_is_reported(function, arguments, text):
    worker = Worker()
    with pytest.raises(WorkError, match=text):
        worker.call(function, *arguments)
    assert not worker.alive
    with pytest.raises(WorkError, match=text):  # it stays dead, and says so
        worker.call(work.doubled, 1)
    worker.kill()


def test_a_system_that_starts_no_process_is_reported(monkeypatch):
    def start(self):
        raise EOFError("unexpected EOF")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", start)
    with pytest.raises(WorkError, match=r"no process could be started for the work. Close other programs"):
        Worker()


def test_kill_ends_work_that_does_not_listen():
    worker = Worker()
    worker.begin(work.deaf)
    assert worker.next_event(20).name == "progress"
    worker.kill()
    assert not worker.alive  # though the work would take a minute
