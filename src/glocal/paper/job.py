"""What every section is given: how much work, what was asked for, and where to report to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from glocal.paper.options import Effort, ReproduceOptions
from glocal.paper.source import Source


def _nobody(fraction: float) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Job:
    """The work of one section. `progress` is called with the fraction that is done; `folder` keeps logs and checkpoints."""

    effort: Effort
    source: Source
    options: ReproduceOptions
    progress: Callable[[float], None] = _nobody
    folder: Path = Path("training")
    device: str = "cpu"

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.options.seed

    @property
    def data(self) -> Path | None:
        """The folder of the user's data."""
        return self.options.data

    def part(self, start: float, end: float) -> Job:
        """Return the same job, for the part of its progress from `start` to `end`.

        Examples
        --------
        >>> from glocal.paper.options import QUICK
        >>> seen = []
        >>> job = Job(QUICK, Source("this run", "x"), ReproduceOptions(), seen.append)
        >>> job.part(0.5, 1.0).progress(0.5)
        >>> seen
        [0.75]
        """
        tell = self.progress
        return replace(self, progress=lambda fraction: tell(start + (end - start) * fraction))
