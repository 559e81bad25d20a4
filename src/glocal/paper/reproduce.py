"""The whole report: sections in the paper's order, one page."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import torch

from glocal.paper.blocks import Section, Text
from glocal.paper.figures import check_plotting
from glocal.paper.folders import photos_in, speech_in
from glocal.paper.job import Job
from glocal.paper.options import Effort, ReproduceOptions
from glocal.paper.source import this_run
from glocal.paper.write import Written, check_folder, write_report

# Where each part is made, and its share of the work, for the progress bar.
_HOMES = {"layer": "layer", "style": "style", "color": "color", "image": "denoise", "speech": "speech"}
_SHARES = {"layer": 0.02, "style": 0.7, "color": 0.05, "image": 0.15, "speech": 0.08}
TITLE = "Unifying local and non-local signal processing with graph CNNs: the paper, run again"


def reproduce(
    folder: Path,
    options: ReproduceOptions,
    *,
    command: str = "glocal.paper.reproduce.reproduce()",
    effort: Effort | None = None,
    progress: Callable[[float], None] | None = None,
) -> Written:
    """Run the parts that `options` name and write the page into `folder`.

    Parameters
    ----------
    folder
        Made if it does not exist; gets `index.html`, `json/` and `png/`.
    options
        Parts, data, seed.
    command
        The command line, printed with the numbers of this run.
    effort
        Sizes and iterations, if not those of `options`.
    progress
        Called with the fraction of the sections that is done.

    Raises
    ------
    OutputError
        The folder holds a report already, or cannot be written.
    MissingDependencyError
        matplotlib is not installed.
    """
    effort = effort or options.effort
    check_plotting()
    check_folder(folder, overwrite=options.overwrite)
    _check_data(effort, options)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    source = this_run(command, options.seed, device)
    job = Job(effort, source, options, progress or (lambda fraction: None), folder / "training", device)
    parts = ("layer", *options.parts)
    total = sum(_SHARES[part] for part in parts)
    sections, done = [], 0.0
    for part in parts:
        share = _SHARES[part] / total
        sections.append(make_section(part, job.part(done, done + share)))
        done += share
        job.progress(done)
    return write_report(folder, TITLE, [_lead(job)], sections, overwrite=options.overwrite)


def _check_data(effort: Effort, options: ReproduceOptions) -> None:
    """Say at once what would be missing in an hour."""
    if effort.trains and "image" in options.parts:
        photos_in(options.data)
    if effort.trains and "speech" in options.parts:
        speech_in(options.data)


def make_section(part: str, job: Job) -> Section:
    """Make one section. Its module is imported only now, because each needs another app."""
    section: Section = importlib.import_module(f"glocal.paper.{_HOMES[part]}").section(job)
    return section


def _lead(job: Job) -> Text:
    return Text(
        (
            "Every figure and table of Puy, Kitić and Pérez (2017), computed by glocal. Each number is followed by its "
            "source: this run, a stored run with its command, seed, date and machine, or the paper itself. "
            f"This page is the {job.effort.name} version: {job.source.text()}.",
        )
    )
