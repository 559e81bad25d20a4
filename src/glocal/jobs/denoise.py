"""The job behind `glocal denoise`: noise out of photos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glocal.apps.denoise.cost import least_memory, memory_for, parts_text, seconds_for
from glocal.apps.denoise.options import DenoiseFiles, DenoiseOptions
from glocal.jobs.job import Cost, Header, Inputs, Job

if TYPE_CHECKING:
    from glocal.apps.denoise.image import Denoised
    from glocal.jobs.tiles import Source, TilePlan


@dataclass(frozen=True)
class DenoiseJob(Job):
    """Remove noise from photos, gray or colour, 8 bit, 16 bit or float, of any size: white noise and that of cameras.

    Models: photo is a deep network for the noise of cameras; small and large are deep networks for white noise; all three draw
    a graph that they learned. local and nonlocal are the paper's networks, and wide is a larger one of them.
    """

    name: ClassVar[str] = "denoise"
    call: ClassVar[str] = "glocal.apps.denoise.image:denoise"
    Options: ClassVar[Any] = DenoiseOptions
    Files: ClassVar[Any] = DenoiseFiles

    def cost(self, header: Header) -> Cost:
        """Estimate the memory of the picture, one part and the libraries, and some seconds per megapixel."""
        asked = header.size, self.options.model
        return Cost(
            header.text,
            memory_for(*asked),
            seconds_for(*asked),
            parts_text(*asked),
            least=least_memory(*asked, header.decoding),
        )

    def plan(self, source: Source, *, overwrite: bool) -> tuple[TilePlan, dict[str, Any]]:
        """Decide the noise level and the networks once for the whole picture."""
        from glocal.apps.denoise.plan import plan_for
        from glocal.files.images.read import read_image

        flat = None if self.files.noise_profile is None else read_image(self.files.noise_profile).pixels
        plan, estimated = plan_for(source.pixels, self.options, flat=flat, mask=source.mask), self.options.sigma is None
        shown = {"sigma": plan.sigma, "estimated": estimated, "model": plan.options.model}
        return plan, shown | {"lines": [_level_text(plan.sigma, estimated)]}

    def tell(self, result: Denoised, inputs: Inputs) -> dict[str, Any]:
        """Say the noise level and write the residual."""
        from glocal.apps.denoise.image import residual_picture
        from glocal.files.images.write import write_image

        noise = "camera" if result.camera else "white"
        level = _level_text(result.sigma, result.estimated)
        inputs.say(f"{Path(inputs.source).name}: {noise} noise, {level}, model {result.model}")
        shown = {"sigma": result.sigma, "estimated": result.estimated, "model": result.model, "noise": noise}
        if self.files.residual is not None:
            write_image(self.files.residual, residual_picture(result), overwrite=inputs.overwrite)
            shown["residual"] = self.files.residual
        return shown


def _level_text(sigma: float, estimated: bool) -> str:
    return f"sigma {sigma:.4f} ({255 * sigma:.1f} of 255, {'estimated' if estimated else 'given'})"
