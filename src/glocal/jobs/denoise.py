"""The job behind `glocal denoise`: noise out of photos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glocal.apps.denoise.cost import least_memory, memory_for, seconds_for
from glocal.apps.denoise.options import DEEP_MODELS, DenoiseOptions
from glocal.jobs.job import Cost, Header, Inputs, Job
from glocal.options import option
from glocal.progress import Callback

if TYPE_CHECKING:
    from glocal.apps.denoise.image import Denoised


@dataclass(frozen=True)
class DenoiseFiles:
    """Further files of a denoised picture."""

    mask: str | None = option(None, "Denoise only where this picture is white; gray is soft.")
    noise_profile: str | None = option(
        None, "Measure the noise on this photo of a flat area, taken with the same camera and settings."
    )
    residual: str | None = option(
        None, "Also write what was removed, magnified around middle gray, to this picture.", writes="picture"
    )


@dataclass(frozen=True)
class DenoiseJob(Job):
    """Remove noise from photos, gray or colour, 8 bit, 16 bit or float, of any size: white noise and that of cameras.

    Models: small is a deep network on a graph that it learns to draw; local and nonlocal are the paper's networks, and wide
    is a larger one of the same kind.
    """

    name: ClassVar[str] = "denoise"
    Options: ClassVar[Any] = DenoiseOptions
    Files: ClassVar[Any] = DenoiseFiles

    def cost(self, header: Header) -> Cost:
        """Estimate the memory of the picture, one part and the libraries, and some seconds per megapixel."""
        height, width = header.size
        model = self.options.model
        tiles = 1 if header.pixels <= 1 << 21 else -(-height // 1160) * -(-width // 1160)
        bands = -(-height // max(32, (1 << 19) // width))
        return Cost(
            header.text,
            memory=memory_for(header.size, model),
            seconds=seconds_for(header.size, model),
            parts=f"{tiles} tile(s)" if model in ("auto", *DEEP_MODELS) else f"{bands} band(s)",
            least=least_memory(header.size, model),
        )

    def run(self, inputs: Inputs, progress: Callback | None = None) -> Denoised:
        """One picture."""
        from glocal.apps.denoise.image import denoise

        return denoise(
            inputs.source,
            options=self.options,
            mask=self.files.mask,
            noise_profile=self.files.noise_profile,
            scratch=inputs.scratch,
            progress=progress,
        )

    def tell(self, result: Denoised, inputs: Inputs) -> dict[str, Any]:
        """Say the noise level and write the residual."""
        from glocal.apps.denoise.image import residual_picture
        from glocal.files.images.write import write_image

        how = "estimated" if result.estimated else "given"
        name = Path(inputs.source).name
        what = "camera noise" if result.camera else "white noise"
        inputs.say(
            f"{name}: {what}, sigma {result.sigma:.4f} ({255 * result.sigma:.1f} of 255, {how}), model {result.model}"
        )
        told: dict[str, Any] = {"sigma": result.sigma, "estimated": result.estimated, "model": result.model}
        told["noise"] = "camera" if result.camera else "white"
        if self.files.residual is not None:
            write_image(self.files.residual, residual_picture(result), overwrite=inputs.overwrite)
            told["residual"] = self.files.residual
        return told
