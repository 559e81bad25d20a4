"""Figure 4 of the paper: colour transfer with the palettes below each picture.

python examples/figure_4.py -o out/figure_4 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import color
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job


def make(job: Job) -> Section:
    """Build one section with only this figure."""
    return Section("figure-4", "Figure 4: palettes", [color.figure_4(color.transfers(job), job)])


if __name__ == "__main__":
    run(__doc__, make)
