"""Every denoiser on the same noisy clips: means with standard errors over clips and over trainings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech import noises, peers
from glocal.apps.speech.data import SpeechData
from glocal.apps.speech.frames import FrameNet
from glocal.apps.speech.haar import best_threshold, haar_denoise
from glocal.apps.speech.metrics import si_sdr, snr
from glocal.apps.speech.models import SampleDenoiser, load_frames, load_samples
from glocal.apps.speech.networks import SIGMA, SampleNet
from glocal.apps.speech.wiener import wiener
from glocal.training.loop import Draws

Samples = NDArray[np.float32]
Method = Callable[[Samples, float], Samples]  # (noisy clip, true sigma) -> denoised clip
WIENER_GRID = tuple((window, memory) for window in (512, 640, 800) for memory in (0.9, 0.94, 0.97, 0.98, 0.985))


@dataclass(frozen=True)
class Score:
    """The mean of one measure for one method, its standard error over clips, and that over trainings (0 for one)."""

    method: str
    measure: str
    mean: float
    error: float
    error_seeds: float = 0.0


@dataclass(frozen=True)
class Condition:
    """Clean and noisy clips (m, n) and the true sigma of each (m,)."""

    clean: Samples
    noisy: Samples
    sigmas: NDArray[np.float64]


def at_sigma(clips: Samples, sigma: float = SIGMA, *, seed: int = 0) -> Condition:
    """The paper's condition: noise of one sigma on clips of peak 1."""
    draws = Draws(seed, "test")
    noise: Samples = np.stack([draws.normal(i, (clips.shape[1],)).numpy() for i in range(len(clips))])
    noisy: Samples = (clips + sigma * noise).astype(np.float32)
    return Condition(clips, noisy, np.full(len(clips), sigma))


def at_level(clips: Samples, decibels: float, *, seed: int = 0) -> Condition:
    """White noise at one input SNR."""
    white = at_sigma(np.zeros_like(clips), 1.0, seed=seed).noisy
    noise = noises.at_snr(torch.from_numpy(clips), torch.from_numpy(white), decibels).numpy()
    return Condition(clips, clips + noise, np.sqrt(np.square(noise).mean(1)).astype(np.float64))


def sample_method(net: SampleNet) -> Method:
    """A network of the paper, told the true sigma."""

    def run(noisy: Samples, sigma: float) -> Samples:
        return SampleDenoiser(net, sigma=sigma, everywhere=True)(noisy[:, None], 0, len(noisy))[:, 0]

    return run


def frame_method(net: FrameNet) -> Method:
    """The model on frames, which estimates the noise itself."""

    @torch.no_grad()
    def run(noisy: Samples, sigma: float) -> Samples:
        return np.asarray(net(torch.from_numpy(noisy)[None])[0].numpy())

    return run


def wiener_method(window: int = 512, memory: float = 0.98) -> Method:
    """The decision-directed Wiener filter, told the true sigma."""
    filtered = partial(wiener, window=window, hop=window // 4, memory=memory)

    def run(noisy: Samples, sigma: float) -> Samples:
        return np.asarray(filtered(torch.from_numpy(noisy)[None], sigma=sigma)[0].numpy())

    return run


def best_wiener(clips: Samples, levels: Sequence[float]) -> tuple[int, float]:
    """Window and memory of the Wiener filter with the highest mean SI-SDR on validation clips over all levels."""
    conditions = [at_level(clips, level, seed=1) for level in levels]
    scores = [
        np.mean([run(wiener_method(*choice), c, {"SI-SDR": _si_sdr})["SI-SDR"].mean() for c in conditions])
        for choice in WIENER_GRID
    ]
    return WIENER_GRID[int(np.argmax(scores))]


def haar_method(data: SpeechData, sigma: float = SIGMA) -> tuple[Method, float]:
    """Haar soft thresholding with the threshold (a multiple of sigma) that is best on the validation clips."""
    held = at_sigma(data.val, sigma, seed=1)
    factor = best_threshold(list(held.noisy), list(held.clean), sigma=sigma) / sigma

    def denoise(noisy: Samples, level: float) -> Samples:
        return haar_denoise(noisy, threshold=factor * level)

    return denoise, factor


def _snr(estimate: Samples, clean: Samples) -> float:
    return float(snr(torch.from_numpy(estimate), torch.from_numpy(clean)))


def _si_sdr(estimate: Samples, clean: Samples) -> float:
    return float(si_sdr(torch.from_numpy(estimate), torch.from_numpy(clean)))


MEASURES: Mapping[str, Callable[[Samples, Samples], float]] = {
    "SNR": _snr,
    "SI-SDR": _si_sdr,
    "STOI": peers.stoi,
    "PESQ": peers.pesq,
}


def run(
    method: Method, condition: Condition, measures: Mapping[str, Callable[[Samples, Samples], float]]
) -> dict[str, NDArray[np.float64]]:
    """Every measure of every clip, (m,) each."""
    values: dict[str, list[float]] = {name: [] for name in measures}
    for clean, noisy, sigma in zip(condition.clean, condition.noisy, condition.sigmas, strict=True):
        out = np.ascontiguousarray(method(noisy, float(sigma)), dtype=np.float32)
        for name, measure in measures.items():
            values[name].append(measure(out, clean))
    return {name: np.array(v) for name, v in values.items()}


def summarised(name: str, measure: str, by_seed: Sequence[NDArray[np.float64]]) -> Score:
    """Means and standard errors of `by_seed[seed][clip]`; clips that a measure cannot judge are left out."""
    table = np.stack(by_seed)
    table = table[:, np.isfinite(table).all(0)]
    if table.size == 0:
        return Score(name, measure, float("nan"), float("nan"))
    clips, seeds = table.mean(0), table.mean(1)
    return Score(name, measure, float(clips.mean()), _standard_error(clips), _standard_error(seeds))


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def trained(kind: str, runs: Sequence[Path]) -> list[SampleNet]:
    """The networks of a kind in the folders of `runs`, one a seed; without folders, the one that ships."""
    if not runs:
        return [load_samples(kind)]
    return [load_samples(kind, folder / f"speech-{kind}.safetensors") for folder in runs]


def compare_paper(
    data: SpeechData, *, runs: Sequence[Path] = (), seed: int = 0, tell: Callable[[float], None] | None = None
) -> list[Score]:
    """The paper's table: SNR of noisy, Haar, local and non-local at sigma 0.12, and the non-local gain, clip by clip."""
    condition = at_sigma(data.test, seed=seed)
    haar, _ = haar_method(data)
    only = {"SNR": _snr}
    scores = [summarised("noisy", "SNR", [run(lambda y, _: y, condition, only)["SNR"]])]
    scores.append(summarised("Haar", "SNR", [run(haar, condition, only)["SNR"]]))
    found = {}
    for step, kind in enumerate(("local", "nonlocal")):
        found[kind] = [run(sample_method(net), condition, only)["SNR"] for net in trained(kind, runs)]
        scores.append(summarised(kind, "SNR", found[kind]))
        if tell is not None:
            tell((step + 1) / 2)
    gains = [b - a for a, b in zip(found["local"], found["nonlocal"], strict=True)]
    return [*scores, summarised("nonlocal - local", "SNR", gains)]


def compare_all(
    data: SpeechData,
    *,
    tuned: tuple[int, float] | None = None,
    seed: int = 0,
    tell: Callable[[float], None] | None = None,
) -> list[Score]:
    """All denoisers at the paper's sigma on the test clips, by SNR, SI-SDR, STOI and PESQ.

    `tuned` are window and memory of the Wiener filter; None finds the best on the validation clips.
    """
    condition = at_sigma(data.test, seed=seed)
    methods: dict[str, Method] = {"noisy": lambda y, _: y, "Haar": haar_method(data)[0]}
    methods |= _methods(data, tuned)
    scores = []
    for step, (name, method) in enumerate(methods.items()):
        values = run(method, condition, MEASURES)
        scores += [summarised(name, measure, [v]) for measure, v in values.items()]
        if tell is not None:
            tell((step + 1) / len(methods))
    return scores


def compare_levels(
    data: SpeechData,
    levels: Sequence[float],
    *,
    tuned: tuple[int, float] | None = None,
    seed: int = 0,
    tell: Callable[[float], None] | None = None,
) -> dict[float, list[Score]]:
    """SI-SDR of all denoisers at several input SNRs, white noise; `tuned` as for `compare_all`."""
    methods = _methods(data, tuned)
    found: dict[float, list[Score]] = {}
    for step, level in enumerate(levels):
        condition = at_level(data.test, level, seed=seed)
        only = {"SI-SDR": _si_sdr}
        values = {name: run(method, condition, only)["SI-SDR"] for name, method in methods.items()}
        found[level] = [summarised(name, "SI-SDR", [v]) for name, v in values.items()]
        found[level].append(summarised("frames - Wiener", "SI-SDR", [values["frames"] - values["Wiener"]]))
        if tell is not None:
            tell((step + 1) / len(levels))
    return found


def compare_colours(data: SpeechData, decibels: float = 5.0, *, seed: int = 0) -> dict[str, list[Score]]:
    """SI-SDR of the denoisers that estimate the noise themselves, in pink noise, hiss and hum."""
    makers: dict[str, Callable[[tuple[int, int], torch.Generator], torch.Tensor]] = {
        "pink": partial(noises.coloured, slope=1.0),
        "hiss": partial(noises.coloured, slope=-1.0),
        "hum": noises.hum,
    }
    methods: dict[str, Method] = {"noisy": lambda y, _: y, "frames": frame_method(load_frames())} | _peer_methods()
    found = {}
    for colour, make in makers.items():
        clean = torch.from_numpy(data.test)
        noise = make((clean.shape[0], clean.shape[1]), torch.Generator().manual_seed(seed))
        noisy = (clean + noises.at_snr(clean, noise, decibels)).numpy()
        condition = Condition(data.test, noisy, np.zeros(len(noisy)))
        only = {"SI-SDR": _si_sdr}
        values = {name: run(method, condition, only)["SI-SDR"] for name, method in methods.items()}
        found[colour] = [summarised(name, "SI-SDR", [v]) for name, v in values.items()]
    return found


def _peer_methods() -> dict[str, Method]:
    def told(peer: Callable[[Samples], Samples]) -> Method:
        return lambda noisy, _: peer(noisy)

    return {name: told(peer) for name, peer in peers.installed_peers().items()}


def tune_wiener(data: SpeechData) -> tuple[int, float]:
    """`best_wiener` on about a dozen validation clips."""
    held = data.val[:: max(1, len(data.val) // 12)]
    return best_wiener(held, (-5.0, 5.0, 15.0)) if len(held) else WIENER_GRID[0]


def _methods(data: SpeechData, tuned: tuple[int, float] | None) -> dict[str, Method]:
    """The denoisers of the two larger tables; the Wiener filter is told sigma."""
    window, memory = tuned or tune_wiener(data)
    methods: dict[str, Method] = {
        "Wiener": wiener_method(window, memory),
        "local": sample_method(load_samples("local")),
        "nonlocal": sample_method(load_samples("nonlocal")),
        "frames": frame_method(load_frames()),
    }
    return methods | _peer_methods()
