"""Figure 2 of the paper: one photo, several paintings, the non-local network only.

python examples/figure_2.py -o out/figure_2 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import style
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job


def make(job: Job) -> Section:
    """Build one section with only this figure."""
    figures, _ = style.figure_2(job)
    return Section("figure-2", "Figure 2: the non-local network only", figures)


if __name__ == "__main__":
    run(__doc__, make)
