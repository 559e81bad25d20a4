"""Job: one task with one interface for every program that runs it.

A job has options, an estimate of memory and time (`cost`) and a method that does the work (`run`). The command line and the
batch runner use the four jobs in the same way. No job imports torch before it runs.

To add a job, write an app with its options and its call, and a subclass of `Job` next to the others. `glocal.cli.main` lists it
in the table of commands; flags, help, checks, batches, recipes and the page of commands follow from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.files.images.formats import SUFFIXES, format_of_name
from glocal.options import Options, option

if TYPE_CHECKING:
    from glocal.files.audio.formats import AudioInfo
    from glocal.files.images.scratch import Scratch
    from glocal.files.results import Result
    from glocal.jobs.tiles import Pixels, Tiles
    from glocal.progress import Callback


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

    `others` are the sizes of the other pictures: paintings, references.
    """

    size: tuple[int, int] = (0, 0)
    sound: AudioInfo | None = None
    others: tuple[tuple[int, int], ...] = ()

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
    scratch : where large arrays go if they shall not stay in memory.
    say : gets messages for people while the job runs.
    """

    source: Any
    others: tuple[Any, ...] = ()
    target: Path | None = None
    overwrite: bool = False
    scratch: Scratch | None = None
    say: Callable[[str], None] = field(default=silent, repr=False)


@dataclass(frozen=True)
class ImageOutput:
    """How pictures are written: flags of every job that makes them."""

    depth: Literal["keep", "8", "16", "float"] = option("keep", "Bits of a channel.")
    quality: int = option(95, "Of JPEG, WebP, AVIF and HEIC.", min=1, max=100)
    metadata: Literal["keep", "strip"] = option("keep", "EXIF, XMP and recipe; the colour profile always stays.")


@dataclass(frozen=True)
class NoFiles:
    """A job without further files."""


@dataclass(frozen=True)
class Job(ABC):
    """One kind of work with its options; see the module's text.

    options : what the Python call takes too.
    files : names of further files that belong to the work, such as a mask. A field with `writes` is one more output;
        its value says of which kind: picture, sound, lut or file.
    output : how results are written.
    others : the further inputs, such as paintings, which all sources share.
    """

    options: Any
    files: Any = NoFiles()
    output: Any = ImageOutput()
    others: tuple[str, ...] = ()

    name: ClassVar[str]
    arguments: ClassVar[str] = "Photos, folders or patterns."
    Options: ClassVar[type[Options]]
    Files: ClassVar[type] = NoFiles
    Output: ClassVar[type] = ImageOutput
    suffixes: ClassVar[Collection[str]] = SUFFIXES
    shared: ClassVar[str] = ""  # the field of `Files` with inputs that all sources share, such as "painting"
    single: ClassVar[str] = "Leave it out, or give one input."  # the remedy for an output that belongs to one source
    whole: ClassVar[str] = "it needs the whole picture at once"
    announced: ClassVar[bool] = False  # whether the cost is said before the work

    @abstractmethod
    def cost(self, header: Header) -> Cost:
        """Time and memory for inputs of this size."""

    @abstractmethod
    def run(self, inputs: Inputs, progress: Callback | None = None) -> Result:
        """Do the work in memory."""

    def smaller(self, header: Header, memory: int) -> str:
        """Say what a user can do if the work does not fit into this memory."""
        return self.cost(header).smaller

    @classmethod
    def split(cls, inputs: Sequence[str], files: Any) -> tuple[list[str], tuple[str, ...]]:
        """Return which names on the command line are sources, and which are further inputs of all of them.

        If the job has shared inputs, the first name is the source and the others are shared, unless a flag names them.

        Raises
        ------
        ArgumentError
            There are no shared inputs.
        """
        named = getattr(files, cls.shared, ())
        if named or not cls.shared:
            return list(inputs), named
        if len(inputs) < 2:
            message = f"{cls.name}: there is no {cls.shared}. Name a photo and a {cls.shared}, or use --{cls.shared}."
            raise ArgumentError(message)
        return [inputs[0]], tuple(inputs[1:])

    def header(self, inputs: Inputs) -> Header:
        """Read the sizes from the headers of the files."""
        from glocal.files.images.read import image_size

        return Header(image_size(inputs.source), others=tuple(image_size(path) for path in self.others))

    def more_outputs(self) -> tuple[str, ...]:
        """Return the names of the further outputs."""
        named = [getattr(self.files, one.name) for one in _writing(self.Files)]
        return tuple(path for value in named if value for path in ([value] if isinstance(value, str) else value))

    def check(self, count: int) -> None:
        """Refuse flags that do not fit each other or the number of sources, before anything is done.

        Raises
        ------
        ArgumentError
            A further output has a suffix that names no format, or can belong to one source only and there are several.
        """
        for one in _writing(self.Files):
            value = getattr(self.files, one.name)
            for path in [value] if isinstance(value, str) else value or ():
                _check_suffix(path, one.metadata["writes"])
        if count > 1 and self.single_outputs():
            message = (
                f"{self.name}: {self.single_outputs()[0]} belongs to one input, and there are several. {self.single}"
            )
            raise ArgumentError(message)

    def single_outputs(self) -> tuple[str, ...]:
        """Return the further outputs that can belong to one source only."""
        return self.more_outputs()

    def run_file(self, inputs: Inputs, progress: Callback | None) -> dict[str, Any]:
        """Do the work from file to file; returns what `--json` shows about it."""
        return self.write(self.run(inputs, progress), inputs)

    def write(self, result: Result, inputs: Inputs) -> dict[str, Any]:
        """Write a result and what belongs to it, and return what `--json` shows."""
        assert inputs.target is not None
        # How a result is saved depends on its class: depth and quality, or the type of the samples.
        notes = result.save(inputs.target, **asdict(self.output), overwrite=inputs.overwrite)  # type: ignore[attr-defined]
        told = self.tell(result, inputs)
        return told | {"notes": list(said(inputs, (*result.notes, *notes)))}

    def tiled(self, pixels: Pixels, icc: bytes | None) -> Tiles:
        """Decide everything that depends on a whole picture which is too large for memory.

        Parameters
        ----------
        pixels : (h, w, 1 or 3)
            The picture, read by windows.
        icc : bytes or None
            Its colour profile.

        Raises
        ------
        ArgumentError
            The job cannot be done in tiles.
        """
        message = f"{self.name}: a picture in tiles is not possible: {self.whole}. Use a smaller picture."
        raise ArgumentError(message)

    def tell(self, result: Any, inputs: Inputs) -> dict[str, Any]:
        """Write further outputs, say what is worth saying, and return what `--json` shows."""
        return {}


def said(inputs: Inputs, notes: Sequence[str]) -> tuple[str, ...]:
    """Say each note with the name of its source."""
    for note in notes:
        inputs.say(f"{Path(inputs.source).name}: {note}")
    return tuple(notes)


def _writing(files: Any) -> list[Any]:
    return [one for one in fields(files) if one.metadata.get("writes")]


def _check_suffix(path: str, kind: str) -> None:
    """Refuse a further output whose suffix names no format; `kind` is "picture", "sound", "lut" or "file"."""
    if kind == "picture":
        format_of_name(path)
    elif kind == "sound":
        from glocal.files.audio.formats import output_format

        output_format(path, None, None)
    elif kind == "lut" and Path(path).suffix.lower() not in (".cube", ".png"):
        suffix = Path(path).suffix.lower()
        message = f"write LUT ({path}): the suffix {suffix!r} is unknown. Use .cube, or .png for a HaldCLUT."
        raise ArgumentError(message)
