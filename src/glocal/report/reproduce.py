"""The whole report: sections in the paper's order, one page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from glocal.report import layer
from glocal.report.blocks import Section, Text
from glocal.report.options import Effort, ReproduceOptions
from glocal.report.source import Source, this_run
from glocal.report.write import Written, check_folder, write_report

TITLE = "Unifying local and non-local signal processing with graph CNNs: the paper, run again"


def reproduce(
    folder: Path,
    options: ReproduceOptions,
    *,
    command: str = "glocal.report.reproduce.reproduce()",
    effort: Effort | None = None,
    progress: Callable[[float], None] | None = None,
) -> Written:
    """Run the parts that `options` name and write the page into `folder`.

    Args:
        folder: Made if it does not exist; gets `index.html`, `json/` and `png/`.
        options: Parts, data, seed.
        command: What was typed; printed beside the numbers of this run.
        effort: Sizes and iterations, if not those of `options`.
        progress: Called with the fraction of the sections that is done.

    Raises:
        OutputError: The folder holds a report already, or cannot be written.
    """
    effort = effort or options.effort
    check_folder(folder, overwrite=options.overwrite)
    source = this_run(command, options.seed)
    work: list[Callable[[], Section]] = [lambda: layer.section(effort, source, options)]
    sections = []
    for i, make in enumerate(work):
        sections.append(make())
        if progress is not None:
            progress((i + 1) / len(work))
    return write_report(folder, TITLE, [_lead(source, effort)], sections, overwrite=options.overwrite)


def _lead(source: Source, effort: Effort) -> Text:
    return Text(
        (
            "Every figure and table of Puy, Kitić and Pérez (2017), computed by glocal. Each number is followed by its "
            "source: this run, a stored run with its command, seed, date and machine, or the paper itself. "
            f"This page is the {effort.name} version: {source.text()}.",
        )
    )
