"""The options of the speech denoiser. Does not import torch, so that the command line starts quickly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.options import DEVICE, Options, option

MODELS = ("auto", "voice", "frames", "nonlocal", "local")
Model = Literal["voice", "frames", "nonlocal", "local"]


def parse_sigma(text: str) -> float | None:
    """Parse `auto` or a number, for the flag.

    >>> parse_sigma("auto"), parse_sigma("0.1")
    (None, 0.1)
    """
    return None if text.lower() == "auto" else float(text)


@dataclass(frozen=True)
class SpeechOptions(Options):
    """The options of `glocal.denoise_speech` and `glocal speech`."""

    call: ClassVar[str] = "denoise_speech"

    model: str = option(
        "auto",
        "voice (all kinds of noise), frames (steady noise), the paper's small networks nonlocal and local, or a "
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
        parse=parse_sigma,
        metavar="NUMBER|auto",
    )
    strength: float = option(1.0, "Fraction of the noise to remove.", min=0, max=1, remedy="Use 1 for all of it.")
    keep_ambience: float | None = option(
        None,
        "Leave a natural floor: nothing falls more than so many decibels below the input, at any time and frequency.",
        min=0,
        max=100,
        remedy="Use 20 for a quiet room, or leave it out to remove all noise.",
        metavar="DB",
    )
    weights: str | None = option(
        None, "A file of `glocal train speech` for this model instead of the weights that ship; --model takes it too."
    )
    device: str = option(
        "cpu",
        "Accepted as in the other jobs, but speech is always computed on the CPU.",
        pattern=DEVICE,
        must="be cpu, cuda or cuda:N",
        remedy="Use cpu.",
        no_flag=True,
    )
    seed: int = option(0, "Accepted as in the other jobs, but nothing is random here.", min=0, no_flag=True)

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
        """The user's own weights, if there are any."""
        return self.weights if self.model in MODELS else self.model


@dataclass(frozen=True)
class SpeechTraining:
    """The options of `glocal train speech`."""

    model: Model = field(default="nonlocal", metadata={"help": "Which network to train."})
    seed: int = field(default=0, metadata={"help": "Seed of filters, order and noise.", "min": 0})
    steps: int | None = field(
        default=None,
        metadata={"help": "Steps; default 4,618 (one epoch of TIMIT), 11,000 for frames, 16,600 for voice.", "min": 1},
    )
    every: int = field(default=100, metadata={"help": "Steps between two validations.", "min": 1})
    start: str | None = field(
        default=None,
        metadata={"help": "voice only: the weights to start from, a .safetensors file, or speech-voice as shipped."},
    )
    device: str = field(default="cpu", metadata={"help": "cpu or cuda."})

    def __post_init__(self) -> None:
        if self.start is not None and self.model != "voice":
            message = (
                f"train speech: `start` (={self.start!r}) is not used by the model {self.model!r}. "
                "Leave it out, or train the model 'voice'."
            )
            raise ArgumentError(message)


@dataclass(frozen=True)
class SpeechEvaluation:
    """The options of `glocal eval speech`."""

    table: Literal["paper", "levels", "all"] = field(
        default="paper",
        metadata={"help": "The paper's table; SI-SDR at -5 to 15 dB; or all methods and measures at sigma 0.12."},
    )
    runs: tuple[str, ...] = field(
        default=(), metadata={"help": "A folder of `glocal train speech`; give one for each seed. Default: as shipped."}
    )
    clips: int | None = field(default=None, metadata={"help": "Use only this many test clips.", "min": 1})
    seed: int = field(default=0, metadata={"help": "Draws the noise.", "min": 0})
