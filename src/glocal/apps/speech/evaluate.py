"""Evaluate every denoiser on the same noisy clips: means with standard errors over clips and over trainings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech import noises, peers
from glocal.apps.speech.data import SpeechData
from glocal.apps.speech.frames import FrameNet
from glocal.apps.speech.metrics import si_sdr, snr
from glocal.apps.speech.models import SampleDenoiser, load_frames, load_samples
from glocal.apps.speech.networks import MIDDLES, SIGMA, SampleNet
from glocal.apps.speech.wiener import wiener
from glocal.training.draws import Draws
from glocal.training.haar import HaarChoice, haar_denoise, tune
from glocal.training.scores import Score, summarize, with_gain

Samples = NDArray[np.float32]
Method = Callable[[Samples, float], Samples]  # (noisy clip, true sigma) -> denoised clip
_HAAR_LEVELS = 5
WIENER_GRID = tuple((window, memory) for window in (512, 640, 800) for memory in (0.9, 0.94, 0.97, 0.98, 0.985))


@dataclass(frozen=True)
class Measured(Score):
    """The score of one method by one measure."""

    method: str = ""
    measure: str = ""


@dataclass(frozen=True)
class Condition:
    """Clean and noisy clips, (m, n) or m of different lengths, and the true sigma of each (m,)."""

    clean: Samples | Sequence[Samples]
    noisy: Samples | Sequence[Samples]
    sigmas: NDArray[np.float64]


def at_sigma(clips: Samples, sigma: float = SIGMA, *, seed: int = 0) -> Condition:
    """Return the paper's condition: noise of one sigma on clips of peak 1."""
    draws = Draws(seed, "test")
    noise: Samples = np.stack([draws.normal(i, (clips.shape[1],)).numpy() for i in range(len(clips))])
    noisy: Samples = (clips + sigma * noise).astype(np.float32)
    return Condition(clips, noisy, np.full(len(clips), sigma))


def at_level(clips: Samples, decibels: float, *, seed: int = 0) -> Condition:
    """Return clips with white noise at one input SNR."""
    white = at_sigma(np.zeros_like(clips), 1.0, seed=seed).noisy
    noise = noises.at_snr(torch.from_numpy(clips), torch.from_numpy(white), decibels).numpy()
    return Condition(clips, clips + noise, np.sqrt(np.square(noise).mean(1)).astype(np.float64))


def sample_method(net: SampleNet) -> Method:
    """Return a network of the paper, which gets the true sigma."""

    def run(noisy: Samples, sigma: float) -> Samples:
        return SampleDenoiser(net, sigma=sigma, everywhere=True)(noisy[:, None], 0, len(noisy))[:, 0]

    return run


def frame_method(net: FrameNet) -> Method:
    """Return the model on frames, which estimates the noise itself."""

    @torch.no_grad()
    def run(noisy: Samples, sigma: float) -> Samples:
        return np.asarray(net(torch.from_numpy(noisy)[None])[0].numpy())

    return run


def wiener_method(window: int = 512, memory: float = 0.98) -> Method:
    """Return the decision-directed Wiener filter, which gets the true sigma."""
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


def tune_haar(data: SpeechData, sigma: float = SIGMA) -> HaarChoice:
    """Choose the threshold of Haar soft thresholding with the best mean SNR on the validation clips.

    Five levels: depths from 3 to 13 score within 0.2 dB of them on speech.
    """
    draws = Draws(0, "validation")
    noisy = [x + np.float32(sigma) * draws.normal(i, (len(x),)).numpy() for i, x in enumerate(data.val)]
    return tune(
        list(data.val), noisy, sigma=sigma, factors=[0.05 * step for step in range(1, 61)], levels=[_HAAR_LEVELS]
    )


def haar_method(data: SpeechData, sigma: float = SIGMA) -> Method:
    """Haar soft thresholding; the threshold is a multiple of sigma that was chosen on the validation clips."""
    factor = tune_haar(data, sigma).threshold / sigma
    return lambda noisy, level: haar_denoise(noisy, threshold=factor * level, levels=_HAAR_LEVELS)


def unchanged(noisy: Samples, sigma: float) -> Samples:
    """Return the noisy clip itself: the row that every other one is compared with."""
    return noisy


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


def summarised(name: str, measure: str, by_seed: Sequence[NDArray[np.float64]]) -> Measured:
    """Means and standard errors of `by_seed[seed][clip]`; clips that a measure cannot judge are left out."""
    return Measured(**asdict(summarize(by_seed)), method=name, measure=measure)


def trained(folder: Path | None) -> dict[str, SampleNet]:
    """Return the networks of the paper that `glocal train speech` left in a folder; those that ship for None."""
    return {middle: load_samples(middle, folder and folder / f"speech-{middle}.safetensors") for middle in MIDDLES}


def score_all(
    data: SpeechData, nets: Mapping[str, SampleNet], haar: Method, *, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Return the SNR of every test clip at sigma 0.12 for each method: "noisy", "haar" and the networks."""
    methods = {"noisy": unchanged, "haar": haar} | {middle: sample_method(net) for middle, net in nets.items()}
    condition = at_sigma(data.test, seed=seed)
    return {name: run(method, condition, {"SNR": _snr})["SNR"] for name, method in methods.items()}


def compare_paper(
    data: SpeechData, *, runs: Sequence[Path] = (), seed: int = 0, tell: Callable[[float], None] | None = None
) -> list[Measured]:
    """Return the paper's table B.3: SNR of noisy, Haar, local and non-local, and the gain of non-local, clip by clip."""
    haar = haar_method(data)
    table: dict[str, list[NDArray[np.float64]]] = {}
    folders: Sequence[Path | None] = runs or [None]
    for step, folder in enumerate(folders):
        for method, items in score_all(data, trained(folder), haar, seed=seed).items():
            table.setdefault(method, []).append(items)
        if tell is not None:
            tell((step + 1) / len(folders))
    scores = with_gain(table | {method: table[method][:1] for method in ("noisy", "haar")})
    names = {"haar": "Haar", "gain": "nonlocal - local"}
    return [Measured(**asdict(s), method=names.get(name, name), measure="SNR") for name, s in scores.items()]


def compare_all(
    data: SpeechData,
    *,
    tuned: tuple[int, float] | None = None,
    seed: int = 0,
    tell: Callable[[float], None] | None = None,
) -> list[Measured]:
    """All denoisers at the paper's sigma on the test clips, by SNR, SI-SDR, STOI and PESQ.

    `tuned` are window and memory of the Wiener filter; None finds the best on the validation clips.
    """
    condition = at_sigma(data.test, seed=seed)
    methods: dict[str, Method] = {"noisy": unchanged, "Haar": haar_method(data)}
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
) -> dict[float, list[Measured]]:
    """SI-SDR of all denoisers at several input SNRs, white noise; `tuned` as for `compare_all`."""
    methods = _methods(data, tuned)
    found: dict[float, list[Measured]] = {}
    for step, level in enumerate(levels):
        condition = at_level(data.test, level, seed=seed)
        only = {"SI-SDR": _si_sdr}
        values = {name: run(method, condition, only)["SI-SDR"] for name, method in methods.items()}
        found[level] = [summarised(name, "SI-SDR", [v]) for name, v in values.items()]
        found[level].append(summarised("frames - Wiener", "SI-SDR", [values["frames"] - values["Wiener"]]))
        if tell is not None:
            tell((step + 1) / len(levels))
    return found


def compare_colours(data: SpeechData, decibels: float = 5.0, *, seed: int = 0) -> dict[str, list[Measured]]:
    """SI-SDR of the denoisers that estimate the noise themselves, in pink noise, hiss and hum."""
    makers: dict[str, Callable[[tuple[int, int], torch.Generator], torch.Tensor]] = {
        "pink": partial(noises.coloured, slope=1.0),
        "hiss": partial(noises.coloured, slope=-1.0),
        "hum": noises.hum,
    }
    methods: dict[str, Method] = {"noisy": unchanged, "frames": frame_method(load_frames())} | peer_methods()
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


def peer_methods() -> dict[str, Method]:
    """Return the denoisers of others that are installed; none of them is given sigma."""

    def blind(peer: Callable[[Samples], Samples]) -> Method:
        return lambda noisy, _: peer(noisy)

    return {name: blind(peer) for name, peer in peers.installed_peers().items()}


def tune_wiener(data: SpeechData) -> tuple[int, float]:
    """`best_wiener` on about a dozen validation clips."""
    held = data.val[:: max(1, len(data.val) // 12)]
    return best_wiener(held, (-5.0, 5.0, 15.0)) if len(held) else WIENER_GRID[0]


def _methods(data: SpeechData, tuned: tuple[int, float] | None) -> dict[str, Method]:
    """Return the denoisers of the two larger tables. The Wiener filter gets the true sigma."""
    window, memory = tuned or tune_wiener(data)
    methods: dict[str, Method] = {
        "Wiener": wiener_method(window, memory),
        "local": sample_method(load_samples("local")),
        "nonlocal": sample_method(load_samples("nonlocal")),
        "frames": frame_method(load_frames()),
    }
    return methods | peer_methods()
