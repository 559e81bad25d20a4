"""Figure 7 of the paper: feature maps of the analysis and synthesis filters of both networks.

python examples/figure_7.py -o out/figure_7 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import denoise
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job


def make(job: Job) -> Section:
    """Build one section with only this figure."""
    return Section("figure-7", "Figure 7: feature maps", [denoise.figure_7(denoise.trained(job), job)])


if __name__ == "__main__":
    run(__doc__, make)
