"""The options of the speech denoiser. Does not import torch, so that the command line starts quickly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.options import Options, device_option, fraction_option, option, parse_level, unused_seed

MODELS = ("auto", "voice", "frames", "nonlocal", "local")
Model = Literal["voice", "frames", "nonlocal", "local"]


@dataclass(frozen=True)
class SpeechOptions(Options):
    """The options of `glocal.denoise_speech` and `glocal speech`."""

    call: ClassVar[str] = "denoise_speech"

    model: str = option(
        "auto",
        "voice (any noise), frames (steady noise), the paper's small networks nonlocal and local, or a "
        ".safetensors file of `glocal train speech`. auto is voice, or frames where --sigma is given.",
        known=MODELS,
        suffix=".safetensors",
    )
    sigma: float | None = option(
        None,
        "Standard deviation of white noise, full scale 1, or auto (None in Python), which estimates it.",
        min=0,
        must="be finite and not negative",
        remedy="Leave it out to estimate it.",
        parse=parse_level,
        metavar="NUMBER|auto",
    )
    strength: float = fraction_option("Fraction of the noise to remove.")
    keep_ambience: float | None = option(
        None,
        "Leave a natural floor: nothing falls more than so many decibels below the input, at any time and frequency.",
        min=0,
        max=100,
        remedy="Use 20 for a quiet room, or leave it out to remove all noise.",
        metavar="DB",
    )
    weights: str | None = option(
        None, "A file of `glocal train speech` for this model, instead of the shipped one; --model takes it too."
    )
    device: str = device_option(
        "Accepted as in the other jobs, but speech is always computed on the CPU.", no_flag=True
    )
    seed: int = unused_seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model == "voice" and self.sigma is not None:
            message = (
                f"denoise_speech: `sigma` (={self.sigma}) is not used by the model 'voice', which estimates the noise. "
                "Leave it out, or use the model 'frames'."
            )
            raise ArgumentError(message)

    @property
    def network(self) -> str:
        """The model that will run, or its file."""
        if self.model != "auto":
            return self.model
        return "voice" if self.sigma is None and self.weights is None else "frames"

    @property
    def own_file(self) -> str | None:
        """The file of the user's own model, if there is one."""
        return self.weights if self.model in MODELS else self.model


@dataclass(frozen=True)
class SpeechFiles:
    """Further files of a denoised recording."""

    residual: str | None = option(None, "Write what was removed into this file.", writes="sound")
    plot: str | None = option(None, "Draw the spectrograms before and after into this picture.", writes="picture")


@dataclass(frozen=True)
class AudioOutput:
    """How sound is written."""

    subtype: str | None = option(
        None,
        "How samples are stored, such as PCM_24 or FLOAT. Default: as in the input.",
        known=("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"),
    )


@dataclass(frozen=True)
class SpeechTraining(Options):
    """The options of `glocal train speech`."""

    call: ClassVar[str] = "train speech"

    model: Model = option("nonlocal", "Which network to train.")
    seed: int = option(0, "Seed of filters, order and noise.", min=0)
    steps: int | None = option(
        None, "Steps; default 4,618 (one epoch of TIMIT), 11,000 for frames, 34,400 for voice.", min=1
    )
    every: int = option(100, "Steps between two validations.", min=1)
    start: str | None = option(
        None, "voice only: the model to start from, a .safetensors file, or speech-voice as shipped."
    )
    device: str = device_option("cpu or cuda.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start is not None and self.model != "voice":
            message = (
                f"train speech: `start` (={self.start!r}) is not used by the model {self.model!r}. "
                "Leave it out, or train the model 'voice'."
            )
            raise ArgumentError(message)


@dataclass(frozen=True)
class SpeechEvaluation(Options):
    """The options of `glocal eval speech`."""

    call: ClassVar[str] = "eval speech"

    table: Literal["paper", "levels", "all"] = option(
        "paper", "The paper's table; SI-SDR at -5 to 15 dB; or all methods and measures at sigma 0.12."
    )
    runs: tuple[str, ...] = option(
        (), "A folder of `glocal train speech`; give one for each seed. Default: as shipped."
    )
    clips: int | None = option(None, "Use only this many test clips.", min=1)
    seed: int = option(0, "Draws the noise.", min=0)
