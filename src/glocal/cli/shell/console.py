"""What commands say: results on stdout, as text or JSON; messages and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from glocal.jobs.failures import visible
from glocal.options import option
from glocal.progress import COMPILE, Meter, Progress, seconds_text

if TYPE_CHECKING:
    from glocal.training.loop import StepProgress

Tell = Callable[[float], None]


@dataclass(frozen=True)
class RunOptions:
    """Flags that every command has."""

    json: bool = option(False, "Print the result as JSON on stdout.")
    quiet: bool = option(False, "No progress and no messages, only results and errors.")
    debug: bool = option(False, "Show where in the code an error happened.")


@dataclass(frozen=True)
class Console:
    """Where a command writes. The library itself never writes: it calls the callback that `progress` yields."""

    options: RunOptions = RunOptions()

    def say(self, text: str) -> None:
        """Write a message for people to stderr."""
        if not self.options.quiet:
            sys.stderr.write(visible(text) + "\n")

    def result(self, data: Mapping[str, Any], text: str, *, taken: bool = False) -> None:
        """Write the result to stdout: `data` as JSON with `--json`, otherwise `text` (nothing if it is empty).

        With `taken`, stdout carries a result already: JSON goes to stderr, and `text` is not needed.
        """
        stream = sys.stderr if taken else sys.stdout
        if self.options.json:
            stream.write(json.dumps(data, indent=2, default=str) + "\n")
        elif text and not taken:
            _write(stream, (visible(text) if stream.isatty() else text) + "\n")
        stream.flush()

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Tell]:
        """Yield a callback that shows progress: a bar on a terminal, otherwise a plain line from time to time.

        The callback takes a `glocal.progress.Progress`, or a plain fraction in [0, 1].
        """
        if self.options.quiet:
            yield lambda value: None
        elif sys.stderr.isatty():
            with _bar(visible(title)) as tell:
                yield _timed(tell)
        else:
            yield _timed(_lines(visible(title)))

    def training(self, progress: StepProgress, tell: Tell) -> None:
        """Show the progress of a training, and a line for each validation."""
        tell(progress.step / progress.steps)
        last = progress.last
        if last is not None and last.step == progress.step:
            left = seconds_text(progress.seconds_left)
            self.say(
                f"{last.stage} step {last.step}/{progress.steps}: validation {last.validation:.2f} dB, {left} left"
            )


def _write(stream: TextIO, text: str) -> None:
    """Write names as they are, even if they are not valid in the encoding of the stream."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.flush()
        try:
            data = text.encode(stream.encoding, "surrogateescape")
        except UnicodeEncodeError:
            data = text.encode(stream.encoding, "backslashreplace")
        stream.buffer.write(data)


def _timed(tell: Tell) -> Tell:
    """Return a callback that also accepts plain fractions and then estimates the remaining time."""
    meter = Meter(lambda progress: tell(progress))

    def timed(value: float) -> None:
        if isinstance(value, Progress):
            tell(value)
        else:
            meter(value)

    return timed


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Tell]:
    """Draw a bar with rich. On a narrow terminal the details are omitted first, then the bar."""
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    class Note(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(str(task.fields["note"]), no_wrap=True, overflow="ellipsis")

    terminal = Terminal(stderr=True)
    name = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=2)
    )
    columns: list[ProgressColumn] = [name]
    if terminal.width > 60:
        columns.append(BarColumn(bar_width=min(40, terminal.width // 4)))
    columns += [TextColumn("{task.percentage:>3.0f}%"), Note(table_column=Column(no_wrap=True, ratio=3))]
    if terminal.width > 40:
        columns.append(TimeElapsedColumn())
    with Bar(*columns, console=terminal, transient=True, expand=True) as bar:
        task = bar.add_task(title, total=1.0, note="")

        def tell(value: Any) -> None:
            fraction, note = _read(value, short=terminal.width < 100)
            bar.update(task, completed=fraction, note=note)

        yield tell


def _lines(title: str, every: float = 5.0) -> Tell:
    """Write a plain line to stderr at most every `every` seconds, and at once when compiling begins."""
    last = time.monotonic()
    compiled = False

    def tell(value: Any) -> None:
        nonlocal last, compiled
        now = time.monotonic()
        compiling = getattr(value, "step", "") == COMPILE
        if now - last >= every or (compiling and not compiled):
            last, compiled = now, compiled or compiling
            fraction, note = _read(value)
            sys.stderr.write((f"{title}: {note}" if compiling else f"{title}: {fraction:.0%} {note}").rstrip() + "\n")

    return tell


def _read(value: Any, *, short: bool = False) -> tuple[float, str]:
    """Return the fraction done and the details of a number or a progress record."""
    fraction = min(max(float(value), 0.0), 1.0)
    if getattr(value, "step", "") == COMPILE:
        spent = f", {seconds_text(value.seconds)} so far" if value.seconds and value.seconds >= 1 else ""
        return fraction, f"compiling kernels, once for this machine{spent}"
    parts = [value.note] if getattr(value, "note", "") else []
    if getattr(value, "iteration", None) is not None and not short:
        parts.append(f"level {value.level + 1}/{value.levels}, iteration {value.iteration}/{value.iterations}")
        if value.loss is not None:
            parts.append(f"loss {value.loss:.4g}")
    left = getattr(value, "seconds_left", None)
    if left is not None and fraction < 1:
        parts.append(f"{seconds_text(left)} left")
    return fraction, ", ".join(parts)
