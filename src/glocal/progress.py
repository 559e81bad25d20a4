"""How far a run is, and how long it will take: one record and one clock for all jobs. Free of torch."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

COMPILE = "compile"
_PRIOR = 0.1  # the expected time counts as much as the measured pace after a tenth of the work


class Progress(float):
    """The fraction of the work that is done, from 0 to 1, with everything else that is known.

    A callback may use it as a plain number. Where something is not known, it is None.

    step : what is being done; `COMPILE` while kernels are compiled, once on each machine.
    seconds, seconds_left : time since the start without the time for compiling, and an estimate of the rest.
    note : anything else that is worth showing, in words.
    level, levels, iteration, iterations, loss : where an optimisation from coarse to fine stands.
    image : the current result, not a copy. `snapshot()` returns what a run needs to go on from here.

    >>> Progress(0.5, step="graph") > 0.4
    True
    """

    def __new__(cls, fraction: float, **known: Any) -> Progress:  # noqa: D102
        return super().__new__(cls, min(max(float(fraction), 0.0), 1.0))

    def __init__(
        self,
        fraction: float,
        *,
        step: str = "",
        note: str = "",
        seconds: float | None = None,
        seconds_left: float | None = None,
        level: int = 0,
        levels: int = 1,
        iteration: int | None = None,
        iterations: int | None = None,
        loss: float | None = None,
        image: Any = None,
        snapshot: Callable[[], Any] | None = None,
    ) -> None:
        self.step, self.note, self.seconds, self.seconds_left = step, note, seconds, seconds_left
        self.level, self.levels, self.iteration, self.iterations = level, levels, iteration, iterations
        self.loss, self.image, self.snapshot = loss, image, snapshot

    @property
    def fraction(self) -> float:
        """The number itself."""
        return float(self)

    def __reduce__(self) -> Any:
        return Progress, (float(self),)


Callback = Callable[[Progress], "bool | None"]


class Meter:
    """Passes progress on to a callback, with the time that is left.

    Kernels are compiled the first time they are used on a machine. The meter reports this to the callback as a separate
    step, and leaves its time out of the estimate.

    Parameters
    ----------
    callback : callable or None
        Gets a `Progress`. Returning True asks the run to stop, if the run can.
    expected : float or None
        Seconds that the whole work is expected to take. At first the estimate relies on it, later on the measured pace.
    begun : float
        The fraction that was done before, for a run that goes on.

    Examples
    --------
    >>> seen = []
    >>> with Meter(seen.append, expected=20) as meter:
    ...     _ = meter(0.25)
    >>> round(seen[0].seconds_left)  # a quarter was done in no time
    4
    """

    def __init__(self, callback: Callback | None, *, expected: float | None = None, begun: float = 0.0) -> None:
        self.callback, self.expected, self.begun = callback, expected, begun
        self.compiled = 0.0
        self._fraction = begun
        self._since: float | None = None
        self._depth = 0
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._started = time.monotonic()

    def __enter__(self) -> Meter:
        if self.callback is not None:
            self._stack.enter_context(_noticing(self._compile_starts, self._compile_ends))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, fraction: float, **known: Any) -> bool:
        """Tell the callback; returns whether it asked to stop."""
        return self.relay(Progress(fraction, **known))

    def relay(self, progress: Progress) -> bool:
        """Complete a record with the times and call the callback; returns whether it asked to stop."""
        if self.callback is None:
            return False
        self._fraction = float(progress)
        progress.seconds = self.elapsed()
        progress.seconds_left = self._left(progress.seconds, float(progress))
        return self.callback(progress) is True

    def elapsed(self) -> float:
        """Seconds of work, without those for compiling."""
        now = time.monotonic()
        return now - self._started - self.compiled - (now - self._since if self._since is not None else 0.0)

    def _left(self, seconds: float, fraction: float) -> float | None:
        """Estimate the remaining time from the expected and the measured pace; None before there is either."""
        done = fraction - self.begun
        if self.expected is None:
            return None if done < 0.05 or seconds < 1 else seconds / done * (1 - fraction)
        return (seconds + _PRIOR * self.expected) / (done + _PRIOR) * (1 - fraction)

    def _compile_starts(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth > 1:
                return
            self._since = time.monotonic()
        if self.callback is not None:
            self.callback(Progress(self._fraction, step=COMPILE, seconds=self.compiled))

    def _compile_ends(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._since is not None:
                self.compiled += time.monotonic() - self._since
                self._since = None


@contextlib.contextmanager
def _noticing(starts: Callable[[], None], ends: Callable[[], None]) -> Any:
    """Call the functions when Numba starts and ends to compile something, in any thread."""
    try:
        from numba.core import event
    except ImportError:
        yield
        return

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            starts()

        def on_end(self, event: Any) -> None:
            ends()

    with event.install_listener("numba:compile", Listener()):
        yield


def seconds_text(seconds: float) -> str:
    """Write a duration for people.

    >>> seconds_text(3.21), seconds_text(75), seconds_text(4000)
    ('3.2 s', '1 min 15 s', '1 h 6 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
