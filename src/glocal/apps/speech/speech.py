"""`glocal.denoise_speech`: arrays in, arrays out.

Deviations from the paper
-------------------------
- Sounds longer than the paper's second: its graph looks half a second back and ahead, in blocks that overlap.
- Any noise level: the input is scaled so that its noise has the sigma of the training, and the output back.
- One graph, made from the mean of the channels, serves all channels.
- The default model, "frames", is not in the paper: the same layers on the frames of a spectrogram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech.options import Model, SpeechOptions
from glocal.apps.speech.stream import CHUNK, choose_model, estimate_sigma, stream_denoised
from glocal.errors import ArgumentError, InputError

_LOWEST_RATE = 1000


def denoise_speech(
    samples: Any,
    rate: int,
    *,
    model: Model = "frames",
    sigma: float | None = None,
    strength: float = 1.0,
    weights: str | Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> Any:
    """Remove steady noise from speech.

    Parameters
    ----------
    samples : array or tensor, (n,) or (n, channels)
        Floats with full scale 1, or integers with their own full scale. One gain or graph serves all channels.
    rate : int
        Samples a second; the models work at 16 kHz and other rates are converted there and back.
    model : "frames", "nonlocal" or "local"
        "frames" is the one to use. The other two are the paper's small networks, made for white noise.
    sigma : float or None
        Standard deviation of white noise in units of full scale; None estimates it.
    strength : float
        0 to 1: how much of what was removed stays removed.
    weights : path or None
        A file of `glocal train speech` for this model, instead of the weights that ship.
    progress : callable or None
        Called with the fraction done.

    Returns
    -------
    The same kind, type and shape; same level, no delay. Time: linear in n, see docs/speech.md. Memory: linear in n
    for the arrays; the work itself takes a constant amount.

    Raises
    ------
    InputError, ArgumentError
        For samples that are empty or not finite, or arguments out of range.

    >>> denoise_speech(np.zeros(1000, dtype=np.int16), 8000).dtype
    dtype('int16')
    """
    options = SpeechOptions(model, sigma, strength, None if weights is None else str(weights))
    array = samples.detach().cpu().numpy() if isinstance(samples, torch.Tensor) else np.asarray(samples)
    sound, scale = _as_sound(array, rate)
    if strength == 0:
        return samples.clone() if isinstance(samples, torch.Tensor) else array.copy()

    def chunks() -> Iterator[NDArray[Any]]:
        for start in range(0, len(sound), CHUNK):
            yield sound[start : start + CHUNK]

    denoiser, _ = choose_model(options, rate, len(sound), lambda: estimate_sigma(chunks(), rate))
    parts, done = [], 0
    for part in stream_denoised(chunks(), rate, denoiser, strength=strength):
        parts.append(part)
        done += len(part)
        if progress is not None:
            progress(done / len(sound))
    out = np.concatenate(parts).reshape(array.shape)
    if scale is not None:
        limits = np.iinfo(array.dtype)
        out = np.clip(np.rint(out.astype(np.float64) * scale), limits.min, limits.max)
    out = out.astype(array.dtype)
    return torch.from_numpy(out).to(samples.device) if isinstance(samples, torch.Tensor) else out


def _as_sound(array: NDArray[Any], rate: int) -> tuple[NDArray[Any], float | None]:
    """Samples as (n, c) floats, and the full scale of integers."""
    if not isinstance(rate, (int, np.integer)) or rate < _LOWEST_RATE:
        message = (
            f"denoise_speech: `rate` (={rate!r}) must be a whole number of at least {_LOWEST_RATE}. Give it in hertz."
        )
        raise ArgumentError(message)
    if array.ndim not in (1, 2):
        message = (
            f"denoise_speech: `samples` has the shape {array.shape}, but must be (n,) or (n, channels). Reshape it."
        )
        raise ArgumentError(message)
    if array.size == 0:
        message = f"denoise_speech: `samples` (shape {array.shape}) is empty. Give at least one sample and one channel."
        raise InputError(message)
    if array.ndim == 2 and array.shape[1] > 64:
        message = (
            f"denoise_speech: `samples` has {array.shape[1]} channels, more than 64. "
            "Put samples first and channels last: (n, channels)."
        )
        raise ArgumentError(message)
    if array.dtype.kind not in "iuf" or array.dtype.kind == "u":
        message = f"denoise_speech: `samples` has the type {array.dtype}. Give signed integers or floats."
        raise ArgumentError(message)
    sound = array.reshape(len(array), -1)
    if array.dtype.kind == "i":
        scale = float(np.iinfo(array.dtype).max) + 1
        wide: NDArray[Any] = sound.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
        return wide / wide.dtype.type(scale), scale
    if not np.isfinite(sound).all():
        bad = int((~np.isfinite(sound)).sum())
        message = f"denoise_speech: `samples` holds {bad} value(s) that are NaN or infinite. Replace them first."
        raise InputError(message)
    return (sound.astype(np.float32) if array.dtype.itemsize < 4 else sound), None
