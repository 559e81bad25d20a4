"""Speech denoising compared with its peers: SI-SDR, PESQ, STOI and time on the user's recordings, at 16 kHz.

Recordings are pairs of clean and noisy files, or clean files to which noises are added. Our models run through
`denoise_speech`; the paper's two networks and the Wiener filter are given the true level of the noise, the others find it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech import noises
from glocal.apps.speech.data import RATE, SUFFIXES, read_mono
from glocal.apps.speech.evaluate import (
    MEASURES,
    Condition,
    Method,
    Samples,
    peer_methods,
    run,
    summarised,
    unchanged,
    wiener_method,
)
from glocal.apps.speech.options import MODELS
from glocal.apps.speech.speech import denoise_speech
from glocal.errors import InputError

_PEAK = 0.99
_FIELDS = {"si_sdr": "SI-SDR", "pesq": "PESQ", "stoi": "STOI"}


@dataclass(frozen=True)
class Row:
    """One method on one set: means over the clips, None where a measure is not installed.

    `si_sdr_error` is the standard error over the clips, and `lowest` the smallest SI-SDR of a clip. `least_gain` is the
    smallest change of PESQ of a clip, compared with the noisy clip: it is negative if a clip became worse. `real_time` is the
    real-time factor on one core: processor seconds, of all threads together, for each second of sound.
    """

    set: str
    method: str
    clips: int
    si_sdr: float | None
    si_sdr_error: float | None
    lowest: float | None
    pesq: float | None
    stoi: float | None
    least_gain: float | None
    real_time: float


def pairs(clean: Path, noisy: Path, *, clips: int | None = None, seed: int = 0) -> Condition:
    """Read the files of `clean` and those of the same names in `noisy`; `clips` draws so many of them."""
    found = []
    for path in _drawn(clean, clips, seed):
        name = path.relative_to(clean)
        other = noisy / name
        if not other.is_file():
            message = (
                f"bench speech: {str(name)!r} of {str(clean)!r} is not in {str(noisy)!r}. Give both the same names."
            )
            raise InputError(message)
        x, y = read_mono(path), read_mono(other)
        if len(x) != len(y):
            message = (
                f"bench speech: {str(name)!r} has {len(x)} clean and {len(y)} noisy samples at 16 kHz. Cut both alike."
            )
            raise InputError(message)
        found.append((x, y))
    return _condition(found)


def mixtures(
    clean: Path, noise: Path | None, *, snr: float | Sequence[float], clips: int | None = None, seed: int = 0
) -> Condition:
    """Add noise to the files of `clean` at `snr` decibels: an excerpt of a file in `noise`, or white noise for None.

    The noises take turns in an order that the seed draws; several levels take turns too. Short noises are repeated. The sum
    is made quieter where it would clip.
    """
    levels = [snr] if isinstance(snr, (int, float)) else list(snr)
    paths = _drawn(clean, clips, seed)
    files = [] if noise is None else _drawn(noise, None, seed)
    found = []
    for i, path in enumerate(paths):
        draw = np.random.default_rng((seed, i))
        x = read_mono(path)
        e = draw.standard_normal(len(x)) if noise is None else _excerpt(files[i % len(files)], len(x), draw)
        clip, sound = torch.from_numpy(x)[None], torch.from_numpy(e.astype(np.float32))[None]
        y = (clip + noises.at_snr(clip, sound, levels[i % len(levels)]))[0].numpy()
        gain = np.float32(min(1.0, _PEAK / max(1e-9, float(np.abs(y).max()))))
        found.append((x * gain, y * gain))
    return _condition(found)


def methods() -> dict[str, Method]:
    """Return what is compared: the noisy clip itself, our models, the Wiener filter, and the peers that are installed."""

    def ours(model: str) -> Method:
        given = model in ("local", "nonlocal")

        def denoised(noisy: Samples, sigma: float) -> Samples:
            found: Samples = denoise_speech(noisy, RATE, model=model, sigma=sigma if given else None).audio
            return found

        return denoised

    own = {model: ours(model) for model in MODELS if model != "auto"}
    return {"noisy": unchanged, **own, "Wiener": wiener_method(), **peer_methods()}


def measure(
    conditions: Mapping[str, Condition],
    compared: Mapping[str, Method],
    *,
    progress: Callable[[float], None] | None = None,
) -> list[Row]:
    """Run every method on every set and return a row for each."""
    rows = []
    for number, (name, condition) in enumerate(conditions.items()):
        noisy = [MEASURES["PESQ"](y, x) for x, y in zip(condition.clean, condition.noisy, strict=True)]
        for place, (label, method) in enumerate(compared.items()):
            rows.append(_row(name, label, method, condition, np.array(noisy)))
            if progress is not None:
                progress((number + (place + 1) / len(compared)) / len(conditions))
    return rows


def text(rows: Sequence[Row]) -> str:
    """Return a table for a terminal."""
    width, sets = max(len(row.method) for row in rows), max(len(row.set) for row in rows)
    lines = [f"{'':{sets}}  {'':{width}}  SI-SDR  lowest  PESQ   STOI  least gain  real time"]
    for row in rows:
        cells = [
            f"{'-' if value is None else format(value, form):>{size}}"
            for value, form, size in (
                (row.si_sdr, ".2f", 6),
                (row.lowest, ".2f", 6),
                (row.pesq, ".2f", 4),
                (row.stoi, ".3f", 5),
                (row.least_gain, "+.2f", 10),
            )
        ]
        lines.append(f"{row.set:{sets}}  {row.method:{width}}  {'  '.join(cells)}  {row.real_time:9.3f}")
    return "\n".join(lines)


def _row(name: str, label: str, method: Method, condition: Condition, noisy_pesq: NDArray[np.float64]) -> Row:
    method(np.ascontiguousarray(condition.noisy[0]), float(condition.sigmas[0]))  # compiles and loads
    spent = 0.0

    def timed(noisy: Samples, sigma: float) -> Samples:
        nonlocal spent
        began = time.process_time()
        out = method(noisy, sigma)
        spent += time.process_time() - began
        return out

    values = run(timed, condition, {measure: MEASURES[measure] for measure in _FIELDS.values()})
    scores = {field: summarised(label, measure, [values[measure]]) for field, measure in _FIELDS.items()}
    means = {field: None if math.isnan(score.mean) else score.mean for field, score in scores.items()}
    known = means["si_sdr"] is not None
    error, lowest = (scores["si_sdr"].error, float(np.nanmin(values["SI-SDR"]))) if known else (None, None)
    gains = np.asarray(values["PESQ"]) - noisy_pesq
    least = None if np.isnan(gains).all() else float(np.nanmin(gains))
    seconds = sum(len(clip) for clip in condition.noisy) / RATE
    clips, factor = len(condition.sigmas), spent / seconds
    return Row(name, label, clips, si_sdr_error=error, lowest=lowest, least_gain=least, real_time=factor, **means)


def _condition(found: Sequence[tuple[Samples, Samples]]) -> Condition:
    sigmas = [float(np.sqrt(np.square(y - x).mean(dtype=np.float64))) for x, y in found]
    return Condition([x for x, _ in found], [y for _, y in found], np.array(sigmas))


def _drawn(folder: Path, clips: int | None, seed: int) -> list[Path]:
    """Return the sound files of a folder in an order that the seed draws, at most `clips` of them."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        message = f"bench speech: the folder {str(folder)!r} holds no sound file. Supported: {', '.join(SUFFIXES)}."
        raise InputError(message)
    return [paths[i] for i in np.random.default_rng(seed).permutation(len(paths))[:clips]]


def _excerpt(path: Path, length: int, draw: np.random.Generator) -> Samples:
    sound = read_mono(path)
    if not np.abs(sound).max(initial=0) > 0:
        message = f"bench speech: the noise {str(path)!r} is silent. Remove it."
        raise InputError(message)
    sound = np.resize(np.roll(sound, -int(draw.integers(len(sound)))), max(length, len(sound)))
    return sound[:length]
