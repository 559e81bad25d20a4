"""How many files are sent to a worker at a time.

A task costs the scheduler about 5 ms, whatever it does. So small files travel in groups. A group must not be too large
either: at the end of the run all workers should finish at about the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from glocal.errors import GlocalError
from glocal.jobs.job import Cost
from glocal.jobs.paths import Task

MOST = 10_000  # files of a group
_SAMPLE = 8  # files whose cost is estimated before anything is measured
_UNKNOWN = 1.0  # seconds of a file without an estimate
_LEAST = 0.5  # seconds of a group at the end of the run; less would be overhead


class Pace:
    """The seconds that a file takes, estimated at first and measured later.

    Parameters
    ----------
    batch_seconds : float
        The work of a group.
    expected : float
        Estimated seconds of a file.

    Examples
    --------
    >>> pace = Pace(30, expected=3)
    >>> pace.size(left=1000, workers=2)
    10
    >>> pace.measured(10, 1.0)  # ten files took one second
    >>> pace.size(left=1000, workers=2), pace.size(left=8, workers=2)
    (250, 5)
    """

    def __init__(self, batch_seconds: float, *, expected: float) -> None:
        self.batch_seconds, self.expected = batch_seconds, expected
        self.files, self.seconds = 0, 0.0

    @property
    def file_seconds(self) -> float:
        """Seconds of a file."""
        return max(self.seconds / self.files, 1e-6) if self.files else self.expected

    def measured(self, files: int, seconds: float) -> None:
        """Add what a group took."""
        self.files += files
        self.seconds += seconds

    def size(self, *, left: int, workers: int) -> int:
        """Return the number of files of the next group: `batch_seconds` of work, less when few files are left."""
        wanted = self.batch_seconds / self.file_seconds
        shared = max(left / (2 * max(workers, 1)), _LEAST / self.file_seconds)
        return max(1, min(int(wanted), int(shared), left, MOST))


def expected_seconds(tasks: Sequence[Task], estimate: Callable[[Task], Cost]) -> float:
    """Estimate the seconds of a file from the headers of a few files, evenly chosen."""
    step = max(1, len(tasks) // _SAMPLE)
    found = []
    for task in tasks[::step][:_SAMPLE]:
        try:
            found.append(estimate(task).seconds)
        except (GlocalError, OSError):
            continue
    known = [seconds for seconds in found if seconds is not None]
    return max(median(known), 1e-3) if known else _UNKNOWN
