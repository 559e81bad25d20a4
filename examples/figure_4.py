"""Figure 4 of the paper: colour transfer with the palettes below each picture.

python examples/figure_4.py -o out/figure_4 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.report import color
from glocal.report.blocks import Section
from glocal.report.example import run
from glocal.report.job import Job


def make(job: Job) -> Section:
    """One section with the figure alone."""
    return Section("figure-4", "Figure 4: palettes", [color.figure_4(color.transfers(job), job)])


if __name__ == "__main__":
    run(__doc__, make)
