"""What commands say: results on stdout, as text or JSON; messages and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from glocal.jobs.failures import visible
from glocal.options import option
from glocal.progress import Meter, Progress, seconds_text
from glocal.progress_bar import Tell, bar, lines

if TYPE_CHECKING:
    from glocal.training.loop import StepProgress


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
            with bar(visible(title)) as tell:
                yield _timed(tell)
        else:
            yield _timed(lines(visible(title)))

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
