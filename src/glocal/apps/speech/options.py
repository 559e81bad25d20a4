"""What can be asked of the speech denoiser. Without torch, so that the command line starts at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from glocal.errors import ArgumentError

MODELS = ("frames", "nonlocal", "local")
Model = Literal["frames", "nonlocal", "local"]


def parse_sigma(text: str) -> float | None:
    """`auto` or a number, as the flag takes it.

    >>> parse_sigma("auto"), parse_sigma("0.1")
    (None, 0.1)
    """
    return None if text.lower() == "auto" else float(text)


@dataclass(frozen=True)
class SpeechOptions:
    """The options of `glocal.denoise_speech` and `glocal speech`.

    Attributes
    ----------
    model : str
        "frames" is the one to use; "nonlocal" and "local" are the paper's small networks on samples.
    sigma : float or None
        Standard deviation of white noise in the file's own scale, full scale 1. None: estimated from quiet parts
        ("frames" estimates the noise of every band and follows it over time).
    strength : float
        0 leaves the sound as it is, 1 removes all that the model takes for noise.
    weights : str or None
        A file that `glocal train speech` wrote for this model, instead of the weights that ship.
    """

    model: Model = field(default="frames", metadata={"help": "Which network; nonlocal and local are the paper's."})
    sigma: float | None = field(
        default=None,
        metadata={
            "help": "Standard deviation of white noise, full scale 1, or auto.",
            "parse": parse_sigma,
            "metavar": "NUMBER|auto",
        },
    )
    strength: float = field(
        default=1.0, metadata={"help": "How much of the noise to remove, 0 to 1.", "min": 0.0, "max": 1.0}
    )
    weights: str | None = field(
        default=None, metadata={"help": "A file of `glocal train speech` instead of the weights that ship."}
    )

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            message = f"denoise_speech: `model` (={self.model!r}) is unknown. Choose one of {', '.join(MODELS)}."
            raise ArgumentError(message)
        if self.sigma is not None and not (self.sigma >= 0 and math.isfinite(self.sigma)):
            message = (
                f"denoise_speech: `sigma` (={self.sigma}) must be finite and not negative. Leave it out to estimate it."
            )
            raise ArgumentError(message)
        if not 0 <= self.strength <= 1:
            message = f"denoise_speech: `strength` (={self.strength}) must be between 0 and 1. Use 1 for all of it."
            raise ArgumentError(message)


@dataclass(frozen=True)
class SpeechTraining:
    """The options of `glocal train speech`."""

    model: Model = field(default="nonlocal", metadata={"help": "Which network to train."})
    seed: int = field(default=0, metadata={"help": "Draws filters, order and noise.", "min": 0})
    steps: int | None = field(
        default=None,
        metadata={"help": "Steps; default 4,618 (one epoch of TIMIT), or 11,000 for frames.", "min": 1},
    )
    every: int = field(default=100, metadata={"help": "Steps between two validations.", "min": 1})
    device: str = field(default="cpu", metadata={"help": "cpu or cuda."})


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
    clips: int | None = field(default=None, metadata={"help": "Use only so many test clips.", "min": 1})
    seed: int = field(default=0, metadata={"help": "Draws the noise.", "min": 0})
