"""The image networks: trained now by the paper's protocol, or the ones that ship."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from glocal.apps.denoise.comparison import score_all, tune_haar
from glocal.apps.denoise.data import load_photos
from glocal.apps.denoise.models import load_model
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import RECIPES, TrainOptions, chain
from glocal.apps.denoise.training import train
from glocal.errors import GlocalError
from glocal.paper.folders import photos_in
from glocal.paper.job import Job
from glocal.paper.runs import Run, log_points
from glocal.training.loop import StepProgress
from glocal.training.scores import with_gain

# Shares of the work, for the progress bar: steps of the local trainings are cheap, those of the non-local one are not.
_TRAININGS = {"local": (0.05, 0.35), "local-middle": (0.35, 0.6), "nonlocal": (0.6, 0.95)}


def shipped(name: str) -> ImageDenoiser:
    """Return a network that comes with the package, "local" or "nonlocal", for the paper's noise."""
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
    sigma = TrainOptions().sigma
    device: Literal["cpu", "cuda"] = "cuda" if job.device == "cuda" else "cpu"
    for recipe, (start, end) in _TRAININGS.items():
        options = TrainOptions(recipe, seed=job.seed, epochs=job.effort.epochs, every=job.effort.every, device=device)
        net = train(photos, options, folder, progress=_step_progress(job.part(start, end), recipe))
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
    found = score_all(photos, nets, tune_haar(photos, sigma), sigma=sigma, seed=job.seed, device=job.device)
    scores = with_gain({method: [items] for method, items in found.items()})
    run = Run(job.source, job.source, words, curves, epoch, scores)
    return nets["local"].cpu(), nets["nonlocal"].cpu(), run


def _step_progress(job: Job, recipe: str) -> Callable[[StepProgress], None]:
    stages = chain(recipe)

    def tell(progress: StepProgress) -> None:
        done = stages.index(progress.stage) if progress.stage in stages else 0
        job.progress((done + progress.step / progress.steps) / len(stages))

    return tell
