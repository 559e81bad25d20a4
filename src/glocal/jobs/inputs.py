"""What every job takes and estimates: its inputs, their sizes before they are read, and the cost of the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal.files.audio.formats import AudioInfo
    from glocal.files.images.scratch import Scratch


def silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Cost:
    """The estimated cost of a job: `size` and `parts` are text ("4000 x 3000", "6 bands"), memory is in bytes.

    `smaller` says what a user can do if that is too much. `seconds` is None if there is no estimate. `least` is the memory
    that is enough if the job keeps large arrays in temporary files and works in smaller parts; None if it cannot.
    """

    size: str
    memory: int
    seconds: float | None
    parts: str = ""
    smaller: str = "a smaller input, fewer --jobs"
    least: int | None = None


@dataclass(frozen=True)
class Header:
    """The properties of the inputs before they are read: the size (h, w) of a picture, or those of a sound file.

    `others` are the sizes of the other pictures: paintings, references. `decoding` are the bytes that the decoder of a
    picture keeps in memory in any case.
    """

    size: tuple[int, int] = (0, 0)
    sound: AudioInfo | None = None
    others: tuple[tuple[int, int], ...] = ()
    decoding: int = 0

    @property
    def pixels(self) -> int:
        """Number of pixels of the picture."""
        return self.size[0] * self.size[1]

    @property
    def text(self) -> str:
        """The size of the picture as people write it: "4000 x 3000"."""
        return f"{self.size[1]} x {self.size[0]}"


@dataclass(frozen=True)
class Inputs:
    """The inputs of a job: files, or images and samples in memory.

    target : where the result will go, for jobs that leave something beside it.
    scratch : where large arrays go if they should not stay in memory.
    say : gets messages for people while the job runs.
    """

    source: Any
    others: tuple[Any, ...] = ()
    target: Path | None = None
    overwrite: bool = False
    scratch: Scratch | None = None
    say: Callable[[str], None] = field(default=silent, repr=False)


def said(inputs: Inputs, notes: Sequence[str]) -> tuple[str, ...]:
    """Say each note with the name of its source."""
    for note in notes:
        inputs.say(f"{Path(inputs.source).name}: {note}")
    return tuple(notes)
