"""The paper's table B.3 for images: noisy, Haar and the networks, on the test photos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glocal.apps.denoise.data import Photos
from glocal.apps.denoise.evaluation import NoisyPicture, noisy_pictures, score
from glocal.apps.denoise.models import SHIPPED, levels, load_model
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import MODELS, PAPER_NETWORKS, EvalOptions
from glocal.apps.denoise.training import weights_file
from glocal.errors import InputError
from glocal.training.haar import HaarChoice, haar_denoise, tune
from glocal.training.scores import Score, psnr, summarize

LEVELS = (1, 2, 3, 4)
FACTORS = tuple(round(0.5 + 0.1 * step, 1) for step in range(31))  # of sigma
_NAMES = {"haar": "Haar, orthonormal", "haar-stationary": "Haar, stationary"}


@dataclass(frozen=True)
class Comparison:
    """One score for each method, the settings chosen for Haar, and the number of test pictures."""

    scores: Mapping[str, Score]
    haar: tuple[HaarChoice, ...]
    pictures: int
    sigma: float


def compare(
    photos: Photos, options: EvalOptions, *, models: Path = SHIPPED, progress: Callable[[float], None] | None = None
) -> Comparison:
    """Measure every method on the test photos, with one draw of the noise for each run (seed 0, 1, ...).

    Returns
    -------
    Comparison
        Cost: for each run one graph and one pass of each network for each test photo.
    """
    tests, checks = len(photos.part("test")), photos.counts()["validation"]
    if not tests or not checks:
        message = f"eval: there are {tests} test photos and {checks} validation photos. Use more."
        raise InputError(message)
    folders = [Path(folder) for folder in options.runs] or [models]
    choices = tune_haar(photos, options.sigma)
    table: dict[str, list[list[float]]] = {}
    for seed, folder in enumerate(folders):
        nets = shipped(options.sigma, models) if folder == models else trained(folder, options.sigma)
        found = score_all(photos, nets, choices, sigma=options.sigma, seed=seed)
        for method, items in found.items():
            table.setdefault(_NAMES.get(method, method), []).append(items)
        if progress is not None:
            progress((seed + 1) / len(folders))
    scores = {method: summarize(by_seed) for method, by_seed in table.items()}
    return Comparison(scores, choices, tests, options.sigma)


def tune_haar(photos: Photos, sigma: float) -> tuple[HaarChoice, ...]:
    """Choose levels and threshold of both Haar transforms (orthonormal, stationary) on the validation photos."""
    checks = noisy_pictures(photos.part("validation"), sigma=sigma, seed=0, stream="validation", device="cpu")
    truths, noisies = ([getattr(p, name).numpy().astype(np.float64) for p in checks] for name in ("truth", "noisy"))
    return tuple(
        tune(truths, noisies, sigma=sigma, factors=FACTORS, levels=LEVELS, stationary=stationary)
        for stationary in (False, True)
    )


def score_all(
    photos: Photos,
    nets: Mapping[str, ImageDenoiser],
    haar: tuple[HaarChoice, ...],
    *,
    sigma: float,
    seed: int,
    device: str = "cpu",
) -> dict[str, list[float]]:
    """Return the PSNR of every test photo for each method: "noisy", "haar", "haar-stationary" and the networks."""
    tests = noisy_pictures(photos.part("test"), sigma=sigma, seed=seed, stream="test", device=device)
    found = {"noisy": [psnr(picture.noisy, picture.truth) for picture in tests]}
    for choice in haar:
        name = "haar-stationary" if choice.stationary else "haar"
        found[name] = [_haar(picture, choice) for picture in tests]
    for name, net in nets.items():
        fresh = [NoisyPicture(picture.truth, picture.noisy, {}) for picture in tests]  # each network has its own graphs
        found[name] = score(net, fresh)
    return found


def shipped(sigma: float, models: Path) -> dict[str, ImageDenoiser]:
    """Return the networks of a folder of models, scaled to `sigma`."""
    return {name: load_model(name, sigma, folder=models) for name in MODELS if levels(name, folder=models)}


def trained(folder: Path, sigma: float) -> dict[str, ImageDenoiser]:
    """Return the finished networks of a training folder, scaled to `sigma`."""
    files = {name: weights_file(folder, name) for name in (*PAPER_NETWORKS, "wide")}
    found = {name: load_model(str(path), sigma) for name, path in files.items() if path.exists()}
    if not found:
        message = f"eval: the folder {str(folder)!r} has no finished training. Run `glocal train image` first."
        raise InputError(message)
    return found


def table(comparison: Comparison) -> str:
    """Return the comparison as text, one row for each method."""
    lines = [f"sigma {comparison.sigma:.4f}, {comparison.pictures} pictures, PSNR in dB"]
    lines.append(f"{'method':24} {'mean':>7} {'+- pictures':>12} {'+- seeds':>9}  by seed")
    for method, row in comparison.scores.items():
        seeds = " ".join(f"{value:.2f}" for value in row.by_seed)
        lines.append(f"{method:24} {row.mean:7.2f} {row.error:12.2f} {row.error_seeds or 0:9.3f}  {seeds}")
    for choice in comparison.haar:
        name = _NAMES["haar-stationary" if choice.stationary else "haar"]
        lines.append(f"{name}: {choice.levels} levels, threshold {choice.threshold:.4f}, chosen on validation")
    return "\n".join(lines)


def _haar(picture: NoisyPicture, choice: HaarChoice) -> float:
    noisy = picture.noisy.cpu().numpy().astype(np.float64)
    found = haar_denoise(noisy, threshold=choice.threshold, levels=choice.levels, stationary=choice.stationary)
    return psnr(found, picture.truth.cpu())
