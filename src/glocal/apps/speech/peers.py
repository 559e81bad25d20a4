"""Denoisers and measures of other projects, used only for comparison. Each may be missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
RATE = 16000
_LONGEST = 1024  # largest delay that is searched, in samples


def noisereduce_stationary(noisy: Samples) -> Samples:
    """noisereduce (spectral gating, stationary), with its defaults, on (n,) at 16 kHz."""
    import noisereduce

    return np.asarray(noisereduce.reduce_noise(y=noisy, sr=RATE, stationary=True), dtype=np.float32)


def rnnoise(noisy: Samples) -> Samples:
    """Run RNNoise on (n,) at 16 kHz: resampled to its 48 kHz and back, with its delay removed.

    It processes the clip twice, and the second result is used, because its state is empty at the start.
    """
    import pyrnnoise
    import soxr

    n = len(noisy)
    gain = 0.9 / max(1e-9, float(np.abs(noisy).max()))
    sound = np.concatenate([noisy, noisy, noisy[:_LONGEST]]) * gain  # and a little more, which pushes the end out
    wide = np.asarray(soxr.resample(sound, RATE, 48000))
    stored = np.round(wide * 32767).clip(-32768, 32767).astype(np.int16)
    frames = [frame for _, frame in pyrnnoise.RNNoise(48000).denoise_chunk(stored[None], partial=True)]
    joined = np.concatenate(frames, axis=1)[0].astype(np.float32) / 32767
    out = np.asarray(soxr.resample(joined, 48000, RATE), dtype=np.float32) / np.float32(gain)
    out = np.pad(out, (0, max(0, 2 * n + _LONGEST - len(out))))
    late = delay(out[n : 2 * n], noisy)
    return np.ascontiguousarray(out[n + late : 2 * n + late])


def delay(late: Samples, early: Samples, most: int = _LONGEST) -> int:
    """By how many samples `late` follows `early`, from the peak of their correlation."""
    n = 2 * len(early)
    cross = np.fft.irfft(np.fft.rfft(late, n) * np.conj(np.fft.rfft(early, n)), n)
    return int(np.argmax(cross[:most]))


def installed_peers() -> dict[str, Callable[[Samples], Samples]]:
    """Return the denoisers that can be run here, by name."""
    peers = {"noisereduce": ("noisereduce", noisereduce_stationary), "RNNoise": ("pyrnnoise", rnnoise)}
    return {name: call for name, (module, call) in peers.items() if importlib.util.find_spec(module)}


def stoi(estimate: Samples, clean: Samples) -> float:
    """Short-time objective intelligibility (pystoi), NaN if it is not installed or the clip is too short."""
    if importlib.util.find_spec("pystoi") is None:
        return float("nan")
    import pystoi

    value = float(pystoi.stoi(clean, estimate, RATE))
    return value if value > 1e-4 else float("nan")  # what pystoi answers when too few frames hold speech


def pesq(estimate: Samples, clean: Samples) -> float:
    """Wide-band PESQ, NaN if the library is not installed or finds no utterance."""
    if importlib.util.find_spec("pesq") is None:
        return float("nan")
    import pesq as library

    try:
        return float(library.pesq(RATE, clean, estimate, "wb"))
    except (library.NoUtterancesError, library.BufferTooShortError):
        return float("nan")
