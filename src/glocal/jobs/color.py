"""The job behind `glocal color`: the colours of one photo on another, and the map behind them as a file, a LUT or a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from glocal.apps.color.options import LIBRARIES, PIXEL, ColorFiles, ColorOptions
from glocal.errors import ArgumentError
from glocal.files.images.formats import coding_memory
from glocal.jobs.job import Cost, Header, Inputs, Job

if TYPE_CHECKING:
    from glocal.apps.color.recolor import Recolored
    from glocal.jobs.tiles import Source, TilePlan


@dataclass(frozen=True)
class ColorJob(Job):
    """Give a photo the colours of another.

    glocal color PHOTO REFERENCE -o OUT: the palette of REFERENCE on PHOTO; several references share one palette.

    glocal color PHOTOS... --reference REFERENCE -o FOLDER/: each photo gets its own map.

    glocal color FRAMES... --map look.glocal -o FOLDER/: all frames get the same map, so a sequence does not flicker.
    """

    name: ClassVar[str] = "color"
    call: ClassVar[str] = "glocal.apps.color.recolor:recolor"
    arguments: ClassVar[str] = "PHOTO REFERENCE...; or with --map or --reference: photos, folders, patterns."
    Options: ClassVar[Any] = ColorOptions
    Files: ClassVar[Any] = ColorFiles
    shared: ClassVar[str] = "reference"
    single: ClassVar[str] = "Make it from one photo, then use --map for all."

    @classmethod
    def split(cls, inputs: Sequence[str], files: ColorFiles) -> tuple[list[str], tuple[str, ...]]:
        """Split as other jobs do; with --map there are no references."""
        if files.map is not None and files.reference:
            raise ArgumentError("color: --map and --reference contradict each other. Give one of them.")
        return super().split(inputs, files) if files.map is None else (list(inputs), ())

    def check(self, count: int) -> None:
        """Refuse as other jobs do, and flags that a map makes useless."""
        if self.files.map is not None:
            changed = [f.name for f in fields(ColorOptions) if getattr(self.options, f.name) != f.default]
            idle = [name for name in changed if name != "strength"]
            if idle:
                raise ArgumentError(
                    f"color: --{idle[0]} has no effect with --map, which carries its own settings. "
                    "Leave it out, or make another map."
                )
            if self.files.save_map or self.files.palette_out:
                raise ArgumentError("color: --map has no palettes. Leave --save-map and --palette-out out.")
        super().check(count)

    def header(self, inputs: Inputs) -> Header:
        """Read the sizes of the photo and the references, and that of the mask as the last one."""
        found = super().header(inputs)
        if self.files.mask is None:
            return found
        from glocal.files.images.read import image_size

        return replace(found, others=(*found.others, image_size(self.files.mask)))

    def cost(self, header: Header) -> Cost:
        """Memory for the file, its encoder, float copies of the photo and the libraries; a third of a second a megapixel."""
        others = [h * w for h, w in header.others]
        memory = LIBRARIES + PIXEL * header.pixels + 20 * sum(others)
        scaled = 4 * others[-1] if self.files.mask is not None and others else 0  # the mask, before it is scaled
        least = min(memory, (640 << 20) + max(coding_memory(max(header.pixels, *others, 0)), header.decoding) + scaled)
        return Cost(header.text, memory=memory, seconds=3 + 0.35e-6 * header.pixels, least=least)

    def plan(self, source: Source, *, overwrite: bool) -> tuple[TilePlan, dict[str, Any]]:
        """Fit the map to a sample of the whole picture."""
        from glocal.apps.color.lut import save_maps
        from glocal.apps.color.tiles import ColorPlan, look_for, sample_of

        whole: Any = {"alpha": source.alpha, "icc": source.icc, "mask": source.mask}
        look, notes = look_for(source.pixels, self.others, self.options, map=self.files.map, **whole)
        shown = save_maps(look, self.files, lambda: sample_of(source.pixels, **whole)[0], overwrite=overwrite)
        shown |= {"notes": list(notes), "lines": [*notes, *shown.get("lines", ())]}
        return ColorPlan(look, source.icc, self.output.depth, source.mask), shown

    def tell(self, result: Recolored, inputs: Inputs) -> dict[str, Any]:
        """Write the further outputs."""
        import torch

        from glocal.apps.color.lut import save_maps
        from glocal.files.images.colors import srgb_in, to_srgb

        def colors() -> Any:
            photo, scratch = result.original, inputs.scratch
            return torch.from_numpy(to_srgb(photo) if scratch is None else srgb_in(scratch, photo))

        shown = save_maps(result.mapping, self.files, colors, overwrite=inputs.overwrite)
        if self.files.palette_out:
            self._draw(result, inputs)
            shown["palettes"] = self.files.palette_out
        if result.losses:
            shown |= {"method": self.options.method, "losses": [result.losses[0], result.losses[-1]]}
        return shown

    def _draw(self, result: Recolored, inputs: Inputs) -> None:
        """Draw the palettes of both methods; the other one runs for this."""
        from glocal.apps.color.draw import palette_sheet
        from glocal.files.images.picture import Picture
        from glocal.files.images.write import write_image

        other = "transport" if self.options.method == "graph" else "graph"
        found = {self.options.method: result.palettes}
        again: Any = replace(self, options=replace(self.options, method=other)).run(inputs)
        found[other] = again.palettes
        graph, transport = found["graph"], found["transport"]
        sheet = palette_sheet(graph.photo, graph.result, transport.result, graph.reference)
        write_image(self.files.palette_out, Picture(sheet), overwrite=inputs.overwrite)
