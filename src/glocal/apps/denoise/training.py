"""The paper's training of the image networks: pre-training, then training; batch 1, ADAM, projected thresholds.

Deviations from the paper: none known in the method; the photos come from any folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from glocal.apps.denoise.data import Photos
from glocal.apps.denoise.evaluation import noisy_pictures, score
from glocal.apps.denoise.models import load_model, save_model
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import RECIPES, Device, Recipe, TrainOptions, Wanted, chain
from glocal.errors import InputError
from glocal.machine import check_device
from glocal.training.draws import Draws
from glocal.training.loop import Fitted, Stage, StepCallback, fit, same_options
from glocal.training.ranks import ALONE, Ranks


def train(
    photos: Photos, options: TrainOptions, folder: Path, *, progress: StepCallback | None = None, ranks: Ranks = ALONE
) -> ImageDenoiser | None:
    """Train `options.recipe` and the recipes that it starts from, and continue a training that is in `folder`.

    The loss of a photo is the Euclidean distance `|net(x + noise) - x|`. The seed decides noise and order. `ranks` are the
    processes that share each batch; the first one writes.

    Returns
    -------
    ImageDenoiser or None
        The trained network, or None if `progress` stopped it. `folder` then has, for each recipe of the chain,
        `NAME.jsonl` (validation curve), `NAME.checkpoint.safetensors` and, once finished, `image-NAME.safetensors`, which
        `glocal eval image` and `glocal denoise` both read.
        Cost: for each step one forward and backward pass, and one graph for non-local networks.
    """
    options = replace(options, device=resolve(options.device))
    _check(photos, options)
    ranks.share(options.batch)
    same_options(folder / "options.json", _recorded(options), writes=ranks.first)
    ranks.wait()
    model = None
    for name in chain(options.recipe):
        finished = weights_file(folder, name)
        if finished.exists():
            model = load_model(str(finished), options.sigma).requires_grad_(True).to(options.device)
            continue
        started = new_network(RECIPES[name], options, model)
        ended = _run(started, name, photos, options, folder, progress, ranks)
        if not ended.finished:
            return None
        if ranks.first:
            info = {"model": name, "seed": options.seed, "validation_psnr": round(ended.records[-1].validation, 3)}
            save_model(started, finished.stem, folder, info=info)
        ranks.wait()
        model = started
    return model


def weights_file(folder: Path, name: str) -> Path:
    """Return the path of the finished network `name` of a training in `folder`."""
    return folder / f"image-{name}.safetensors"


def new_network(recipe: Recipe, options: TrainOptions, start: ImageDenoiser | None) -> ImageDenoiser:
    """Return a network with the recipe's sizes. The layers of `start` are copied."""
    model = ImageDenoiser(recipe.architecture, sigma=options.sigma, seed=options.seed).to(options.device)
    if start is not None:
        model.load_state_dict(start.state_dict(), strict=False)
    return model


def _run(
    model: ImageDenoiser,
    name: str,
    photos: Photos,
    options: TrainOptions,
    folder: Path,
    progress: StepCallback | None,
    ranks: Ranks,
) -> Fitted:
    training = torch.from_numpy(photos.part("train"))
    order, noise = Draws(options.seed, f"order {name}"), Draws(options.seed, f"noise {name}")
    checks = noisy_pictures(
        photos.part("validation"), sigma=options.sigma, seed=0, stream="validation", device=options.device
    )

    def loss(example: int) -> Tensor:
        truth = training[order.example(example, len(training))].to(torch.float32) / 255
        noisy = (truth + options.sigma * noise.normal(example, tuple(truth.shape))).to(options.device)
        graphs = model.graphs(noisy)
        difference = model(noisy.reshape(-1, 1), graphs) - truth.to(options.device).reshape(-1, 1)
        return torch.linalg.vector_norm(difference)

    def validate() -> float:
        scores = score(model, checks)
        return sum(scores) / len(scores)

    recipe = RECIPES[name]
    epochs = recipe.epochs if options.epochs is None else options.epochs
    steps = max(1, epochs * len(training) // options.batch)
    stage = Stage(name, steps, recipe.rate, options.every, options.batch)
    return fit(model, loss, stage, validate=validate, folder=folder, progress=progress, ranks=ranks)


def resolve(device: Wanted) -> Device:
    """Return the device that "auto" selects."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _recorded(options: TrainOptions) -> dict[str, float | None]:
    """Return the options that a continued training must share."""
    wanted = {"sigma": options.sigma, "seed": options.seed, "epochs": options.epochs}
    return wanted if options.batch == 1 else wanted | {"batch": options.batch}


def _check(photos: Photos, options: TrainOptions) -> None:
    counts = photos.counts()
    if not counts["train"] or not counts["validation"]:
        message = (
            f"train: there are {counts['train']} training and {counts['validation']} validation photos; both are needed. "
            "Use more photos or another split."
        )
        raise InputError(message)
    check_device("train", options.device)
