"""Figure 5 of the paper: validation curves, images and speech.

python examples/figure_5.py -o out/figure_5 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import denoise, speech
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job
from glocal.paper.results import figure_5


def make(job: Job) -> Section:
    """Build one section with only this figure."""
    images = denoise.trained(job.part(0, 0.5)).run
    _, sounds = speech.trained(job.part(0.5, 1))
    left = figure_5(images, part="images", name="fig5-images", measure="PSNR", wide=False)
    right = figure_5(sounds[0], part="speech", name="fig5-speech", measure="SNR", wide=False)
    return Section("figure-5", "Figure 5: validation curves", [left, right])


if __name__ == "__main__":
    run(__doc__, make)
