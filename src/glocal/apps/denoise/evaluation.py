"""PSNR, and the mean of it over noisy test pictures with its standard error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glocal.apps.denoise.networks import ImageDenoiser
from glocal.graph import Graph
from glocal.training.loop import Draws


def psnr(found: Tensor, truth: Tensor) -> float:
    """`10 log10(1 / mean squared difference)`, in dB, for pictures in [0, 1].

    >>> round(psnr(torch.full((4, 4), 0.6), torch.full((4, 4), 0.5)), 2)
    20.0
    """
    error = float((found.double() - truth.double()).square().mean())
    return math.inf if error == 0 else -10 * math.log10(error)


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
    """PSNR of each denoised picture. Graphs are built on first use and kept in the pictures: validation repeats often."""
    scores = []
    for picture in pictures:
        if not picture.graphs:
            picture.graphs.update(model.graphs(picture.noisy))
        found = model(picture.noisy.reshape(-1, 1), picture.graphs).reshape(picture.truth.shape)
        scores.append(psnr(found, picture.truth))
    return scores


@dataclass(frozen=True)
class Summary:
    """Mean PSNR over test pictures and over seeds, with standard errors.

    by_seed
        The mean over the pictures for each seed.
    error_images
        Standard error over the pictures, of their means over the seeds.
    error_seeds
        Standard error over the seeds (0 for one seed).
    """

    method: str
    mean: float
    error_images: float
    error_seeds: float
    by_seed: tuple[float, ...]


def summarize(method: str, scores: Sequence[Sequence[float]]) -> Summary:
    """Summarise `scores[seed][picture]`.

    >>> summarize("noisy", [[20.0, 22.0], [21.0, 23.0]]).mean
    21.5
    """
    table = np.asarray(scores, dtype=np.float64)
    seeds, count = table.shape
    over_images = table.mean(0).std(ddof=1) / math.sqrt(count) if count > 1 else 0.0
    over_seeds = table.mean(1).std(ddof=1) / math.sqrt(seeds) if seeds > 1 else 0.0
    means = tuple(round(float(m), 4) for m in table.mean(1))
    return Summary(method, float(table.mean()), float(over_images), float(over_seeds), means)


Denoiser = Callable[[NoisyPicture], Tensor]


def score_with(denoiser: Denoiser, pictures: Sequence[NoisyPicture]) -> list[float]:
    """PSNR of each picture for any denoiser."""
    return [psnr(denoiser(picture), picture.truth) for picture in pictures]
