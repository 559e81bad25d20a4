"""`glocal.denoise_speech`: arrays in, arrays out.

Deviations from the paper
-------------------------
- Sounds longer than the paper's one second: the graph reaches half a second back and ahead, in blocks that overlap.
- Any noise level: the input is scaled so that its noise has the sigma of the training, and the output is scaled back.
- One graph, built on the mean of the channels, is used for all channels.
- The default models, "voice" and "frames", are not in the paper: the same layers on the lattice of time and frequency, and on
  the frames of a spectrogram.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech.options import SpeechOptions
from glocal.apps.speech.sound_files import Ears, speech_recipe
from glocal.apps.speech.stream import CHUNK, SpeechStream, check_rate, choose_model, estimate_sigma
from glocal.errors import ArgumentError, InputError
from glocal.files.audio.audio_file import open_audio
from glocal.files.audio.formats import LOUDEST, AudioInfo
from glocal.files.provenance import check_unchanged, file_state
from glocal.files.results import AudioLike, AudioResult
from glocal.machine import computing_on
from glocal.options import takes_options
from glocal.progress import Callback, Meter
from glocal.progress_bar import shown


@dataclass(frozen=True, eq=False, repr=False)
class SpeechResult(AudioResult, np.lib.mixins.NDArrayOperatorsMixin):
    """Denoised speech. See `Result` for the fields of all results.

    In version 0.1 the call returned the samples. For one release the result can still be used like them.

    Attributes
    ----------
    sigma, estimated
        The noise level, full scale 1, and whether it was estimated.
    """

    sigma: float = field(kw_only=True)
    estimated: bool = field(kw_only=True)
    model: str = field(kw_only=True)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.audio, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        plain = [one.audio if isinstance(one, SpeechResult) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            message = f"'SpeechResult' object has no attribute {name!r}"
            raise AttributeError(message)
        _warn_of_samples()
        return getattr(self.audio, name)

    def __getitem__(self, index: Any) -> Any:
        _warn_of_samples()
        return self.audio[index]

    def __len__(self) -> int:
        return len(self.audio)


def _warn_of_samples() -> None:
    warnings.warn("denoise_speech: use the field `audio` of its result.", DeprecationWarning, stacklevel=3)


@takes_options(SpeechOptions)
def denoise_speech(
    samples: AudioLike,
    rate: int | None = None,
    *,
    options: SpeechOptions,
    mask: NDArray[Any] | torch.Tensor | Sequence[float] | None = None,
    progress: Callback | bool | None = None,
) -> SpeechResult:
    """Remove noise from speech.

    Parameters
    ----------
    samples : array or tensor, (n,) or (n, channels); or a path
        Floats with full scale 1, or integers with their own full scale. One gain or graph is used for all channels.
    rate : int
        Samples per second. The models work at 16 kHz; other rates are converted there and back. A file has its own rate.
    {options}
    options : SpeechOptions
        All options at once. Single options change it.
    mask : array of any length, or None
        Where to denoise, over time: 1 there, 0 where the sound does not change. It is scaled to the length of the sound.
    progress : callable(Progress), True or None
        Called during the work; True draws a bar, in a terminal or a notebook.

    Returns
    -------
    SpeechResult
        Its `audio` has the type, shape and level of the samples, without delay. Time: linear in n, see docs/speech.md.
        Memory: linear in n for the arrays, constant for the computation.

    Raises
    ------
    InputError, ArgumentError
        If samples are empty or not finite, or arguments are out of range.

    Examples
    --------
    >>> denoise_speech(np.zeros(1000, dtype=np.int16), 8000).audio.dtype
    dtype('int16')
    """
    began = time.perf_counter()
    array, rate, info, recipe = _read(samples, rate, options)
    sound, scale = _as_sound(array, rate)

    def chunks() -> Iterator[NDArray[Any]]:
        for start in range(0, len(sound), CHUNK):
            yield sound[start : start + CHUNK]

    with (
        computing_on("denoise_speech", options.device),
        shown(progress, "denoise_speech") as tell,
        Meter(tell, expected=seconds_for(len(sound) / rate)) as meter,
    ):
        ears = Ears(chunks(), rate, len(sound), meter if meter.callback else None)
        if options.strength == 0:
            for _ in ears:
                pass
            out = array.copy()
        else:
            denoiser, _ = choose_model(options, rate, len(sound), lambda: estimate_sigma(chunks(), rate))
            stream = SpeechStream(rate, options=options, denoiser=denoiser)
            clean = np.concatenate([*(stream.push(chunk) for chunk in ears), stream.finish()])
            out = _as_before(_mixed(sound, clean, mask), array, scale)
    return SpeechResult(
        seconds=time.perf_counter() - began,
        recipe=recipe,
        notes=(
            *ears.notes(),
            *(() if options.device == "cpu" else ("speech is computed on the CPU; the GPU was not used",)),
        ),
        audio=torch.from_numpy(out).to(samples.device, samples.dtype) if isinstance(samples, torch.Tensor) else out,
        rate=rate,
        info=info,
        sigma=float(options.sigma) if options.sigma is not None else ears.meter.sigma(),
        estimated=options.sigma is None,
        model=options.network,
    )


def seconds_for(seconds: float) -> float:
    """Estimate the seconds of denoising for this many seconds of sound: a tenth of them, and the start."""
    return 3 + 0.1 * seconds


def _values(samples: torch.Tensor) -> NDArray[Any]:
    """Return the values of a tensor; NumPy has no bfloat16."""
    array: NDArray[Any] = (samples.float() if samples.dtype == torch.bfloat16 else samples).detach().cpu().numpy()
    return array


def _read(
    samples: AudioLike, rate: int | None, options: SpeechOptions
) -> tuple[NDArray[Any], int, AudioInfo | None, dict[str, Any]]:
    """Return the samples, their rate, the properties of their file, and the recipe."""
    if not isinstance(samples, (str, os.PathLike)):
        array = _values(samples) if isinstance(samples, torch.Tensor) else np.asarray(samples)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        recipe = speech_recipe("-", options)
        recipe["arguments"] |= {"samples_sha256": digest, "rate": rate}
        return array, rate, None, recipe  # type: ignore[return-value]  # `_as_sound` checks the rate
    path = os.fspath(samples)
    before = file_state(path)
    recipe = speech_recipe(path, options)
    with open_audio(path) as sound:
        array, info = sound.read(), sound.info
    check_unchanged(path, before)
    if rate is not None and rate != info.rate:
        message = f"denoise_speech: `rate` (={rate!r}) is not that of the file ({info.rate}). Leave it out."
        raise ArgumentError(message)
    return array[:, 0] if array.shape[1] == 1 else array, info.rate, info, recipe


def _mixed(dry: NDArray[Any], clean: NDArray[Any], mask: Any) -> NDArray[Any]:
    """Return the clean sound where the mask is 1, the other where it is 0."""
    if mask is None:
        return clean
    try:
        given = np.asarray(mask.detach().cpu() if isinstance(mask, torch.Tensor) else mask, dtype=np.float64)
        usable = given.ndim == 1 and given.size > 0 and bool(((given >= 0) & (given <= 1)).all())
    except (TypeError, ValueError):
        usable = False
    if not usable:
        message = "denoise_speech: `mask` must be a list of numbers from 0 to 1. Give one for each part of the sound."
        raise ArgumentError(message)
    places = np.linspace(0, given.size - 1, len(dry))
    share = np.interp(places, np.arange(given.size), given)[:, None]
    mixed: NDArray[Any] = np.where(share == 0, dry, dry + share * (clean - dry))
    return mixed


def _as_before(sound: NDArray[Any], array: NDArray[Any], scale: float | None) -> NDArray[Any]:
    """Floats (n, c) in the type and shape that the samples had."""
    out = sound.reshape(array.shape)
    if scale is not None:
        limits = np.iinfo(array.dtype)
        out = np.clip(np.rint(out.astype(np.float64) * scale), limits.min, limits.max)
    return out.astype(array.dtype)


def _as_sound(array: NDArray[Any], rate: int | None) -> tuple[NDArray[Any], float | None]:
    """Return samples as (n, c) floats, and the full scale of integers."""
    check_rate("denoise_speech", rate)
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
    bad = int((~(np.abs(sound) <= LOUDEST)).sum())
    if bad:
        message = f"denoise_speech: `samples` has {bad} value(s) that are NaN, infinite or above {LOUDEST:g}. Replace or scale them first."
        raise InputError(message)
    return (sound.astype(np.float32) if array.dtype.itemsize < 4 else sound), None
