"""Show progress to people: a bar on a terminal or in a notebook, plain lines elsewhere. Always on stderr, or in the notebook."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from glocal.progress import COMPILE, Callback, seconds_text

Tell = Callable[[float], None]


@contextlib.contextmanager
def shown(progress: Callback | bool | None, title: str) -> Iterator[Callback | None]:
    """Yield the callback for the argument `progress` of a call: the given one, or for True one that draws a bar.

    >>> with shown(None, "stylize") as callback:
    ...     print(callback)
    None
    """
    if not isinstance(progress, bool):
        yield progress
        return
    with contextlib.ExitStack() as stack:
        tell: Tell | None = None
        if progress and in_notebook():
            tell = notebook_bar(title)
        elif progress:
            tell = stack.enter_context(bar(title)) if sys.stderr.isatty() else lines(title)
        yield tell


def in_notebook() -> bool:
    """Whether this runs in a Jupyter notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def notebook_bar(title: str) -> Tell:
    """Draw a bar below the cell of a notebook, which needs no further packages. It is redrawn four times a second."""
    shows: Any = importlib.import_module("IPython.display")  # a notebook has it; glocal does not need it
    last = 0.0
    handle = shows.display(shows.HTML(escape(title)), display_id=True)

    def tell(value: Any) -> None:
        nonlocal last
        now, (fraction, note) = time.monotonic(), _read(value, short=True)
        if now - last >= 0.25 or fraction == 1:
            last = now
            text = escape(f" {title}: {fraction:.0%} {note}".rstrip())
            handle.update(shows.HTML(f"<progress value='{fraction:.3f}' max='1'></progress>{text}"))

    return tell


@contextlib.contextmanager
def bar(title: str) -> Iterator[Tell]:
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


def lines(title: str, every: float = 5.0) -> Tell:
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
