"""The flags that send the work of a command to a cluster. Imports neither Dask nor torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from glocal.errors import ArgumentError
from glocal.options import option

ZARR = ".zarr"
_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
_ADDRESS = re.compile(r"([a-z]+://)?[^/\s]+:\d{1,5}(/\S*)?", re.IGNORECASE)


def parse_cluster(text: str) -> str:
    """Check the value of `--cluster`.

    Raises
    ------
    ArgumentError
        The text is not local:N.

    >>> parse_cluster("local:2")
    'local:2'
    """
    if not _LOCAL.fullmatch(text):
        raise ArgumentError(f"`{text}` must be local:N with N processes. Write it like local:4.")
    return text


def parse_scheduler(text: str) -> str:
    """Check the value of `--scheduler`; Dask waits a minute before it says that an address has no port.

    Raises
    ------
    ArgumentError
        The text is no address with a port.

    >>> parse_scheduler("tcp://node1:8786")
    'tcp://node1:8786'
    """
    if not _ADDRESS.fullmatch(text):
        raise ArgumentError(f"`{text}` must be an address with a port. Write it like tcp://HOST:8786.")
    return text


@dataclass(frozen=True)
class ClusterOptions:
    """Where files are worked on, and in which portions."""

    scheduler: str | None = option(
        None, "Work on the cluster of this Dask scheduler, such as tcp://HOST:8786.", parse=parse_scheduler
    )
    scheduler_file: str | None = option(None, "The same, with the address from the file that the scheduler wrote.")
    cluster: str | None = option(
        None, "Start a cluster of N processes on this machine: local:N.", parse=parse_cluster, metavar="<local:N>"
    )
    batch_seconds: float = option(30.0, "On a cluster: work that is sent to a worker at a time, in seconds.", min=0.0)
    worker_threads: int | None = option(
        None, "On a cluster: threads of each worker. Default: the cores divided by N, or what the worker has.", min=1
    )
    tile: int = option(
        1024, "Side of the tiles of pictures that are read from or written to .zarr, in pixels.", min=64, max=16384
    )
    retries: int = option(0, "On a cluster: how often a file that failed is tried again.", min=0)

    @property
    def on_cluster(self) -> bool:
        """Whether the work goes to a cluster."""
        return any((self.scheduler, self.scheduler_file, self.cluster))

    @property
    def processes(self) -> int:
        """The N of local:N, or 0.

        >>> ClusterOptions(cluster="local:3").processes
        3
        """
        found = _LOCAL.fullmatch(self.cluster or "")
        return int(found[1]) if found else 0

    def check(self, *, jobs: int) -> None:
        """Refuse flags that contradict each other.

        Raises
        ------
        ArgumentError
            Two clusters are named, or `--jobs` is given as well.
        """
        if self.tile % 16:
            raise ArgumentError(f"--tile (={self.tile}) must be a multiple of 16. Use 1024.")
        given = [
            f"--{name.replace('_', '-')}" for name in ("scheduler", "scheduler_file", "cluster") if getattr(self, name)
        ]
        if len(given) > 1:
            raise ArgumentError(f"{given[0]} and {given[1]} name two clusters. Give one of them.")
        if given and jobs > 1:
            raise ArgumentError(
                f"--jobs (={jobs}) is for one machine, and {given[0]} names a cluster. Leave --jobs out."
            )
