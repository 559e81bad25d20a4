"""The job behind `glocal style`: a photo in the manner of a painting."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glocal.apps.style.options import StyleOptions
from glocal.errors import ArgumentError
from glocal.jobs.failures import Stopped, visible
from glocal.jobs.interrupt import stop_on_interrupt
from glocal.jobs.job import Cost, Header, Inputs, Job
from glocal.options import option, parse_numbers
from glocal.progress import Callback, Progress

if TYPE_CHECKING:
    from glocal.apps.style.transfer import StyleResult

_LEAST_SIZE = 64  # a smaller picture is no use
_HOST_BYTES = 3 * 2**30  # what a run on a GPU takes of the computer's own memory, most of it the GPU's libraries


@dataclass(frozen=True)
class StyleFiles:
    """Further files of a style transfer."""

    painting: tuple[str, ...] = option((), "The painting, when many photos are given; may be given several times.")
    weights: tuple[float, ...] | None = option(
        None, "How much each painting counts, such as 2,1.", parse=parse_numbers, metavar="<list>"
    )
    mask: str | None = option(None, "Stylise only where this picture is white; gray is soft.")
    regions: tuple[str, ...] = option(
        (),
        "PHOTO_MASK=PAINTING_MASK: this part of the photo takes that part of the painting; may be given several times.",
    )
    init: str = option("noise", "Start from noise, photo, or a picture file.")
    preview: str | None = option(None, "A picture that is rewritten during the work.", writes="picture")
    compare: str | None = option(None, "Also write photo, painting and result side by side.", writes="picture")
    resume: bool = option(False, "Go on from the checkpoint that an interrupted run left.")
    checkpoints: bool = option(True, "Keep a checkpoint next to the output during the work.")
    recipe: str | None = option(None, "Also write the recipe to this JSON file.", writes="file")


@dataclass(frozen=True)
class StyleJob(Job):
    """Give a photo the strokes and colours of a painting.

    glocal style PHOTO PAINTING -o OUT: several paintings are mixed, see --weights.
    glocal style PHOTOS... --painting PAINTING -o FOLDER/: each photo.
    Ctrl-C saves the best so far; --resume --overwrite goes on from there.
    """

    name: ClassVar[str] = "style"
    arguments: ClassVar[str] = "PHOTO PAINTING...; or with --painting: photos, folders, patterns."
    Options: ClassVar[Any] = StyleOptions
    Files: ClassVar[Any] = StyleFiles
    shared: ClassVar[str] = "painting"
    whole: ClassVar[str] = (
        "each iteration compares the statistics of the whole picture with the painting's, so tiles would have seams"
    )
    announced: ClassVar[bool] = True

    def check(self, count: int) -> None:
        """Refuse as other jobs do, and weights that do not fit the paintings."""
        super().check(count)
        weights, paintings = self.files.weights, len(self.others)
        if weights is not None and len(weights) != paintings:
            raise ArgumentError(
                f"--weights: {len(weights)} numbers for {paintings} painting(s). Give one number for each painting."
            )

    def single_outputs(self) -> tuple[str, ...]:
        """Return the comparison and the recipe; a preview may show one photo after the other."""
        return tuple(path for path in (self.files.compare, self.files.recipe) if path)

    def cost(self, header: Header) -> Cost:
        """Memory and time from the sizes of the photo and the paintings."""
        from glocal.apps.style.estimate import cost

        needs = cost(header.size, list(header.others), self.options)
        on_cpu = self.options.device == "cpu"
        return Cost(
            f"{needs.shape[1]} x {needs.shape[0]}",
            memory=needs.memory if on_cpu else _HOST_BYTES,
            seconds=needs.seconds if on_cpu else None,
            parts=f"{needs.levels} levels",
            smaller="a smaller --size",
        )

    def smaller(self, header: Header, memory: int) -> str:
        """Name the largest --size that fits; the picture is never made smaller without being asked."""
        from glocal.apps.style.estimate import shape_of

        def fits(size: int) -> bool:
            return replace(self, options=replace(self.options, size=size)).cost(header).memory <= memory

        low, high = _LEAST_SIZE, max(shape_of(header.size, self.options.size))
        if high <= low or not fits(low):
            return super().smaller(header, memory)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return f"--size {low}"

    def run(self, inputs: Inputs, progress: Callback | None = None) -> StyleResult:
        """One photo, with previews and checkpoints if it goes to a file."""
        from glocal.apps.style.checkpoint import Keeper, checkpoint_path, load_checkpoint
        from glocal.apps.style.transfer import StyleSources, stylize

        files, weights = self.files, self.files.weights
        regions = [_pair(text) for text in files.regions]
        sources = StyleSources.read(inputs.source, list(inputs.others), files.mask, regions, files.init)
        recipe = sources.recipe(self.options, weights)
        beside = checkpoint_path(inputs.target) if inputs.target is not None else None
        point = load_checkpoint(beside, recipe) if files.resume and beside is not None else None
        keeper = Keeper(recipe, files.preview, beside if files.checkpoints else None, inputs.say)
        with stop_on_interrupt(inputs.say) as stopping:

            def told(now: Progress) -> bool:
                asked = progress is not None and progress(now) is True
                keeper.keep(now, stopping=asked or stopping())
                return asked or stopping()

            return stylize(
                sources.photo, sources.paintings, options=self.options, weights=weights, mask=sources.mask,
                regions=sources.regions, init=sources.init, checkpoint=point, progress=told,
            )  # fmt: skip

    def run_file(self, inputs: Inputs, progress: Callback | None) -> dict[str, Any]:
        """One photo from file to file; a run that was stopped is saved, and its checkpoint stays."""
        from glocal.apps.style.checkpoint import checkpoint_path

        assert inputs.target is not None
        told = super().run_file(inputs, progress)
        if told.pop("stopped"):
            again = "; --resume --overwrite goes on from there" if checkpoint_path(inputs.target).exists() else ""
            raise Stopped(f"the best so far is in {inputs.target}{again}")
        checkpoint_path(inputs.target).unlink(missing_ok=True)
        return told

    def tell(self, result: StyleResult, inputs: Inputs) -> dict[str, Any]:
        """Write the last preview, the comparison and the recipe, and return losses and phases."""
        from glocal.apps.style.compare import side_by_side
        from glocal.atomic import write_whole
        from glocal.files.images.colors import to_srgb
        from glocal.files.images.picture import Picture
        from glocal.files.images.read import read_image
        from glocal.files.images.write import write_image
        from glocal.files.provenance import to_json

        recipe = result.saved_recipe(**asdict(self.output))
        if self.files.preview:
            write_image(self.files.preview, Picture(result.rgb), depth="8", overwrite=True)
        if self.files.compare:
            paintings = [to_srgb(read_image(path)) for path in inputs.others]
            names = [Path(path).name for path in (inputs.source, *inputs.others)]
            labels = [visible(name) for name in (*names, f"result ({self.options.preset})")]
            sheet = side_by_side([to_srgb(result.original), *paintings, result.rgb], labels=labels)
            write_image(self.files.compare, Picture(sheet), overwrite=inputs.overwrite)
        if self.files.recipe:
            with write_whole(self.files.recipe, overwrite=inputs.overwrite) as beside:
                beside.write_text(to_json(recipe) + "\n")
        phases = {name: round(seconds, 3) for name, seconds in result.phases.items()}
        losses = [[losses[0], losses[-1]] for losses in result.losses]
        return {"losses": losses, "phases": phases, "recipe": recipe, "stopped": result.stopped}


def _pair(text: str) -> tuple[str, str]:
    """Return the two names of `--regions A=B`."""
    mine, _, theirs = text.partition("=")
    if not (mine and theirs):
        raise ArgumentError(f"--regions: `{text}` names no pair. Write it like sky.png=painted_sky.png.")
    return mine, theirs
