"""`glocal doctor`: what is installed, what will be used, and what to mend."""

from __future__ import annotations

from glocal.cli.report import Report, RunOptions
from glocal.files.recipes import versions


def doctor(run: RunOptions) -> None:
    """Check this installation and say what to mend."""
    found = {"versions": versions()}
    text = "\n".join(f"{name:<12} {value}" for name, value in found["versions"].items())
    Report(run).result(found, text)
