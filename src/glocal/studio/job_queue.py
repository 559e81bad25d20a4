"""One heavy job at a time: the others wait in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from glocal.errors import ArgumentError, MemoryLimitError
from glocal.jobs.failures import describe
from glocal.jobs.job import Cost
from glocal.jobs.memory import available_memory, bytes_text
from glocal.studio.worker import ENDS, Event, Worker

PER_SESSION = 16
WAITING = 100
_WAIT = 0.1


class Ticket:
    """A job in the queue. `events()` returns what happened since the last call; the last event is one of `ENDS`."""

    def __init__(self, session: str, function: Callable[..., Any], arguments: tuple[Any, ...], cost: Cost) -> None:
        self.session, self.function, self.arguments, self.cost = session, function, arguments, cost
        self.ended = threading.Event()
        self.can_keep = False  # whether the job has something to keep when it is asked to stop
        self.stops = 0
        self._events: deque[Event] = deque()

    def events(self) -> list[Event]:
        """Take the events that have come."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def add(self, event: Event) -> None:
        """Append an event; nothing follows the end."""
        if not self.ended.is_set():
            self._events.append(event)
            self.can_keep = self.can_keep or event.name == "preview"
            if event.name in ENDS:
                self.ended.set()


class JobQueue:
    """Runs one job at a time, each in a process of its own.

    Parameters
    ----------
    modules : sequence of str
        What the processes have imported, so that a job begins at once.
    memory : callable
        Returns the bytes that a job may take now.
    """

    def __init__(self, modules: Sequence[str] = (), memory: Callable[[], int] = available_memory) -> None:
        self.modules, self.memory = modules, memory
        self._waiting: list[Ticket] = []
        self._running: Ticket | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="glocal-queue", daemon=True)
        self._thread.start()

    def submit(self, session: str, function: Callable[..., Any], *arguments: Any, cost: Cost) -> Ticket:
        """Put a job at the end of the queue: `function(link, *arguments)` in a process of its own.

        Raises
        ------
        MemoryLimitError
            It needs more memory than there is.
        ArgumentError
            Too many jobs wait.
        """
        self._check_memory(cost)
        ticket = Ticket(session, function, arguments, cost)
        with self._changed:
            mine = sum(other.session == session for other in self._waiting)
            if mine >= PER_SESSION or len(self._waiting) >= WAITING:
                message = (
                    f"studio: {len(self._waiting)} jobs wait already. Wait until one of them is done, or stop one."
                )
                raise ArgumentError(message)
            self._waiting.append(ticket)
            self._changed.notify_all()
        return ticket

    def position(self, ticket: Ticket) -> int:
        """Return how many jobs are done before this one begins; 0 if it runs or has ended."""
        with self._changed:
            if ticket not in self._waiting:
                return 0
            return self._waiting.index(ticket) + (self._running is not None)

    def stop(self, ticket: Ticket) -> None:
        """Stop a job. The first time it may keep the best result so far, the second time it ends at once."""
        with self._changed:
            ticket.stops += 1
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                ticket.add(Event("stopped"))
            elif ticket.stops == 1:
                ticket.add(Event("stopping"))

    def stop_session(self, session: str) -> None:
        """End all jobs of a session at once."""
        with self._changed:
            tickets = [*self._waiting, *([self._running] if self._running else [])]
        for ticket in tickets:
            if ticket.session == session:
                ticket.stops += 1  # nobody is there to keep anything
                self.stop(ticket)

    def close(self) -> None:
        """End all jobs and processes."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._waiting))
                if self._closed:
                    return
                ticket = self._running = self._waiting.pop(0)
            try:
                self._perform(ticket)
            except Exception as error:
                ticket.add(Event("failed", describe(error)))
            with self._changed:
                self._running = None

    def _perform(self, ticket: Ticket) -> None:
        """Run one job to its end, whatever that is."""
        self._check_memory(ticket.cost)
        worker = Worker(self.modules)
        worker.begin(ticket.function, *ticket.arguments)
        asked = False
        try:
            while not ticket.ended.is_set():
                event = worker.next_event(_WAIT)
                if event is not None:
                    ticket.add(event)
                if self._closed or ticket.stops > 1 or (ticket.stops and not asked and not ticket.can_keep):
                    ticket.add(Event("stopped"))
                elif ticket.stops and not asked:
                    worker.stop()
                    asked = True
        finally:
            worker.kill()

    def _check_memory(self, cost: Cost) -> None:
        free = self.memory()
        if cost.memory > free:
            message = (
                f"studio: the job needs about {bytes_text(cost.memory)} of memory, and {bytes_text(free)} are free. "
                f"Use {cost.smaller.split(',')[0]}."
            )
            raise MemoryLimitError(message)
