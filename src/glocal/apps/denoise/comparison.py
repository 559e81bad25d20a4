"""The paper's table: noisy, Haar, local, local with a local middle layer, non-local, on the test photos."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from glocal.apps.denoise.data import Photos
from glocal.apps.denoise.evaluation import Summary, noisy_pictures, psnr, score, summarize
from glocal.apps.denoise.haar import HaarChoice, haar_denoise, tune
from glocal.apps.denoise.models import SHIPPED, levels, load_model
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import MODELS, RECIPES, EvalOptions
from glocal.errors import InputError


@dataclass(frozen=True)
class Comparison:
    """One summary a method, what was chosen for Haar, and the number of test pictures."""

    summaries: tuple[Summary, ...]
    haar: tuple[HaarChoice, ...]
    pictures: int
    sigma: float


def compare(
    photos: Photos, options: EvalOptions, *, models: Path = SHIPPED, progress: Callable[[float], None] | None = None
) -> Comparison:
    """Measure every method on the test photos, with one draw of the noise for each run (seed 0, 1, ...).

    Returns
    -------
    Comparison. Cost: for each run one graph and one pass of each network for each test photo.
    """
    tests = photos.part("test")
    if not len(tests) or not photos.counts()["validation"]:
        message = (
            f"eval: there are {len(tests)} test photos and {photos.counts()['validation']} validation photos. Use more."
        )
        raise InputError(message)
    folders = [Path(folder) for folder in options.runs] or [models]
    scores: dict[str, list[list[float]]] = {}
    choices = tuple(_tuned(photos, options, stationary) for stationary in (False, True))
    for seed, folder in enumerate(folders):
        nets = shipped(options.sigma, models) if folder == models else trained(folder, options.sigma)
        pictures = noisy_pictures(tests, sigma=options.sigma, seed=seed, stream="test", device="cpu")
        scores.setdefault("noisy", []).append([psnr(p.noisy, p.truth) for p in pictures])
        for choice in choices:
            name = f"Haar, {'stationary' if choice.stationary else 'orthonormal'}"
            scores.setdefault(name, []).append([_haar(p.noisy, p.truth, choice) for p in pictures])
        for number, (name, net) in enumerate(nets.items()):
            for picture in pictures:
                picture.graphs.clear()  # networks differ in their graphs
            scores.setdefault(name, []).append(score(net, pictures))
            if progress is not None:
                progress((seed + (number + 1) / len(nets)) / len(folders))
    summaries = tuple(summarize(name, found) for name, found in scores.items())
    return Comparison(summaries, choices, len(tests), options.sigma)


def shipped(sigma: float, models: Path) -> dict[str, ImageDenoiser]:
    """The networks of a folder of models, scaled to `sigma`."""
    return {name: load_model(name, sigma, folder=models) for name in MODELS if levels(name, folder=models)}


def trained(folder: Path, sigma: float) -> dict[str, ImageDenoiser]:
    """The finished networks of a training folder."""
    from safetensors.torch import load_file

    found = {}
    for name in ("local", "local-middle", "nonlocal", "wide"):
        path = folder / f"{name}.safetensors"
        if path.exists():
            net = ImageDenoiser(RECIPES[name].architecture, sigma=sigma)
            net.load_state_dict(load_file(path))
            found[name] = net.requires_grad_(False)
    if not found:
        message = f"eval: the folder {str(folder)!r} holds no finished training. Run `glocal train image` first."
        raise InputError(message)
    return found


def table(comparison: Comparison) -> str:
    """The comparison as text, one row a method."""
    lines = [f"sigma {comparison.sigma:.4f}, {comparison.pictures} pictures, PSNR in dB"]
    lines.append(f"{'method':24} {'mean':>7} {'+- pictures':>12} {'+- seeds':>9}  by seed")
    for row in comparison.summaries:
        seeds = " ".join(f"{value:.2f}" for value in row.by_seed)
        lines.append(f"{row.method:24} {row.mean:7.2f} {row.error_images:12.2f} {row.error_seeds:9.3f}  {seeds}")
    for choice in comparison.haar:
        kind = "stationary" if choice.stationary else "orthonormal"
        lines.append(f"Haar, {kind}: {choice.levels} levels, threshold {choice.threshold:.4f}, chosen on validation")
    return "\n".join(lines)


def _tuned(photos: Photos, options: EvalOptions, stationary: bool) -> HaarChoice:
    checks = noisy_pictures(photos.part("validation"), sigma=options.sigma, seed=0, stream="validation", device="cpu")
    truths, noisies = [p.truth.numpy() for p in checks], [p.noisy.numpy() for p in checks]
    return tune(truths, noisies, sigma=options.sigma, stationary=stationary)


def _haar(noisy: torch.Tensor, truth: torch.Tensor, choice: HaarChoice) -> float:
    found = haar_denoise(
        noisy.numpy().astype(np.float64),
        threshold=choice.threshold,
        levels=choice.levels,
        stationary=choice.stationary,
    )
    return psnr(torch.from_numpy(found), truth)
