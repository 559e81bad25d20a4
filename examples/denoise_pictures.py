"""Make the pictures of docs/denoise.md from the shipped samples: a noisy colour photo and the result of each model.

python examples/denoise_pictures.py -o docs/pictures
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

import glocal
from glocal.training.scores import psnr

SIGMA = 25 / 255


def main() -> None:
    """Denoise one photo with several models and put the results side by side: noisy, models, original."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out"), help="a folder")
    parser.add_argument("--photo", type=Path, default=glocal.samples.path("temple.jpg"))
    parser.add_argument("--side", type=int, default=300, help="longer side in pixels")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    with Image.open(chosen.photo) as photo:
        photo.thumbnail((chosen.side, chosen.side), Image.Resampling.LANCZOS)
        truth = np.asarray(photo.convert("RGB")) / 255
    noisy = truth + np.random.default_rng(0).normal(0, SIGMA, truth.shape)
    panels = {"noisy": noisy}
    panels |= {
        model: glocal.denoise(noisy, SIGMA, model=model).image for model in ("nonlocal", "wide", "small", "large")
    }
    for name, panel in panels.items():
        print(f"{name}: {psnr(np.clip(panel, 0, 1), truth):.2f} dB")
    row = np.concatenate([np.clip(panel, 0, 1) for panel in (*panels.values(), truth)], 1)
    Image.fromarray(np.rint(255 * row).astype(np.uint8)).save(chosen.output / "denoise_models.jpg", quality=90)


if __name__ == "__main__":
    main()
