"""Figure 1 of the paper: photos in the style of paintings, the paper's setting and our preset painterly.

python examples/figure_1.py -o out/figure_1 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import style
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job


def make(job: Job) -> Section:
    """Build one section with only this figure."""
    figures, _ = style.figure_1(job)
    return Section("figure-1", "Figure 1: style transfer", figures)


if __name__ == "__main__":
    run(__doc__, make)
