"""Denoise an audio file into an audio file in constant memory: same format, rate, channels and length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.apps.speech.blocks import Rows
from glocal.apps.speech.options import SpeechOptions
from glocal.apps.speech.spectrogram import Spectrogram, before_and_after, check_plotting
from glocal.apps.speech.stream import CHUNK, LevelMeter, SpeechStream, choose_model, estimate_sigma
from glocal.errors import ArgumentError
from glocal.files.audio.audio_file import open_audio
from glocal.files.audio.output import create_audio
from glocal.files.images.picture import Picture
from glocal.files.images.write import write_image
from glocal.files.provenance import build_recipe, check_unchanged, file_state

_FULL = 0.9995  # what counts as clipped


@dataclass(frozen=True)
class SoundFacts:
    """What was done to a file: the noise level (its standard deviation, full scale 1) and what is worth knowing."""

    seconds: float
    rate: int
    channels: int
    model: str
    sigma: float
    estimated: bool
    notes: tuple[str, ...] = ()
    recipe: dict[str, Any] = field(default_factory=dict)


def denoise_file(
    source: str | Path,
    target: str | Path,
    options: SpeechOptions,
    *,
    residual: str | Path | None = None,
    plot: str | Path | None = None,
    subtype: str | None = None,
    overwrite: bool = False,
    progress: Callable[[float], object] | None = None,
) -> SoundFacts:
    """Denoise an audio file into another, and write the removed noise to a third if `residual` is given.

    `plot` names a picture with the spectrograms before and after. `-` is the standard input and output. Outputs appear complete or
    not at all. Memory does not grow with the length. Raises InputError, OutputError, ArgumentError as `open_audio` and
    `create_audio` do, and MissingDependencyError for a plot without matplotlib.
    """
    if str(source) == "-" and options.network in ("local", "nonlocal") and options.sigma is None:
        message = f"speech (-): the model {options.network} needs the noise level before it starts. Give --sigma."
        raise ArgumentError(message)
    if plot is not None:
        check_plotting()
    before = file_state(source)
    recipe = speech_recipe(source, options, subtype=subtype)
    with ExitStack() as stack:
        sound = stack.enter_context(open_audio(source))
        info = sound.info
        model, _ = choose_model(options, info.rate, info.frames, lambda: _first_pass(source))
        out = stack.enter_context(create_audio(target, like=info, subtype=subtype, recipe=recipe, overwrite=overwrite))
        rest = stack.enter_context(create_audio(residual, like=info, overwrite=overwrite)) if residual else None
        ears = Ears(sound.blocks(CHUNK), info.rate, info.frames, progress)

        stream, waiting = SpeechStream(info.rate, options=options, denoiser=model), Rows()

        heard, made = Spectrogram(info.rate), Spectrogram(info.rate)

        def write(clean: NDArray[Any]) -> None:
            if len(clean):
                out.write(clean)
                if plot is not None:
                    made.push(clean)
                if rest is not None:
                    rest.write(waiting.take(len(clean)) - clean)

        for chunk in ears:
            if rest is not None:
                waiting.push(chunk)
            if plot is not None:
                heard.push(chunk)
            write(stream.push(chunk))
        write(stream.finish())
        if plot is not None:
            write_image(plot, Picture(before_and_after(heard, made)), overwrite=overwrite)
        check_unchanged(source, before)  # in here: an error leaves no output
    known = options.sigma is not None
    sigma = float(options.sigma) if options.sigma is not None else ears.meter.sigma()
    return SoundFacts(
        ears.heard / info.rate,
        info.rate,
        info.channels,
        options.network,
        sigma,
        not known,
        (*info.notes, *out.notes, *ears.notes()),
        recipe,
    )


def speech_recipe(source: str | Path, options: SpeechOptions, *, subtype: str | None = None) -> dict[str, Any]:
    """Return the recipe of a recording. A model of the user's own is an input."""
    sources = [] if str(source) == "-" else [str(source)]
    own = [options.own_file] if options.own_file is not None else []
    arguments = {"positional": sources, "subtype": subtype}
    return build_recipe("speech", options, inputs=[*sources, *own], arguments=arguments)


def _first_pass(source: str | Path) -> float:
    with open_audio(source) as sound:
        return estimate_sigma(sound.blocks(CHUNK), sound.info.rate)


class Ears:
    """A stream of chunks that counts and measures them."""

    def __init__(
        self, chunks: Iterable[NDArray[Any]], rate: int, frames: int | None, progress: Callable[[float], object] | None
    ) -> None:
        self.chunks, self.rate, self.frames, self.progress = chunks, rate, frames, progress
        self.heard = self.values = self.clipped = 0
        self.loudest = 0.0
        self.meter = LevelMeter(rate)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for chunk in self.chunks:
            self.heard += len(chunk)
            self.values += chunk.size
            size = np.abs(chunk)
            self.clipped += int((size >= _FULL).sum())
            self.loudest = max(self.loudest, float(size.max()))
            self.meter.hear(chunk)
            yield chunk
            if self.progress is not None and self.frames:
                self.progress(self.heard / self.frames)

    def notes(self) -> tuple[str, ...]:
        """Return the notes for the user about the sound."""
        notes = []
        if self.loudest == 0:
            notes.append("the sound is silent; nothing was done to it")
        share = self.clipped / max(1, self.values)
        if share > 1e-3:
            notes.append(f"{share:.1%} of the samples are clipped, which denoising does not repair")
        if self.rate < 16000:
            notes.append(f"{self.rate} Hz: a narrow band, for which the models were trained less")
        return tuple(notes)
