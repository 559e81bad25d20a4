"""The way of a sound through the denoiser: to 16 kHz, through blocks, back to its own rate, mixed with itself."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.apps.speech.blocks import overlapped, resampled
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

Array = NDArray[Any]
CHUNK = 1 << 15


def stream_denoised(chunks: Iterable[Array], rate: int, model: Denoiser, *, strength: float) -> Iterator[Array]:
    """Denoise chunks (m, c) of a sound at `rate`; yields the same number of rows, without delay, in constant memory.

    Where the rate is above 16 kHz, the band that the model does not hear gets the gain that it gives to the band from
    6 to 8 kHz: `out = up(clean - gain down(y)) + gain y`, which is `y` itself where nothing is removed.
    """
    dry: deque[Array] = deque()

    def noted() -> Iterator[NDArray[np.float32]]:
        for chunk in chunks:
            dry.append(chunk)
            yield np.ascontiguousarray(chunk, dtype=np.float32)

    wide = rate > RATE

    def process(samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        out = model(samples, first, last)
        if wide:
            out[:, :-1] -= out[:, -1:] * samples[first:last]
            return out
        return out[:, :-1]

    wet = resampled(overlapped(resampled(noted(), rate, RATE), process, model.plan), RATE, rate)
    yield from _mixed(wet, dry, wide=wide, strength=strength)


def _mixed(wet: Iterable[Array], dry: deque[Array], *, wide: bool, strength: float) -> Iterator[Array]:
    """Pair what comes back with the rows it came from. Resampling may end a sample early or late: the last one lasts."""
    last: Array | None = None
    for block in wet:
        while len(block) and dry:
            rows = min(len(block), len(dry[0]))
            yield _mix(block[:rows], _take(dry, rows), wide, strength)
            last, block = block[rows - 1 : rows], block[rows:]
    while dry:
        rest = dry.popleft()
        silent = np.zeros((1, rest.shape[1] + wide), np.float32)
        yield _mix(np.repeat(silent if last is None else last, len(rest), axis=0), rest, wide, strength)


def _take(dry: deque[Array], rows: int) -> Array:
    block = dry.popleft()
    if rows < len(block):
        dry.appendleft(block[rows:])
    return block[:rows]


def _mix(wet: Array, dry: Array, wide: bool, strength: float) -> Array:
    clean = wet[:, :-1] + wet[:, -1:] * dry if wide else wet
    mixed: Array = (dry + strength * (clean - dry)).astype(dry.dtype)
    return mixed


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
    """Listens to chunks (m, c) as they pass and tells how loud the white noise under them is, as the model hears it.

    Above 16 kHz it listens after resampling. Memory: one number for each 20 ms.
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
