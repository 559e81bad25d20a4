"""Appendix B of the paper, speech: figure 5 (right), the numbers of section B.3, and one sentence seen and heard."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal import samples
from glocal.apps.speech.evaluate import trained as shipped
from glocal.apps.speech.metrics import snr
from glocal.apps.speech.networks import SIGMA, SampleNet
from glocal.paper import speech_training
from glocal.paper.blocks import Block, Figure, Plate, Section, Text
from glocal.paper.figures import plotted
from glocal.paper.job import Job
from glocal.paper.results import figure_5, table_b3
from glocal.paper.runs import Run, load_runs
from glocal.paper.source import Number
from glocal.training.draws import Draws

PUBLISHED = {"noisy": 0.85, "haar": 5.80, "local": 8.44, "nonlocal": 8.79, "gain": 0.35}
RATE = 16000
_START = 1.0  # seconds into the shipped sentence


def section(job: Job) -> Section:
    """Figure 5 and the table, speech, and the shipped sentence before and after."""
    nets, runs = trained(job)
    lead = Text(
        (
            "The same layers on sound: one-second clips at 16 kHz with white noise (sigma 0.12 at a peak of 1), 5 taps "
            "and 10 maps; the middle layer works on neighbouring samples (local) or on the samples with the most similar "
            "25-sample surroundings (non-local).",
        )
    )
    blocks: list[Block] = [lead]
    blocks += [
        table_b3(
            run, title=f"Section B.3, speech: SNR on the test set ({run.data.partition(':')[0]})", published=PUBLISHED
        )
        for run in runs
    ]
    curves = next(run for run in runs if run.curves)
    figure, values = sentence(nets, curves, job)
    blocks += [figure_5(curves, part="speech", name="fig5-speech", measure="SNR"), figure]
    data = {"sentence": values, "runs": [run.as_dict() for run in runs]}
    return Section("speech", "Figure 5: speech denoising", blocks, data)


def trained(job: Job) -> tuple[dict[str, SampleNet], tuple[Run, ...]]:
    """Return the networks and the runs that trained and tested them: now, or stored."""
    if job.effort.trains:
        return speech_training.train_all(job)
    return shipped(None), load_runs("speech")


@torch.no_grad()
def sentence(nets: dict[str, SampleNet], run: Run, job: Job) -> tuple[Figure, dict[str, float]]:
    """One second of the shipped sentence: noisy, local, non-local and clean, as spectrograms with SNRs."""
    import soundfile

    sound, _ = soundfile.read(samples.path("speech.wav"), dtype="float32")
    clip = sound[int(_START * RATE) : int(_START * RATE) + int(job.effort.speech_seconds * RATE)]
    clean = torch.from_numpy(clip / np.abs(clip).max())
    noisy = clean + SIGMA * Draws(job.seed, "sentence").normal(0, (len(clean),))
    signals = {"noisy": noisy, **{name: net(noisy.unsqueeze(0))[0] for name, net in nets.items()}, "clean": clean}
    values = {name: float(snr(signal, clean)) for name, signal in signals.items() if name != "clean"}
    words = {"noisy": "noisy", "local": "local network", "nonlocal": "non-local network", "clean": "clean"}
    plates = []
    for name, signal in signals.items():
        light, dark = plotted(partial(_spectrogram, signal), size=(3.2, 2.6), dpi=100)
        caption = (
            (f"{words[name]}, ", Number(values[name], job.source, unit="dB")) if name in values else (words[name],)
        )
        plates.append(Plate(f"speech-{name}", light, f"Spectrogram: {words[name]}", caption, dark, sound=_wav(signal)))
    text = (
        "One second of the shipped sentence (CMU ARCTIC), as spectrograms over 80 dB, and to listen to. The noise is drawn "
        f"in this run; the networks are those of: {run.source.text()}.",
    )
    return Figure("One second of a sentence, before and after", plates, 4, text, job.source), values


def _wav(signal: Tensor) -> bytes:
    """Return a signal as a 16-bit WAV file, at half its level, since noise may go beyond full scale."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, signal.numpy() / 2, RATE, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def _spectrogram(signal: Tensor, axes: Any, ink: str) -> None:
    power = torch.stft(signal, 512, 128, window=torch.hann_window(512), return_complex=True).abs().square()
    level = 10 * torch.log10(power + 1e-9).numpy()
    seconds = len(signal) / RATE
    axes.imshow(
        level, origin="lower", aspect="auto", extent=(0, seconds, 0, RATE / 2000), cmap="magma", vmin=-40, vmax=40
    )
    axes.set_xlabel("time (s)")
    axes.set_ylabel("frequency (kHz)")
