"""Figure 6 of the paper: noisy, local, non-local, original, with PSNRs.

python examples/figure_6.py -o out/figure_6 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import denoise
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job


def make(job: Job) -> Section:
    """Build one section with only this figure."""
    figure, _ = denoise.figure_6(denoise.trained(job), job)
    return Section("figure-6", "Figure 6: an example", [figure])


if __name__ == "__main__":
    run(__doc__, make)
