"""The job behind `glocal speech`: remove noise from recordings, in constant memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from glocal.apps.speech.options import AudioOutput, SpeechFiles, SpeechOptions
from glocal.files.audio.formats import SUFFIXES
from glocal.jobs.job import Cost, Header, Inputs, Job, said
from glocal.progress import Callback, Meter


@dataclass(frozen=True)
class SpeechJob(Job):
    """Remove noise from speech, at any length, rate and number of channels.

    WAV, FLAC, OGG, Opus and MP3 keep their format, length and level. `-o -` writes WAV to the standard output.
    """

    name: ClassVar[str] = "speech"
    call: ClassVar[str] = "glocal.apps.speech.speech:denoise_speech"
    arguments: ClassVar[str] = "Recordings, folders or patterns; - is the standard input."
    Options: ClassVar[Any] = SpeechOptions
    Files: ClassVar[Any] = SpeechFiles
    Output: ClassVar[Any] = AudioOutput
    suffixes: ClassVar[Any] = tuple(SUFFIXES)

    def header(self, inputs: Inputs) -> Header:
        """Read the header of the sound file; nothing is known of the standard input."""
        if str(inputs.source) == "-":
            return Header()
        from glocal.files.audio.audio_file import open_audio

        with open_audio(inputs.source) as sound:
            return Header(sound=sound.info)

    def check(self, count: int) -> None:
        """Refuse as other jobs do, and a plot without matplotlib."""
        super().check(count)
        if self.files.plot is not None:
            from glocal.apps.speech.spectrogram import check_plotting

            check_plotting()

    def cost(self, header: Header) -> Cost:
        """Estimate the memory of the libraries and one block, and a tenth of the recording's time plus the start."""
        info = header.sound
        if info is None:
            return Cost("standard input", memory=self._memory(math.inf, 2), seconds=None)
        seconds = info.seconds or 0.0
        size = f"{seconds:.1f} s, {info.rate} Hz, {info.channels} channel{'s' * (info.channels > 1)}"
        memory = self._memory(info.seconds or math.inf, info.channels, info.rate)
        return Cost(size, memory=memory, seconds=3 + 0.1 * seconds)

    def _memory(self, seconds: float, channels: int, rate: int = 48000) -> int:
        light = self.options.network in ("frames", "nonlocal", "local")  # else voice, or a file of either
        samples = max(0, rate - 48000) * 26 / 2**20  # voice needs more than this for its layers, at another time
        longest, common, each = (14, 5, 4 + samples) if light else (17, 18, 13)  # MiB a second of a block
        return int(440 + min(seconds, longest) * (common + each * channels)) << 20

    def run_file(self, inputs: Inputs, progress: Callback | None) -> dict[str, Any]:
        """One recording from file to file, block by block."""
        from glocal.apps.speech.sound_files import denoise_file

        assert inputs.target is not None
        expected = self.cost(self.header(inputs)).seconds
        with Meter(progress, expected=expected) as meter:
            done = denoise_file(
                inputs.source, inputs.target, self.options, residual=self.files.residual, plot=self.files.plot, subtype=self.output.subtype,
                overwrite=inputs.overwrite, progress=meter,
            )  # fmt: skip
        how = "estimated" if done.estimated else "given"
        inputs.say(f"{inputs.source}: noise level {done.sigma:.3g} of full scale ({how}), model {done.model}")
        said(inputs, done.notes)
        return {"sigma": done.sigma, "sigma_estimated": done.estimated, "model": done.model,
                "seconds_of_sound": done.seconds, "rate": done.rate, "channels": done.channels,
                "notes": list(done.notes)}  # fmt: skip
