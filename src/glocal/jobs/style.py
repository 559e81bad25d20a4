"""The job behind `glocal style`: a photo in the manner of a painting."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glocal.apps.style.options import StyleFiles, StyleOptions
from glocal.errors import ArgumentError
from glocal.jobs.failures import Stopped, visible
from glocal.jobs.interrupt import stop_on_interrupt
from glocal.jobs.job import Cost, Header, Inputs, Job
from glocal.jobs.memory import bytes_text
from glocal.progress import Callback, Progress

if TYPE_CHECKING:
    from glocal.apps.style.transfer import StyleResult


@dataclass(frozen=True)
class StyleJob(Job):
    """Give a photo the strokes and colours of a painting.

    glocal style PHOTO PAINTING -o OUT: several paintings are mixed, see --weights.
    glocal style PHOTOS... --painting PAINTING -o FOLDER/: each photo.
    Ctrl-C saves the best result so far. With a preset of networks, --resume --overwrite continues from there.
    """

    name: ClassVar[str] = "style"
    arguments: ClassVar[str] = "PHOTO PAINTING...; or with --painting: photos, folders, patterns."
    Options: ClassVar[Any] = StyleOptions
    Files: ClassVar[Any] = StyleFiles
    shared: ClassVar[str] = "painting"
    whole: ClassVar[str] = "each step compares the whole picture with the painting, so tiles would have seams"
    announced: ClassVar[bool] = True

    def check(self, count: int) -> None:
        """Refuse as other jobs do, and a checkpoint or weights that do not fit the preset or the paintings."""
        super().check(count)
        if self.files.resume and self.options.method == "patches":
            raise ArgumentError(
                "--resume: the preset patches has no checkpoints. Leave it out, or choose another preset."
            )
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
        gpu = f", {bytes_text(needs.gpu)} on the GPU" if needs.gpu else ""
        return Cost(
            f"{needs.shape[1]} x {needs.shape[0]}",
            memory=needs.memory,
            seconds=needs.seconds,
            parts=f"{needs.levels} levels{gpu}",
            smaller="a smaller --size",
        )

    def smaller(self, header: Header, memory: int) -> str:
        """Name the largest --size that fits; the picture is never made smaller without being asked."""
        from glocal.apps.style.estimate import largest_size

        size = largest_size(header.size, list(header.others), self.options, memory)
        return f"--size {size}" if size and self.options.device == "cpu" else super().smaller(header, memory)

    def run(self, inputs: Inputs, progress: Callback | None = None) -> StyleResult:
        """One photo, with previews and checkpoints if it goes to a file."""
        from glocal.apps.style.checkpoint import Keeper
        from glocal.apps.style.transfer import StyleSources, stylize

        files, weights = self.files, self.files.weights
        regions = [_pair(text) for text in files.regions]
        sources = StyleSources.read(inputs.source, list(inputs.others), files.mask, regions, files.init)
        keeper = Keeper(sources.recipe(self.options, weights), files, inputs.target, inputs.say)
        with stop_on_interrupt(inputs.say) as stopping:

            def each_step(now: Progress) -> bool:
                asked = (progress is not None and progress(now) is True) or stopping()
                keeper.keep(now, stopping=asked)
                return asked

            return stylize(
                sources.photo, sources.paintings, options=self.options, weights=weights, mask=sources.mask,
                regions=sources.regions, init=sources.init, checkpoint=keeper.begun, progress=each_step,
            )  # fmt: skip

    def run_file(self, inputs: Inputs, progress: Callback | None) -> dict[str, Any]:
        """One photo from file to file; a run that was stopped is saved, and its checkpoint stays."""
        from glocal.apps.style.checkpoint import checkpoint_path

        assert inputs.target is not None
        shown = super().run_file(inputs, progress)
        if shown.pop("stopped"):
            again = "; --resume --overwrite continues from there" if checkpoint_path(inputs.target).exists() else ""
            raise Stopped(f"the best so far is in {inputs.target}{again}")
        checkpoint_path(inputs.target).unlink(missing_ok=True)
        return shown

    def tell(self, result: StyleResult, inputs: Inputs) -> dict[str, Any]:
        """Write the last preview, the comparison and the recipe, and return losses and phases."""
        from glocal.apps.style.compare import compared
        from glocal.files.images.picture import Picture
        from glocal.files.images.write import write_image
        from glocal.files.provenance import write_recipe

        recipe = result.saved_recipe(**asdict(self.output))
        if self.files.preview:
            write_image(self.files.preview, Picture(result.rgb), depth="8", overwrite=True)
        if self.files.compare:
            names = [Path(path).name for path in (inputs.source, *inputs.others)]
            labels = [visible(name) for name in (*names, f"result ({self.options.preset})")]
            sheet = compared(result.original, inputs.others, result.rgb, labels)
            write_image(self.files.compare, Picture(sheet), overwrite=inputs.overwrite)
        if self.files.recipe:
            write_recipe(self.files.recipe, recipe, overwrite=inputs.overwrite)
        phases = {name: round(seconds, 3) for name, seconds in result.phases.items()}
        losses = [[losses[0], losses[-1]] for losses in result.losses]
        return {"losses": losses, "phases": phases, "recipe": recipe, "stopped": result.stopped}


def _pair(text: str) -> tuple[str, str]:
    """Return the two names of `--regions A=B`. If a name contains a `=`, the files that exist decide.

    >>> _pair("sky.png=painted_sky.png")
    ('sky.png', 'painted_sky.png')
    """
    parts = text.split("=")
    pairs = [("=".join(parts[:k]), "=".join(parts[k:])) for k in range(1, len(parts))]
    pairs = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
    if not pairs:
        raise ArgumentError(f"--regions: `{text}` names no pair. Write it like sky.png=painted_sky.png.")
    return next((pair for pair in pairs if all(Path(name).is_file() for name in pair)), pairs[0])
