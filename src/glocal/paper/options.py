"""What can be asked of `glocal reproduce`, and how much work each answer is. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from glocal.errors import ArgumentError
from glocal.options import option

PARTS = ("style", "color", "image", "speech")


@dataclass(frozen=True)
class Effort:
    """How much is computed: sizes in pixels, iterations for each level, pictures of each figure, whether to train.

    `epochs` and `speech_steps` shorten trainings for trials; None is the paper's number. `every` is the number of steps
    between two validations.
    """

    name: str
    graph_size: int
    style_size: int
    style_iterations: int
    style_photos: int
    style_paintings: int
    color_size: int
    color_pairs: int
    image_size: int = 128
    speech_seconds: float = 1.0
    trains: bool = False
    epochs: int | None = None
    speech_steps: int | None = None
    every: int = 100


QUICK = Effort("quick", 96, 128, 100, 3, 3, 256, 5)
FULL = Effort("full", 192, 256, 300, 4, 5, 384, 5, trains=True)


def parse_parts(text: str) -> tuple[str, ...]:
    """`style,color` as a tuple.

    Raises
    ------
    ArgumentError
        A name is unknown.

    Examples
    --------
    >>> parse_parts("color, style")
    ('style', 'color')
    """
    asked = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in asked if name not in PARTS]
    if wrong or not asked:
        raise ArgumentError(
            f"reproduce: `only` (={text!r}) must name parts of the paper. Choose from {', '.join(PARTS)}."
        )
    return tuple(name for name in PARTS if name in asked)


@dataclass(frozen=True)
class ReproduceOptions:
    """What to run again. Section 2 of the paper is always there; it takes seconds."""

    only: str = option(",".join(PARTS), "Parts, separated by commas.", metavar="PART,...")
    quick: bool = option(False, "Small pictures, shipped models and samples (the default).")
    full: bool = option(False, "The paper's sizes; trains every network (needs --data).")
    stored: bool = option(False, "With --full: do not train, use the shipped networks and their stored trainings.")
    data: Path | None = option(None, "Folder with training data, paintings and photo pairs; see docs/reproduce.md.")
    seed: int = option(0, "Seed of everything random.")
    overwrite: bool = option(False, "Replace a report that is there.")

    def __post_init__(self) -> None:
        parse_parts(self.only)
        if self.quick and self.full:
            raise ArgumentError("reproduce: `quick` and `full` exclude each other. Give one of them.")
        if self.data is not None and not self.data.is_dir():
            raise ArgumentError(f"reproduce: `data` (={self.data}) is no folder. Check the path.")

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that were asked for, in the paper's order."""
        return parse_parts(self.only)

    @property
    def effort(self) -> Effort:
        """How much work was asked for."""
        return replace(FULL, trains=not self.stored) if self.full else QUICK
