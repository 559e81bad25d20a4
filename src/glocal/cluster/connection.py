"""Connect to a Dask cluster, or start one on this machine."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import multiprocessing.forkserver
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.cluster.options import ClusterOptions
from glocal.errors import DeviceError, InputError, needed

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 30.0
_STARTS = 3
_LOCAL_SETTINGS: dict[str, Any] = {
    # Dask makes malloc give back memory at once, which doubles the processor time of our work.
    "distributed.nanny.pre-spawn-environ": {},
    # A group is repeated as often as needed: its journal names the file that kills its worker.
    "distributed.scheduler.allowed-failures": 1000,
    # Under load a new process takes long to start.
    "distributed.deploy.lost-worker-timeout": "60s",
    # What Dask measures all the time costs processor time, and nobody looks at it.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.memory.monitor-interval": "500ms",
    # Libraries are imported once, not by each worker. The other systems have no process that forks safely.
    "distributed.worker.multiprocessing-method": "forkserver" if sys.platform == "linux" else "spawn",
    # The plan of the command limits memory. Results are short lists, so there is nothing to move to the disk.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
}


@contextlib.contextmanager
def connected(options: ClusterOptions, *, memory: int | None, say: Callable[[str], None]) -> Iterator[Client]:
    """Yield a client of the cluster that the options name; a local cluster ends with the block.

    Parameters
    ----------
    memory : int or None
        Bytes that each process of a local cluster may take; one that takes more is ended and started again.
    say : callable
        Gets the number of workers and the address of the dashboard.

    Raises
    ------
    MissingDependencyError
        `distributed` is not installed.
    InputError
        The scheduler file cannot be read.
    DeviceError
        The scheduler does not answer, or has no worker.
    """
    needed("distributed", "the cluster", "cluster")
    import dask
    from distributed import Client

    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.logging.distributed": "error"}))
        if options.cluster is not None:
            stack.enter_context(dask.config.set(_LOCAL_SETTINGS))
            address: Any = stack.enter_context(_started(options.processes, memory))
        else:
            address = options.scheduler
        if options.scheduler_file is not None:
            _check_scheduler_file(Path(options.scheduler_file))
        where = options.cluster or options.scheduler or options.scheduler_file
        try:
            found: Any = {"scheduler_file": options.scheduler_file} if options.scheduler_file else {"address": address}
            client: Client = stack.enter_context(Client(**found, timeout=CONNECT_SECONDS, set_as_default=False))
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TimeoutError) as error:
            raise DeviceError(
                f"cluster ({where}): there is no answer, or no worker, within {CONNECT_SECONDS:.0f} s ({error}). "
                "Check the address and start workers."
            ) from error
        count = len(client.nthreads())
        say(f"cluster {where}: {count} worker{'s' * (count > 1)}, dashboard {client.dashboard_link} (needs bokeh)")
        yield client


def prepare_workers(*modules: str) -> None:
    """Start the process from which the workers of a local cluster are forked; it imports what they need and waits.

    This returns at once. If the process exists already, nothing happens. Only Linux has it.
    """
    if sys.platform == "linux":
        multiprocessing.get_context("forkserver").set_forkserver_preload(
            ["distributed", "glocal.cluster.worker", *modules]
        )
        multiprocessing.forkserver.ensure_running()


def _check_scheduler_file(path: Path) -> None:
    """Refuse what is not the file of a scheduler; Dask waits a minute before it says so."""
    if not path.is_file():
        raise InputError(f"--scheduler-file ({path}): there is no such file. Start the scheduler first.")
    for _ in range(10):  # the scheduler may be writing it
        with contextlib.suppress(ValueError, OSError):
            found = json.loads(path.read_text())
            if isinstance(found, dict) and "address" in found:
                return
        time.sleep(0.1)
    raise InputError(f"--scheduler-file ({path}): it is not the file of a scheduler. Start the scheduler again.")


def workers_of(client: Client, processes: int) -> int:
    """Return the number of workers, at least 1. A local cluster is asked to replace those that did not come back."""
    if processes:
        client.cluster.scale(processes)  # type: ignore[union-attr]
    return max(1, len(client.nthreads()))


def _started(processes: int, memory: int | None) -> Any:
    """Start a local cluster; once more if one of its processes was killed meanwhile."""
    for more in range(_STARTS - 1, -1, -1):
        try:
            return _local(processes, memory)
        except (RuntimeError, OSError, TimeoutError) as error:
            if not more:
                raise DeviceError(
                    f"cluster (local:{processes}): its processes cannot be started ({error}). Use fewer, or free some memory."
                ) from error
    raise AssertionError


def _local(processes: int, memory: int | None) -> Any:
    """Start a scheduler in this process and workers in others. Each worker runs one task at a time."""
    from distributed import LocalCluster

    prepare_workers()
    return LocalCluster(
        n_workers=processes,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=memory or 0,
        silence_logs=logging.CRITICAL,
        preload=["glocal.cluster.worker"],
    )
