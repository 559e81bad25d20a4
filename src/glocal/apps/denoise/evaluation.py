"""Noisy test pictures, and the PSNR of a network on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glocal.apps.denoise.networks import ImageDenoiser
from glocal.graph import Graph
from glocal.training.draws import Draws
from glocal.training.scores import psnr


@dataclass(frozen=True)
class NoisyPicture:
    """A picture (h, w) in [0, 1], the same with noise, and the graphs once they are known."""

    truth: Tensor
    noisy: Tensor
    graphs: dict[str, Graph]


def noisy_pictures(images: np.ndarray, *, sigma: float, seed: int, stream: str, device: str) -> list[NoisyPicture]:
    """Add white noise to pictures (count, h, w) uint8, the same noise for the same seed and stream on every device."""
    draws = Draws(seed, stream)
    pictures = []
    for number, image in enumerate(images):
        truth = torch.from_numpy(image.astype(np.float32) / 255)
        noise = draws.normal(number, tuple(truth.shape))
        pictures.append(NoisyPicture(truth.to(device), (truth + sigma * noise).to(device), {}))
    return pictures


@torch.no_grad()
def score(model: ImageDenoiser, pictures: Sequence[NoisyPicture]) -> list[float]:
    """Return the PSNR of each denoised picture. Graphs are built on first use and kept: validation repeats often."""
    scores = []
    for picture in pictures:
        if not picture.graphs:
            picture.graphs.update(model.graphs(picture.noisy))
        found = model(picture.noisy.reshape(-1, 1), picture.graphs).reshape(picture.truth.shape)
        scores.append(psnr(found, picture.truth))
    return scores
