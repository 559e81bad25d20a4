"""The manifest of a run on a cluster: one line of JSON for each file that ended, added as it ends and never changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any

from glocal.atomic import output_error
from glocal.jobs.batch import Outcome

NAME = "glocal-manifest.jsonl"


class Manifest:
    """The manifest in a folder of outputs.

    A run that continues another adds to the same file. The last line about a file counts.

    >>> import tempfile
    >>> from glocal.jobs.paths import Task
    >>> manifest = Manifest(Path(tempfile.mkdtemp()))
    >>> manifest.add([Outcome(Task(Path("a.png"), Path("b.png")), "done", 1.5)])
    >>> manifest.read()
    {'a.png': {'input': 'a.png', 'output': 'b.png', 'state': 'done', 'seconds': 1.5}}
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add a line for each outcome, in one write.

        Raises
        ------
        OutputError
            The file cannot be written.
        """
        lines = "".join(map(_line, outcomes))
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise output_error(self.path, error) from error

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the last line about each input. Lines that a killed process left unfinished are ignored."""
        found: dict[str, dict[str, Any]] = {}
        if not self.path.exists():
            return found
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                    found[entry["input"]] = entry
                except (ValueError, KeyError, TypeError):
                    continue
        return found


def _line(outcome: Outcome) -> str:
    """Return an outcome as a line of JSON, put together by hand: there may be millions."""
    more = f'"seconds": {outcome.seconds:.3f}'
    if outcome.state == "failed":
        more = f'"error": {_quoted(outcome.message)}'
    source, target = _quoted(str(outcome.task.source)), _quoted(str(outcome.task.target))
    return f'{{"input": {source}, "output": {target}, "state": "{outcome.state}", {more}}}\n'
