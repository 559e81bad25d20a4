"""The paper's speech networks, trained now by its protocol."""

from __future__ import annotations

from collections.abc import Callable

from glocal.apps.speech.data import load_speech
from glocal.apps.speech.evaluate import haar_method, score_all
from glocal.apps.speech.networks import MIDDLES, SampleNet
from glocal.apps.speech.train import STEPS, train_samples
from glocal.errors import GlocalError
from glocal.paper.folders import speech_in
from glocal.paper.job import Job
from glocal.paper.runs import Points, Run
from glocal.training.loop import Fitted, StepProgress
from glocal.training.scores import with_gain

_SHARES = {"local": (0.0, 0.15), "nonlocal": (0.15, 0.95)}


def train_all(job: Job) -> tuple[dict[str, SampleNet], tuple[Run, ...]]:
    """Train both networks on the user's speech and score them on the test clips."""
    place = speech_in(job.data)
    data = load_speech(place)
    folder = job.folder / "speech"
    folder.mkdir(parents=True, exist_ok=True)
    nets: dict[str, SampleNet] = {}
    curves: dict[str, Points] = {}
    steps = job.effort.speech_steps or STEPS
    for middle in MIDDLES:
        net, fitted = train_samples(
            data, middle, seed=job.seed, steps=steps, every=job.effort.every, folder=folder, device=job.device,
            progress=_step_progress(job.part(*_SHARES[middle])),
        )  # fmt: skip
        nets[middle], curves[middle] = net.cpu(), _points(fitted, middle)
    words = (
        f"{place.name}: {len(data.train)} training, {len(data.val)} validation and {len(data.test)} test clips of 1 s"
    )
    found = score_all(data, nets, haar_method(data), seed=job.seed)
    scores = with_gain({method: [items] for method, items in found.items()})
    return nets, (Run(job.source, job.source, words, curves, steps, scores),)


def _points(fitted: Fitted, middle: str) -> Points:
    if not fitted.finished:
        message = f"reproduce: the training of {middle!r} ended early. Run the command again; it goes on from there."
        raise GlocalError(message)
    return tuple((float(record.step), record.validation) for record in fitted.records)


def _step_progress(job: Job) -> Callable[[StepProgress], None]:
    return lambda progress: job.progress(progress.step / progress.steps)
