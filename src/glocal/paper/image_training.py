"""The image networks: trained now by the paper's protocol, or the ones that ship."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

from glocal.apps.denoise import haar
from glocal.apps.denoise.data import Photos, load_photos
from glocal.apps.denoise.evaluation import NoisyPicture, noisy_pictures, psnr, score
from glocal.apps.denoise.models import load_model
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import RECIPES, TrainOptions, chain
from glocal.apps.denoise.training import train
from glocal.errors import GlocalError
from glocal.paper.folders import photos_in
from glocal.paper.job import Job
from glocal.paper.runs import Run, log_points, scored
from glocal.training.loop import StepProgress

# Shares of the work, for the progress bar: steps of the local trainings are cheap, those of the non-local one are not.
_TRAININGS = {"local": (0.05, 0.35), "local-middle": (0.35, 0.6), "nonlocal": (0.6, 0.95)}


def shipped(name: str) -> ImageDenoiser:
    """A network that comes with the package, "local" or "nonlocal", for the paper's noise."""
    return load_model(name, TrainOptions().sigma)


def train_all(job: Job) -> tuple[ImageDenoiser, ImageDenoiser, Run]:
    """Train the paper's networks on the user's photos and score them on the test photos.

    Stopped runs go on where they stopped: logs and checkpoints lie in the job's folder.
    """
    place = photos_in(job.data)
    photos = load_photos(place, side=job.effort.image_size, seed=job.seed)
    folder = job.folder / "image"
    folder.mkdir(parents=True, exist_ok=True)
    nets = {}
    device: Literal["cpu", "cuda"] = "cuda" if job.device == "cuda" else "cpu"
    for recipe, (start, end) in _TRAININGS.items():
        options = TrainOptions(recipe, seed=job.seed, epochs=job.effort.epochs, every=job.effort.every, device=device)
        net = train(photos, options, folder, progress=_told(job.part(start, end), recipe))
        if net is None:
            message = (
                f"reproduce: the training of {recipe!r} ended early. Run the command again; it goes on from there."
            )
            raise GlocalError(message)
        nets[recipe] = net
    epoch = photos.counts()["train"]
    first = RECIPES["pretrain"].epochs * epoch
    curves = {name: log_points(folder / f"{name}.jsonl", offset=first) for name in ("local", "nonlocal")}
    curves = {"pretrain": log_points(folder / "pretrain.jsonl"), **curves}
    counts = photos.counts()
    words = (
        f"{place.name}: {counts['train']} training, {counts['validation']} validation and {counts['test']} test photos, "
        f"{job.effort.image_size} x {job.effort.image_size}"
    )
    run = Run(job.source, job.source, words, curves, epoch, scored(score_all(photos, nets, job.seed, job.device)))
    return nets["local"].cpu(), nets["nonlocal"].cpu(), run


def score_all(
    photos: Photos, nets: dict[str, ImageDenoiser], seed: int, device: str = "cpu"
) -> dict[str, list[list[float]]]:
    """PSNR of every test photo, `[method][seed][photo]`, for the networks and for both Haar transforms."""
    sigma = TrainOptions().sigma
    tests = noisy_pictures(photos.part("test"), sigma=sigma, seed=seed, stream="test", device=device)
    checks = noisy_pictures(photos.part("validation"), sigma=sigma, seed=0, stream="validation", device="cpu")
    found = {"noisy": [[psnr(picture.noisy, picture.truth) for picture in tests]]}
    for name, stationary in (("haar", False), ("haar-stationary", True)):
        found[name] = [_haar_scores(checks, tests, sigma, stationary=stationary)]
    for name, net in nets.items():
        fresh = [NoisyPicture(picture.truth, picture.noisy, {}) for picture in tests]  # each network has its own graphs
        found[name] = [score(net, fresh)]
    return found


def _haar_scores(
    checks: Sequence[NoisyPicture], tests: Sequence[NoisyPicture], sigma: float, *, stationary: bool
) -> list[float]:
    truths, noisies = ([getattr(p, name).numpy() for p in checks] for name in ("truth", "noisy"))
    choice = haar.tune(truths, noisies, sigma=sigma, stationary=stationary)
    scores = []
    for picture in tests:
        found = haar.haar_denoise(
            picture.noisy.cpu().numpy(), threshold=choice.threshold, levels=choice.levels, stationary=stationary
        )
        scores.append(psnr(torch.from_numpy(found), picture.truth.cpu()))
    return scores


def _told(job: Job, recipe: str) -> Callable[[StepProgress], None]:
    stages = chain(recipe)

    def tell(progress: StepProgress) -> None:
        done = stages.index(progress.stage) if progress.stage in stages else 0
        job.progress((done + progress.step / progress.steps) / len(stages))

    return tell
