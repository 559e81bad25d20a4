"""The way of a sound through the denoiser: to 16 kHz, through blocks, back to its own rate, mixed with itself."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech.ambience import AmbienceDenoiser
from glocal.apps.speech.blocks import Overlap, Resampler, Rows
from glocal.apps.speech.floor import segment_levels, sigma_of
from glocal.apps.speech.models import (
    RATE,
    SHIPPED,
    SHIPPED_VOICE,
    Denoiser,
    FrameDenoiser,
    SampleDenoiser,
    VoiceDenoiser,
    load_frames,
    load_samples,
    load_voice,
    network_in,
)
from glocal.apps.speech.options import MODELS, SpeechOptions
from glocal.errors import ArgumentError, InputError
from glocal.files.audio.formats import LOUDEST, MAX_CHANNELS, MIN_RATE

Array = NDArray[Any]
CHUNK = 1 << 15
_LONGEST = 600  # seconds of a block
_RESAMPLING = 3000  # samples of the lower rate that wait in the two resamplers at most; measured: up to 2600


class SpeechStream:
    """Denoise sound while it arrives: `push` takes a block and returns what is ready, `finish` returns the rest.

    The output has as many samples as the input, in the same place and at the same level. The result does not depend on the
    sizes of the pieces. `glocal speech` and `denoise_speech` use this class.

    Parameters
    ----------
    rate : int
        Samples a second.
    options : SpeechOptions or None
        As for `denoise_speech`. The models `local` and `nonlocal` need `sigma`.
    block : float or None
        Seconds that the model computes at once; None is 12 for `voice`, 10 for `frames` and 4 for the paper's models.
        Smaller blocks come out sooner. They take more time, because the surroundings of each block are computed again.
    denoiser : Denoiser or None
        A model that is loaded already, instead of the one that the options name.

    Attributes
    ----------
    latency : float
        The largest delay in seconds: the block, and the 2.3 s (`voice`) after it on which its result depends. The time for
        computing is not included.

    Raises
    ------
    ArgumentError
        A rate, block or dtype that cannot be used, another number of channels than before, or a block after `finish`.
    InputError
        Samples that are not finite.

    Examples
    --------
    >>> stream = SpeechStream(16000, block=0.25)
    >>> noisy = np.zeros(40_000, np.float32)
    >>> parts = [stream.push(noisy[i : i + 800]) for i in range(0, 40_000, 800)] + [stream.finish()]
    >>> len(np.concatenate(parts)), round(stream.latency, 1)
    (40000, 2.6)
    """

    def __init__(
        self,
        rate: int,
        *,
        options: SpeechOptions | None = None,
        block: float | None = None,
        denoiser: Denoiser | None = None,
    ) -> None:
        check_rate("SpeechStream", rate)
        if block is not None and (isinstance(block, bool) or not isinstance(block, Real) or not 0 < block <= _LONGEST):
            message = f"SpeechStream: `block` (={block!r}) must be above 0 and at most {_LONGEST} seconds. Use 10."
            raise ArgumentError(message)
        self.options = options = options or SpeechOptions()
        if denoiser is None:
            denoiser, _ = choose_model(options, rate, None, lambda: _refuse(options.network))
        if options.keep_ambience is not None:
            denoiser = AmbienceDenoiser(denoiser, options.keep_ambience)
        plan = denoiser.plan if block is None else denoiser.plan.with_block(block * RATE)
        self.rate, self.denoiser, self.wide = rate, denoiser, rate > RATE
        self.latency = plan.latency / RATE + (_RESAMPLING / min(rate, RATE) if rate != RATE else 0.0)
        self._down, self._up = Resampler(rate, RATE), Resampler(RATE, rate)
        self._overlap = Overlap(self._process, plan)
        self._dry, self._wet = Rows(), Rows()
        self._last: Array | None = None
        self._first: Array | None = None  # the first block without its samples: channels and dtype
        self._open = True

    def push(self, block: Array) -> Array:
        """Take the next samples, floats (n,) or (n, channels), and return those that are ready, with the same shape and dtype."""
        rows = self._checked(block)
        self._dry.push(rows)
        if len(rows):
            self._work([self._down.push(rows.astype(np.float32, copy=False))])
        return self._mixed(min(self._dry.count, self._wet.count))

    def finish(self) -> Array:
        """Return what is left. The stream takes nothing more."""
        if self._open:
            self._open = False
            self._work(self._down.finish())
            self._wet_push(self._overlap.finish())
            for rows in self._up.finish():
                self._wet.push(rows)
        ready = self._mixed(min(self._dry.count, self._wet.count))
        rest = self._dry.count
        if not rest:
            return ready
        # Resampling may end a sample early: the last one lasts.
        last = (
            self._last if self._last is not None else np.zeros((1, self._dry.parts[0].shape[1] + self.wide), np.float32)
        )
        self._wet.push(np.repeat(last, rest, axis=0))
        return np.concatenate([ready, self._mixed(rest)])

    def _process(self, samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        """Denoise rows of a block at 16 kHz.

        Where the rate is above 16 kHz, the band that the model does not hear gets the gain that it gives to the band from 6 to 8 kHz:
        `out = up(clean - gain down(y)) + gain y`, which is `y` itself where nothing is removed.
        """
        out = self.denoiser(samples, first, last)
        if self.wide:
            out[:, :-1] -= out[:, -1:] * samples[first:last]
            return out
        return out[:, :-1]

    def _work(self, pieces: Iterable[Array]) -> None:
        for rows in pieces:
            self._wet_push(self._overlap.push(rows))

    def _wet_push(self, blocks: Iterable[Array]) -> None:
        for block in blocks:
            self._wet.push(self._up.push(block))

    def _mixed(self, count: int) -> Array:
        first = np.zeros(0, np.float32) if self._first is None else self._first
        if not count:
            return first
        wet, dry = self._wet.take(count), self._dry.take(count)
        self._last = wet[-1:]
        clean = wet[:, :-1] + wet[:, -1:] * dry if self.wide else wet
        mixed: Array = (dry + self.options.strength * (clean - dry)).astype(dry.dtype)
        return mixed.reshape(count, *first.shape[1:])

    def _checked(self, block: Array) -> Array:
        block = np.asarray(block)
        if not self._open:
            message = "SpeechStream.push: the stream is finished. Make a new one."
            raise ArgumentError(message)
        if block.ndim not in (1, 2) or block.dtype not in (np.float32, np.float64) or 0 in block.shape[1:]:
            message = (
                f"SpeechStream.push: `block` has the shape {block.shape} and the dtype {block.dtype}, but must be (n,) or "
                "(n, channels) of float32 or float64. Convert it."
            )
            raise ArgumentError(message)
        if block.ndim == 2 and block.shape[1] > MAX_CHANNELS:
            message = (
                f"SpeechStream.push: `block` has {block.shape[1]:,} channels, more than {MAX_CHANNELS}. "
                "Put samples first and channels last: transpose it with block.T."
            )
            raise ArgumentError(message)
        if self._first is None:
            self._first = block[:0]
        elif block.shape[1:] != self._first.shape[1:]:
            message = (
                f"SpeechStream.push: `block` has the shape {block.shape}, but the first one had (n, {', '.join(map(str, self._first.shape[1:]))}). "
                "Make a new stream."
            )
            raise ArgumentError(message)
        if not (np.abs(block) <= LOUDEST).all():
            message = f"SpeechStream.push: `block` holds values that are NaN, infinite or above {LOUDEST:g}. Replace or scale them first."
            raise InputError(message)
        return block.astype(self._first.dtype, copy=False).reshape(len(block), math.prod(block.shape[1:]))


def check_rate(call: str, rate: Any) -> None:
    """Refuse what is no sampling rate."""
    if not isinstance(rate, (int, np.integer)) or rate < MIN_RATE:
        message = f"{call}: `rate` (={rate!r}) must be a whole number of at least {MIN_RATE}. Give it in hertz."
        raise ArgumentError(message)


def _refuse(model: str) -> float:
    message = f"SpeechStream: the model {model} needs the noise level before it starts. Give `sigma`."
    raise ArgumentError(message)


def choose_model(
    options: SpeechOptions, rate: int, frames: int | None, estimate: Callable[[], float]
) -> tuple[Denoiser, float | None]:
    """Return the model that the options ask for, ready for sound at `rate`; and the noise level it works at, at its own rate.

    `estimate` is called only by the paper's networks, which need the level before they start.
    """
    known = None if options.sigma is None else options.sigma * math.sqrt(RATE / rate)
    model = options.network if options.network in MODELS else network_in(options.network)
    if model == "voice":
        return VoiceDenoiser(load_voice(options.own_file or SHIPPED_VOICE)), None
    if model == "frames":
        return FrameDenoiser(load_frames(options.own_file or SHIPPED), sigma=known), known
    # Above 16 kHz a part of the noise lies beyond the model's band; below, none is added by resampling.
    level = estimate() if options.sigma is None else options.sigma * math.sqrt(min(1.0, RATE / rate))
    everywhere = frames is not None and frames <= rate  # the paper's second
    return SampleDenoiser(load_samples(model, options.own_file), sigma=level, everywhere=everywhere), level


class LevelMeter:
    """Measures how loud the white noise in a sound is, from chunks (m, c) as they pass, at the rate of the model.

    Above 16 kHz the chunks are resampled first. Memory: one number for each 20 ms.
    """

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.stream: Any = None
        self.levels = array("f")  # one piece: many small tensors that stay would keep freed memory from the system

    def hear(self, chunk: Array) -> None:
        """Take the next chunk."""
        heard = np.ascontiguousarray(chunk, dtype=np.float32)
        if self.rate > RATE:
            if self.stream is None:
                import soxr

                self.stream = soxr.ResampleStream(self.rate, RATE, chunk.shape[1], dtype="float32", quality="LQ")
            heard = self.stream.resample_chunk(heard)
        if len(heard) > 1:
            levels = segment_levels(torch.from_numpy(np.ascontiguousarray(heard.T)))
            self.levels.frombytes(levels.numpy().tobytes())

    def sigma(self) -> float:
        """Return the standard deviation of the noise, from the quiet fifth of what was heard; 0 for silence."""
        return sigma_of(torch.tensor(self.levels)) if self.levels else 0.0


def estimate_sigma(chunks: Iterable[Array], rate: int) -> float:
    """Return the standard deviation of white noise in a sound, from its quiet parts, in one pass (see `LevelMeter`)."""
    meter = LevelMeter(rate)
    for chunk in chunks:
        meter.hear(chunk)
    return meter.sigma()
