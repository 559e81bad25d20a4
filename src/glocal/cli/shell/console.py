"""What commands say: results on stdout, as text or JSON; messages and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[Any], None]


@dataclass(frozen=True)
class RunOptions:
    """Flags that every command has."""

    json: bool = field(default=False, metadata={"help": "Print the result as JSON on stdout."})
    quiet: bool = field(default=False, metadata={"help": "No progress and no messages, only results and errors."})
    debug: bool = field(default=False, metadata={"help": "Show where in the code an error happened."})


@dataclass(frozen=True)
class Report:
    """Where a command writes. The core never does: it tells its progress to a callback that `progress` gives."""

    options: RunOptions = RunOptions()

    def say(self, text: str) -> None:
        """A message for people, on stderr."""
        if not self.options.quiet:
            sys.stderr.write(text + "\n")

    def result(self, data: Mapping[str, Any], text: str, *, taken: bool = False) -> None:
        """The result, on stdout: `data` as JSON if that was asked for, else `text` (nothing if it is empty).

        With `taken`, stdout carries a result already: JSON goes to stderr, and `text` is not needed.
        """
        stream = sys.stderr if taken else sys.stdout
        if self.options.json:
            stream.write(json.dumps(data, indent=2, default=str) + "\n")
        elif text and not taken:
            stream.write(text + "\n")
        stream.flush()

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Tell]:
        """Give a callback that shows progress: a bar on a terminal, else a plain line now and then.

        The callback takes a fraction in [0, 1], or a record with `level`, `levels`, `iteration`, `iterations`, `loss`
        and `seconds_left` (see `glocal.optim.progress.Progress`).
        """
        if self.options.quiet:
            yield lambda value: None
        elif sys.stderr.isatty():
            with _bar(title) as tell:
                yield tell
        else:
            yield _lines(title)


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Tell]:
    """A bar drawn by rich."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, note="")
        started = time.monotonic()

        def tell(value: Any) -> None:
            fraction, note = _read(value, time.monotonic() - started)
            bar.update(task, completed=fraction, note=note)

        yield tell


def _lines(title: str, every: float = 5.0) -> Tell:
    """A plain line on stderr, not more often than `every` seconds."""
    started = time.monotonic()
    last = started

    def tell(value: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every:
            last = now
            fraction, note = _read(value, now - started)
            sys.stderr.write(f"{title}: {fraction:.0%} {note}".rstrip() + "\n")

    return tell


def _read(value: Any, elapsed: float) -> tuple[float, str]:
    """The fraction done, and what else there is to say, from a number or from a progress record."""
    if isinstance(value, (int, float)):
        fraction = min(max(float(value), 0.0), 1.0)
        left = elapsed / fraction * (1 - fraction) if fraction > 0.02 else None
        return fraction, f"{seconds_text(left)} left" if left is not None else ""
    within = value.iteration / max(value.iterations, 1)
    fraction = (value.level + within) / max(value.levels, 1)
    note = f"level {value.level + 1}/{value.levels}, iteration {value.iteration}/{value.iterations}"
    note += f", loss {value.loss:.4g}"
    if value.seconds_left is not None:
        note += f", {seconds_text(value.seconds_left)} left"
    return min(max(fraction, 0.0), 1.0), note


def seconds_text(seconds: float) -> str:
    """A duration for people.

    Example:
        >>> seconds_text(3.21), seconds_text(75), seconds_text(4000)
        ('3.2 s', '1 min 15 s', '1 h 6 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def bytes_text(count: int) -> str:
    """A number of bytes for people.

    Example:
        >>> bytes_text(1500), bytes_text(3 << 30)
        ('1.5 kB', '3.0 GiB')
    """
    if count < 1 << 20:
        return f"{count / 1000:.1f} kB"
    return f"{count / (1 << 20):.0f} MiB" if count < 1 << 30 else f"{count / (1 << 30):.1f} GiB"
