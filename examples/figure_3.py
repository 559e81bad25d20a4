"""Figure 3 of the paper: colour transfer. Photo, our method, optimal transport, reference.

python examples/figure_3.py -o out/figure_3 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import color
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job


def make(job: Job) -> Section:
    """Build one section with only this figure."""
    return Section("figure-3", "Figure 3: colour transfer", [color.figure_3(color.transfers(job), job)])


if __name__ == "__main__":
    run(__doc__, make)
