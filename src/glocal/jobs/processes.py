"""`--jobs`: tasks in several processes, the kernels' threads divided among them."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import Any

from glocal.errors import MemoryLimitError
from glocal.jobs.batch import Outcome, Work, failure, perform
from glocal.jobs.failures import STOPPED
from glocal.jobs.job import Cost
from glocal.jobs.paths import Task
from glocal.progress import Callback, Progress

_PR_SET_PDEATHSIG = 1  # of Linux' prctl
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def threads_for(jobs: int) -> int:
    """Threads that each of `jobs` processes may use.

    Examples
    --------
    >>> threads_for(10_000)
    1
    """
    return max(1, usable_cores() // jobs)


def usable_cores() -> int:
    """Cores that this process may run on, which in a container can be fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def run_in_processes(
    tasks: list[Task], work: Work, estimate: Callable[[Task], Cost], *, jobs: int, tell: Callback
) -> Iterator[Outcome]:
    """Yield outcomes in the order in which they end. A task that kills its process fails; the others are not lost."""
    for done, outcome in enumerate(_pool(tasks, work, estimate, jobs), 1):
        tell(Progress(done / len(tasks)))
        yield outcome


def _pool(tasks: list[Task], work: Work, estimate: Callable[[Task], Cost], jobs: int) -> Iterator[Outcome]:
    """Run the tasks in parallel; if a process dies, the unfinished ones are run again one by one, to find the cause."""
    left = list(tasks)
    absent = {task.target for task in tasks if not task.target.exists()}
    suspects: list[Task] = []
    running: dict[Future[Outcome], Task] = {}
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(threads_for(jobs),))
    try:
        while running or (left and not suspects):
            while left and len(running) < jobs and not suspects:
                try:
                    with _interrupts_wait():  # it may start a process
                        running[pool.submit(_perform, left[0], work, estimate)] = left[0]
                except BrokenProcessPool:
                    if running:
                        break  # the futures in flight are about to say so
                    suspects.append(left[0])
                left.pop(0)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    suspects.append(task)
                else:
                    yield outcome
    except KeyboardInterrupt:
        for child in multiprocessing.active_children():
            os.kill(child.pid or 0, signal.SIGINT)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    if len(tasks) == 1 and suspects:
        yield _killed(suspects[0])
        return
    for task in suspects:
        if task.target in absent and task.target.exists():
            yield Outcome(task, "done")  # outputs appear whole: it was done, and only its report was lost
        else:
            yield from _pool([task], work, estimate, 1)
    if left:
        yield from _pool(left, work, estimate, jobs)


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Hold Ctrl-C back, here and in a process that is started meanwhile, until its `_start` looks."""
    here = threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_sigmask")
    if not here or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):  # then nobody waits for it either
        yield
        return
    came: list[int] = []
    resource_tracker.ensure_running()  # later it would change the mask
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))  # another thread may receive it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the process inherits this
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _killed(task: Task) -> Outcome:
    error = MemoryLimitError(
        f"{task.source}: its process was killed, most likely because memory ran out. Use a smaller input or fewer --jobs."
    )
    return failure(task, error)


def _perform(task: Task, work: Work, estimate: Callable[[Task], Cost]) -> Outcome:
    """Do one task in its own process. Every error becomes an outcome, so that only text is pickled."""
    signal.signal(signal.SIGINT, stop_once)
    try:
        return perform(task, work, estimate, _silent)
    except (Exception, KeyboardInterrupt) as error:
        return failure(task, error)
    finally:
        signal.signal(signal.SIGINT, _ignore)


def stop_once(number: int, frame: Any) -> None:
    """Stop the work, and let nothing disturb the tidying up that follows."""
    signal.signal(signal.SIGINT, _ignore)
    raise KeyboardInterrupt


def _ignore(number: int, frame: Any) -> None:
    """Do nothing. With SIG_IGN, Python complains about a signal that came just before."""


def _silent(value: Any) -> None:
    """Progress inside of a file is not shown when several files run at once."""


def _start(threads: int) -> None:
    """Prepare a new process. Threads are set before torch and numba are imported, since they read them only once."""
    end_with_parent()
    signal.signal(signal.SIGINT, _ignore)  # the parent ends a process that waits for work
    if hasattr(signal, "pthread_sigmask"):
        if signal.SIGINT in signal.sigpending():  # it came while Python started
            os._exit(STOPPED)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    set_threads(threads)


def set_threads(threads: int) -> None:
    """Let this process compute on so many threads, whether torch and numba are imported already or later."""
    for name in _THREADS:
        if name != "NUMBA_NUM_THREADS" or "numba" not in sys.modules:  # numba refuses another number later
            os.environ[name] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def end_with_parent() -> None:
    """Let this process end when its parent ends, for whatever reason: on Linux at once, elsewhere by a thread that waits."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if not parent.is_alive():  # it ended before the call
            os._exit(1)

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="glocal-parent", daemon=True).start()
