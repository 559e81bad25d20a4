"""What the scripts in `examples/` share: read `-o`, `--full`, `--data` and `--seed`, make one section, write one page."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from glocal.paper.blocks import Section
from glocal.paper.job import Job
from glocal.paper.options import ReproduceOptions
from glocal.paper.source import this_run
from glocal.paper.write import Written, write_report

Make = Callable[[Job], Section]


def run(description: str | None, make: Make, arguments: Sequence[str] | None = None) -> Written:
    """Run one section and write it to the folder that the command line names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the page and its files")
    parser.add_argument("--full", action="store_true", help="the paper's sizes instead of small ones")
    parser.add_argument("--data", type=Path, help="folder with training data, paintings and photo pairs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    options = ReproduceOptions(full=given.full, data=given.data, seed=given.seed, overwrite=True)
    words = sys.argv if arguments is None else [sys.argv[0], *arguments]
    section = make(Job(options.effort, this_run("python " + shlex.join(words), given.seed), options))
    return write_report(given.output, section.title, [], [section], overwrite=True)
