"""`glocal style`: a photo in the manner of a painting."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glocal.apps.style.options import StyleChoices, StyleOptions
from glocal.cli.shell.batch import BatchOptions, Estimate, ImageFileOptions, run_batch
from glocal.cli.shell.console import Report, RunOptions, Tell, bytes_text, seconds_text
from glocal.cli.shell.failures import Stopped
from glocal.cli.shell.interrupt import stop_on_interrupt
from glocal.cli.shell.paths import Task
from glocal.errors import ArgumentError
from glocal.files.images.formats import SUFFIXES

if TYPE_CHECKING:
    from glocal.apps.style.transfer import StyleResult
    from glocal.optim.progress import Progress

Device = Literal["cpu", "cuda"]

_PREVIEW_SECONDS = 2.0
_HOST_BYTES = 3 * 2**30  # what a run on a GPU takes of the computer's own memory, most of it the GPU's libraries
_CHECKPOINT_SECONDS = 30.0


def parse_weights(text: str) -> str:
    """Check a list of numbers such as "2,1"; it stays text, as a recipe holds it."""
    numbers_of(text)
    return text


def numbers_of(text: str) -> list[float]:
    """The numbers of "2,1".

    >>> numbers_of("2,1")
    [2.0, 1.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--weights: `{text}` is no list of numbers. Write it like 2,1.") from None


@dataclass(frozen=True)
class StyleFiles:
    """Files of a style transfer beside the photo and the output."""

    painting: tuple[str, ...] = field(
        default=(), metadata={"help": "The painting, when many photos are given; may be given several times."}
    )
    weights: str | None = field(
        default=None,
        metadata={"help": "How much each painting counts, such as 2,1.", "parse": parse_weights, "metavar": "<list>"},
    )
    mask: str | None = field(default=None, metadata={"help": "Stylise only where this picture is white; gray is soft."})
    regions: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "PHOTO_MASK=PAINTING_MASK: this part of the photo takes that part of the painting; "
            "may be given several times."
        },
    )
    device: Device = field(default="cpu", metadata={"help": "Where to compute."})
    init: str = field(default="noise", metadata={"help": "Start from noise, photo, or a picture file."})
    preview: str | None = field(
        default=None, metadata={"help": "A picture that is rewritten while the work goes on.", "writes": True}
    )
    compare: str | None = field(
        default=None, metadata={"help": "Also write photo, painting and result side by side.", "writes": True}
    )
    resume: bool = field(default=False, metadata={"help": "Go on from the checkpoint that an interrupted run left."})
    recipe: str | None = field(
        default=None, metadata={"help": "Also write the recipe to this JSON file.", "writes": True}
    )


def style(
    inputs: Annotated[
        list[str], typer.Argument(help="PHOTO PAINTING...; or with --painting: photos, folders, patterns.")
    ],
    choices: StyleChoices,
    files: StyleFiles,
    batch: BatchOptions,
    image: ImageFileOptions,
    run: RunOptions,
) -> None:
    """Give a photo the strokes and colours of a painting.

    glocal style PHOTO PAINTING -o OUT: several paintings are mixed, see --weights.
    glocal style PHOTOS... --painting PAINTING -o FOLDER/: each photo.
    Ctrl-C saves the best so far; --resume --overwrite goes on from there.
    """
    photos, paintings = _roles(inputs, files)
    options = choices.options()
    if files.weights is not None and len(numbers_of(files.weights)) != len(paintings):
        raise ArgumentError(
            f"--weights: {files.weights} has {len(numbers_of(files.weights))} numbers for {len(paintings)} painting(s). "
            "Give one for each."
        )
    estimate = functools.partial(_estimate, paintings=paintings, options=options, device=files.device)
    work = functools.partial(
        _work, paintings=paintings, options=options, files=files, batch=batch, image=image, run=run
    )
    run_batch(
        "style", photos, work, estimate=estimate, suffixes=SUFFIXES, options=batch, report=Report(run),
        also=[files.preview, files.compare, files.recipe],
    )  # fmt: skip


def _roles(inputs: Sequence[str], files: StyleFiles) -> tuple[list[str], list[str]]:
    """Which inputs are photos and which are paintings."""
    if files.painting:
        return list(inputs), list(files.painting)
    if len(inputs) < 2:
        raise ArgumentError("style: there is no painting. Name a photo and a painting, or use --painting.")
    return [inputs[0]], list(inputs[1:])


def _estimate(task: Task, *, paintings: list[str], options: StyleOptions, device: Device) -> Estimate:
    from glocal.apps.style.estimate import cost
    from glocal.files.images.read import image_size

    needs = cost(image_size(task.source), [image_size(path) for path in paintings], options)
    h, w = needs.shape
    return Estimate(
        f"{w} x {h}",
        memory=needs.memory if device == "cpu" else _HOST_BYTES,
        seconds=needs.seconds if device == "cpu" else None,
        parts=f"{needs.levels} levels",
        smaller="a smaller --size",
    )


def _work(
    task: Task,
    tell: Tell,
    *,
    paintings: list[str],
    options: StyleOptions,
    files: StyleFiles,
    batch: BatchOptions,
    image: ImageFileOptions,
    run: RunOptions,
) -> dict[str, Any]:
    """One photo from file to file."""
    from glocal.apps.style.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
    from glocal.apps.style.transfer import stylize
    from glocal.atomic import check_writable
    from glocal.files.images.colors import from_srgb
    from glocal.files.images.formats import format_of_name
    from glocal.files.images.read import read_image
    from glocal.files.images.write import write_image

    report = Report(run)
    extra = [path for path in (files.preview, files.compare) if path]
    for path in (str(task.target), *extra):
        format_of_name(path)
    for path in (str(task.target), *extra, *([files.recipe] if files.recipe else [])):
        check_writable(path, overwrite=batch.overwrite)
    photo, sources = read_image(task.source), [read_image(path) for path in paintings]
    pairs = _regions(files)
    recipe = _recipe(task, paintings, options, files, image)
    beside = checkpoint_path(task.target)
    point = load_checkpoint(beside, recipe) if files.resume else None
    if files.mask:
        _say_scaled(files.mask, photo.size, report)
    needs = _estimate(task, paintings=paintings, options=options, device=files.device)
    takes = "on the GPU"
    if needs.seconds is not None:
        takes = f"about {bytes_text(needs.memory)} and {seconds_text(needs.seconds)}"
    report.say(f"{task.source.name}: {needs.size} pixels, {needs.parts}, {takes}")
    preview, keep = _Every(_PREVIEW_SECONDS), _Every(_CHECKPOINT_SECONDS)

    def told(progress: Progress) -> bool:
        tell(progress)
        if files.preview and progress.image is not None and preview.due():
            _write_preview(files.preview, progress)
        if progress.snapshot is not None and (keep.due() or stopping()):
            with keep.rarely():
                save_checkpoint(beside, progress.snapshot(), recipe)
        return stopping()

    with stop_on_interrupt() as stopping:
        result = stylize(
            photo, sources, options=options, weights=numbers_of(files.weights) if files.weights else None,
            mask=files.mask, regions=pairs, init=files.init, checkpoint=point, device=files.device, callback=told,
        )  # fmt: skip
    if result.stopped:
        recipe = recipe | {"stopped": True}
    notes = write_image(
        task.target, from_srgb(photo, result.rgb, depth=image.depth), depth=image.depth, quality=image.quality, metadata=image.metadata,
        recipe=recipe, overwrite=batch.overwrite,
    )  # fmt: skip
    for note in (*photo.notes, *notes):
        report.say(f"{task.source.name}: {note}")
    _write_beside(files, batch, result, recipe, photo, sources)
    if result.stopped:
        again = "--resume --overwrite goes on from there"
        raise Stopped(f"the best so far is in {task.target}; {again}")
    beside.unlink(missing_ok=True)
    return _told(result, recipe, notes)


def _told(result: StyleResult, recipe: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    phases = {name: round(seconds, 3) for name, seconds in result.phases.items()}
    losses = [[losses[0], losses[-1]] for losses in result.losses]
    return {"losses": losses, "phases": phases, "recipe": recipe, "notes": list(notes)}


def _recipe(
    task: Task, paintings: list[str], options: StyleOptions, files: StyleFiles, image: ImageFileOptions
) -> dict[str, Any]:
    """The recipe; inputs come in the order in which they are named."""
    from glocal.files.provenance import build_recipe

    positional = [str(task.source), *paintings]  # one photo of many with --painting is the same call
    masks = [part for pair in files.regions for part in pair.split("=", 1)]
    start = [] if files.init in ("noise", "photo") else [files.init]
    arguments = {"positional": positional, "weights": files.weights, "mask": files.mask}
    arguments |= {"regions": list(files.regions), "init": files.init} | asdict(image)
    if files.device != "cpu":
        arguments["device"] = files.device
    sources = [*positional, *([files.mask] if files.mask else []), *masks, *start]
    return build_recipe("style", options, inputs=sources, arguments=arguments, seed=options.seed)


def _regions(files: StyleFiles) -> list[tuple[str, str]]:
    pairs = []
    for text in files.regions:
        mine, equals, theirs = text.partition("=")
        if not (mine and equals and theirs):
            raise ArgumentError(f"--regions: `{text}` names no pair. Write it like sky.png=painted_sky.png.")
        pairs.append((mine, theirs))
    return pairs


def _say_scaled(mask: str, size: tuple[int, int], report: Report) -> None:
    """A mask of another size is scaled to the photo; say so."""
    from glocal.files.images.read import image_size

    found = image_size(mask)
    if found != size:
        report.say(f"{mask}: scaled from {found[1]} x {found[0]} to {size[1]} x {size[0]}, the photo's size")


def _write_preview(path: str, progress: Progress) -> None:
    from glocal.color_space import rgb_from_lab
    from glocal.files.images.picture import Picture, to_depth
    from glocal.files.images.write import write_image

    assert progress.image is not None
    rgb = rgb_from_lab(progress.image).clamp(0, 1).float().cpu().numpy()
    write_image(path, Picture(to_depth(rgb, "8")), overwrite=True)


def _write_beside(
    files: StyleFiles, batch: BatchOptions, result: StyleResult, recipe: dict[str, Any], photo: Any, sources: list[Any]
) -> None:
    """Write what was asked for beside the result."""
    from glocal.apps.style.compare import side_by_side
    from glocal.atomic import write_whole
    from glocal.files.images.colors import to_srgb
    from glocal.files.images.picture import Picture
    from glocal.files.images.write import write_image
    from glocal.files.provenance import to_json

    if files.preview:
        write_image(files.preview, Picture(result.rgb), depth="8", overwrite=True)
    if files.compare:
        sheet = side_by_side([to_srgb(photo), *(to_srgb(p) for p in sources), result.rgb])
        write_image(files.compare, Picture(sheet), overwrite=batch.overwrite)
    if files.recipe:
        with write_whole(files.recipe, overwrite=batch.overwrite) as beside:
            beside.write_text(to_json(recipe) + "\n")


class _Every:
    """True at most once in so many seconds, and less often if what is done then takes long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = 0.0

    def due(self) -> bool:
        """Whether it is time again."""
        import time

        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True

    @contextmanager
    def rarely(self) -> Iterator[None]:
        """Time a block, so that it takes a twentieth of the time at most."""
        import time

        began = time.monotonic()
        yield
        self.seconds = max(self.seconds, 20 * (time.monotonic() - began))
