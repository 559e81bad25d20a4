"""The numbers of section B.3 of the paper: images and speech.

python examples/table_b3.py -o out/table_b3 [--full] [--data FOLDER]
"""

from __future__ import annotations

from glocal.paper import denoise, speech
from glocal.paper.blocks import Section
from glocal.paper.example import run
from glocal.paper.job import Job
from glocal.paper.results import table_b3


def make(job: Job) -> Section:
    """Build one section with only these tables."""
    images = denoise.trained(job.part(0, 0.5)).run
    _, sounds = speech.trained(job.part(0.5, 1))
    tables = [table_b3(images, title="Images: PSNR on the test set", published=denoise.PUBLISHED)]
    tables += [table_b3(run, title="Speech: SNR on the test set", published=speech.PUBLISHED) for run in sounds]
    return Section("table-b3", "Section B.3: the numbers", tables)


if __name__ == "__main__":
    run(__doc__, make)
