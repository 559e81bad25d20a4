"""Ctrl-C as a request: the first asks the work to stop and save its result, the second ends it at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_on_interrupt(say: Callable[[str], None], after: str = "this iteration") -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether the user asked to stop; `say` gets the answer to the first Ctrl-C.

    `after` names what is finished first.

    Only the main thread of the main process can hear Ctrl-C; elsewhere the answer is always no.
    """
    asked = False
    if threading.current_thread() is not threading.main_thread() or multiprocessing.parent_process() is not None:
        yield lambda: False
        return

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say(f"stopping after {after}; press Ctrl-C again to stop at once")

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
