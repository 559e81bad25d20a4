"""The paper's speech networks: trained now by its protocol, or the ones that ship."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from glocal.apps.speech import haar
from glocal.apps.speech.data import SpeechData, load_speech
from glocal.apps.speech.metrics import snr
from glocal.apps.speech.models import load_samples
from glocal.apps.speech.networks import KINDS, SIGMA, SampleNet
from glocal.apps.speech.train import STEPS, train_samples
from glocal.errors import GlocalError
from glocal.paper.folders import speech_in
from glocal.paper.job import Job
from glocal.paper.runs import Points, Run, scored
from glocal.training.loop import Draws, Fitted, StepProgress

_SHARES = {"local": (0.0, 0.15), "nonlocal": (0.15, 0.95)}


def shipped() -> dict[str, SampleNet]:
    """The networks that come with the package."""
    return {kind: load_samples(kind) for kind in KINDS}


def train_all(job: Job) -> tuple[dict[str, SampleNet], tuple[Run, ...]]:
    """Train both networks on the user's speech and score them on the test clips."""
    place = speech_in(job.data)
    data = load_speech(place)
    folder = job.folder / "speech"
    folder.mkdir(parents=True, exist_ok=True)
    nets: dict[str, SampleNet] = {}
    curves: dict[str, Points] = {}
    steps = job.effort.speech_steps or STEPS
    for kind in KINDS:
        net, fitted = train_samples(
            data, kind, seed=job.seed, steps=steps, every=job.effort.every, folder=folder, device=job.device,
            progress=_told(job.part(*_SHARES[kind])),
        )  # fmt: skip
        nets[kind], curves[kind] = net.cpu(), _points(fitted, kind)
    words = (
        f"{place.name}: {len(data.train)} training, {len(data.val)} validation and {len(data.test)} test clips of 1 s"
    )
    return nets, (Run(job.source, job.source, words, curves, steps, scored(score_all(data, nets, job.seed))),)


@torch.no_grad()
def score_all(data: SpeechData, nets: dict[str, SampleNet], seed: int) -> dict[str, list[list[float]]]:
    """SNR of every test clip, `[method][seed][clip]`."""
    clean, noisy = _pairs(data.test, "test", seed)
    held, held_noisy = _pairs(data.val, "validation", 0)
    threshold = haar.best_threshold(held_noisy, held, sigma=SIGMA)
    shrunk = [haar.haar_denoise(y, threshold=threshold) for y in noisy]
    found = {"noisy": [_snrs(noisy, clean)], "haar": [_snrs(shrunk, clean)]}
    for kind, net in nets.items():
        found[kind] = [_snrs([net(torch.from_numpy(y).unsqueeze(0))[0].numpy() for y in noisy], clean)]
    return found


Clips = Sequence[npt.NDArray[np.floating[Any]]]


def _pairs(clips: npt.NDArray[np.float32], stream: str, seed: int) -> tuple[Clips, Clips]:
    """Clips and the same with noise."""
    draws = Draws(seed, stream)
    return list(clips), [x + np.float32(SIGMA) * draws.normal(i, (len(x),)).numpy() for i, x in enumerate(clips)]


def _snrs(estimates: Clips, clean: Clips) -> list[float]:
    return [float(snr(torch.from_numpy(y), torch.from_numpy(x))) for y, x in zip(estimates, clean, strict=True)]


def _points(fitted: Fitted, kind: str) -> Points:
    if not fitted.finished:
        message = f"reproduce: the training of {kind!r} ended early. Run the command again; it goes on from there."
        raise GlocalError(message)
    return tuple((float(record.step), record.validation) for record in fitted.records)


def _told(job: Job) -> Callable[[StepProgress], None]:
    return lambda progress: job.progress(progress.step / progress.steps)
