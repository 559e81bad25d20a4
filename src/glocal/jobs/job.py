"""Job: one task with one interface for every program that runs it.

A job has options, an estimate of memory and time (`cost`) and a method that does the work (`run`). The command line, the
batch runner, the studio and the cluster use the four jobs in the same way. No job imports torch before it runs.

To add a job, write an app with its options and its call, and a subclass of `Job` next to the others. `glocal.cli.main` lists it
in the table of commands; flags, help, checks, batches, recipes and the page of commands follow from it.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.files.images.formats import SUFFIXES, decoding_memory, format_of_name
from glocal.jobs.inputs import Cost, Header, Inputs, said
from glocal.options import Options, option

if TYPE_CHECKING:
    from glocal.files.results import Result
    from glocal.jobs.tiles import Source, TilePlan, Tiles
    from glocal.progress import Callback


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
    """One task with its options; see the module's text.

    options : what the Python call takes too.
    files : names of further files that belong to the work, such as a mask (see `glocal.options.option`: `keyword`,
        `writes`, `in_tiles`).
    output : how results are written.
    others : the further inputs, such as paintings, which all sources share.
    """

    options: Any
    files: Any = NoFiles()
    output: Any = ImageOutput()
    others: tuple[str, ...] = ()

    name: ClassVar[str]
    call: ClassVar[str]  # the Python call, as "module:function"
    arguments: ClassVar[str] = "Photos, folders or patterns."
    Options: ClassVar[type[Options]]
    Files: ClassVar[type] = NoFiles
    Output: ClassVar[type] = ImageOutput
    suffixes: ClassVar[Collection[str]] = SUFFIXES
    shared: ClassVar[str] = ""  # the field of `Files` with inputs that all sources share, such as "painting"
    single: ClassVar[str] = "Leave it out, or give one input."  # the remedy for an output that belongs to one source
    whole: ClassVar[str] = ""  # why the job cannot be done in tiles
    announced: ClassVar[bool] = False  # whether the cost is said before the work

    @abstractmethod
    def cost(self, header: Header) -> Cost:
        """Time and memory for inputs of this size."""

    def run(self, inputs: Inputs, progress: Callback | None = None) -> Result:
        """Do the work in memory: the Python call with the options and the files that are its keywords."""
        module, _, function = self.call.partition(":")
        given = {one.name: getattr(self.files, one.name) for one in fields(self.files) if one.metadata.get("keyword")}
        if self.shared:
            given[self.shared] = list(inputs.others) or None
        if inputs.scratch is not None:
            given["scratch"] = inputs.scratch
        result: Result = getattr(importlib.import_module(module), function)(
            inputs.source, options=self.options, progress=progress, **given
        )
        return result

    def smaller(self, header: Header, memory: int) -> str:
        """Say what a user can do if the work does not fit into this memory."""
        in_parts = self.cost(replace(header, decoding=0)).least
        if header.decoding and in_parts is not None and in_parts <= memory:
            return "a JPEG, PNG or TIFF file, which is decoded in parts,"
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

        sizes = [image_size(path) for path in (inputs.source, *self.others)]
        named = zip((inputs.source, *self.others), sizes, strict=True)
        decoding = max(decoding_memory(path, h * w) for path, (h, w) in named)
        return Header(sizes[0], others=tuple(sizes[1:]), decoding=decoding)

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
        shown = self.tell(result, inputs)
        return shown | {"notes": list(said(inputs, (*result.notes, *notes)))}

    def tiled(self, source: Source, *, overwrite: bool = False) -> Tiles:
        """Decide everything that depends on a whole picture which is too large for memory, and write the further outputs.

        Parameters
        ----------
        source : Source
            The picture, read by windows.
        overwrite : bool
            Replace further outputs that exist.

        Raises
        ------
        ArgumentError
            The job cannot be done in tiles, or not with one of its files.
        """
        from glocal.files.images.picture import type_of
        from glocal.jobs.tiles import Tiles

        if self.whole:
            message = f"{self.name}: a picture in tiles is not possible: {self.whole}. Use a smaller picture."
            raise ArgumentError(message)
        for one in fields(self.files):
            if getattr(self.files, one.name) != one.default and one.metadata.get("in_tiles") is not True:
                flag = one.name.replace("_", "-")
                why = one.metadata.get("in_tiles", "it needs the whole picture at once")
                raise ArgumentError(
                    f"{self.name}: --{flag} is not possible for a picture in tiles: {why}. Leave it out."
                )
        plan, shown = self.plan(source, overwrite=overwrite)
        depth = self.output.depth
        return Tiles(plan, source.pixels.dtype if depth == "keep" else type_of(depth), self.cost, shown)

    def plan(self, source: Source, *, overwrite: bool) -> tuple[TilePlan, dict[str, Any]]:
        """Plan the parts of a large picture; also returns what `--json` shows, with the `lines` that are said."""
        raise NotImplementedError(f"{self.name} has neither `plan` nor `whole`")

    def tell(self, result: Any, inputs: Inputs) -> dict[str, Any]:
        """Write further outputs, say what is worth saying, and return what `--json` shows."""
        return {}


def _writing(files: Any) -> list[Any]:
    return [one for one in fields(files) if one.metadata.get("writes")]


def _check_suffix(path: str, writes: str) -> None:
    """Refuse a further output whose suffix names no format; `writes` is "picture", "sound", "lut", "map" or "file"."""
    suffix = Path(path).suffix.lower()
    if writes == "picture":
        format_of_name(path)
    elif writes == "sound":
        from glocal.files.audio.formats import output_format

        output_format(path, None, None)
    elif writes == "map" and (suffix == ".cube" or suffix in SUFFIXES):  # `--map` would take it for a LUT
        message = (
            f"write color map ({path}): the suffix {suffix!r} is that of a LUT or a picture. Use .glocal, or --lut."
        )
        raise ArgumentError(message)
    elif writes == "lut" and suffix not in (".cube", ".png"):
        message = f"write LUT ({path}): the suffix {suffix!r} is unknown. Use .cube, or .png for a HaldCLUT."
        raise ArgumentError(message)
