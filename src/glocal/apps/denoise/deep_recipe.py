"""The training of the deep networks from photos to a model file: `glocal train image --model small`, `large` or `photo`.

`small` and `large` learn white noise of all levels, `photo` the noise of synthetic cameras. The state is saved regularly. A
training that was stopped continues from there; on the CPU it ends with the same bits as one that was never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from glocal.apps.denoise.camera_pairs import CameraPairs
from glocal.apps.denoise.crops import SCALES, SHARES, Array, Crops, PackedPhotos, reduced
from glocal.apps.denoise.deep import SHAPES, DeepDenoiser
from glocal.apps.denoise.deep_training import Plan, Training
from glocal.apps.denoise.models import save_deep
from glocal.apps.denoise.options import DeepTrainOptions
from glocal.training.loop import Record, StepCallback, StepProgress, same_options
from glocal.training.ranks import ALONE, Ranks

_PAIR = 1.6  # side of a pair of photos, in sides of a crop
_BATCH = 32
_OTHER = (1.0, 0.75)  # scales of photos of unknown source
_CAMERA_SHARES = {"bsds": 0.3, "imagenet": 0.1, "extra": 0.6}  # mostly photos without grain and JPEG artefacts


@dataclass(frozen=True)
class Material:
    """What a deep network is trained on and validated with, and the number of pictures."""

    examples: Crops | CameraPairs
    checks: list[Array] | CameraPairs
    pictures: int


def material(
    photos: Sequence[PackedPhotos], *, model: str, channels: int, side: int, pairs: int, seed: int, device: str
) -> Material:
    """Decode photos and prepare them for a model.

    Parameters
    ----------
    photos : sequence of PackedPhotos
        All are trained on; the first one has the photos for validation.
    side : int
        The side of a crop.
    pairs : int
        The number of pairs of synthetic cameras, for "photo".

    Returns
    -------
    Material
        On `device`. Cost: all photos in memory, 3 bytes for each pixel of each scale.
    """
    camera = model == "photo"

    def scales(source: str) -> tuple[float, ...]:
        return (1.0,) if camera else SCALES[channels].get(source, _OTHER)

    pictures = [
        (source, reduced(picture, scale))
        for part in photos
        for source, picture in part.pictures("train", channels)
        for scale in scales(source)
    ]
    held = photos[0].pictures("validation", channels)
    usual = _CAMERA_SHARES if camera else SHARES[channels]
    shares = {source: usual.get(source, 1.0) for source, _ in (*pictures, *held)}
    if not camera:
        crops = Crops(pictures, side=side, shares=shares, device=device)
        return Material(crops, [picture for _, picture in held], len(pictures))
    wide = round(_PAIR * side / 16) * 16
    crops, kept = (Crops(chosen, side=wide, shares=shares, device=device) for chosen in (pictures, held))
    return Material(
        CameraPairs(crops, pairs, seed=seed), CameraPairs(kept, max(1, min(128, pairs // 8)), seed=1), len(pictures)
    )


def validate(training: Training, checks: list[Array] | CameraPairs) -> list[float]:
    """Return PSNR at 15, 25 and 50 of 255, or that of camera pairs before and after denoising."""
    return training.validate_pairs(checks) if isinstance(checks, CameraPairs) else training.validate(checks)


def train_deep(
    photos: PackedPhotos,
    options: DeepTrainOptions,
    folder: Path,
    *,
    seed: int = 0,
    device: str = "cpu",
    progress: StepCallback | None = None,
    ranks: Ranks = ALONE,
) -> Path | None:
    """Train a deep network, or continue a training that is in `folder`.

    Returns
    -------
    Path or None
        The model file, which `glocal denoise --model` takes, or None if `progress` returned True to stop.

    Raises
    ------
    ArgumentError
        If `folder` has a training with other options.
    """
    assert options.model is not None
    name = f"image-{options.model}" if options.model == "photo" else f"image-{options.model}-{options.colors}"
    finished = folder / f"{name}.safetensors"
    wanted = {**asdict(options), "seed": seed}
    wanted.pop("every")
    same_options(folder / f"{name}.json", wanted, writes=ranks.first)
    ranks.wait()
    if finished.exists():
        return finished
    channels = 3 if options.model == "photo" or options.colors == "color" else 1
    shape = replace(SHAPES[options.model], channels=channels)
    plan = Plan(options.steps, max(1, int(0.35 * options.steps)), batch=options.batch or _BATCH, side=options.side)
    plan = replace(plan, warm=min(plan.warm, options.steps // 4))
    stuff = material(
        [photos], model=options.model, channels=channels, side=plan.side, pairs=options.pairs, seed=seed, device=device
    )
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    training = Training(shape, stuff.examples, plan, seed=seed, dtype=dtype, ranks=ranks)
    state = folder / f"{name}.state"
    if state.exists():
        training.load(state)
    ranks.wait()  # the first process may only write once all have read
    if device.startswith("cuda"):
        training.record()
    started, first = time.perf_counter(), training.done
    while training.done < plan.steps:
        training.run(min(plan.steps, training.done + options.every))
        training.save(state)
        scores = validate(training, stuff.checks)
        seconds = time.perf_counter() - started
        left = seconds / (training.done - first) * (plan.steps - training.done)
        middle = scores[len(scores) // 2]  # at 25 of 255, or after denoising
        record = Record(stage=name, step=training.done, loss=0.0, validation=middle, seconds=seconds)
        now = StepProgress(name, training.done, plan.steps, seconds, left, record)
        if ranks.agreed(progress is not None and bool(progress(now)), training.draws.device):
            return None
    if not ranks.first:
        return finished
    net = DeepDenoiser(shape)
    net.load_state_dict(training.averaged())
    info = {"model": options.model, "steps": plan.steps, "seed": seed, "pictures": stuff.pictures}
    return save_deep(net, name, folder, info={**info, "validation_psnr": [round(x, 3) for x in scores]})
