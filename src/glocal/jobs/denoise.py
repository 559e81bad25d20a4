"""The job behind `glocal denoise`: noise out of photos."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glocal.apps.denoise.cost import least_memory, memory_for, part_pixels, seconds_for
from glocal.apps.denoise.options import DEEP_MODELS, DenoiseOptions
from glocal.errors import ArgumentError
from glocal.jobs.job import Cost, Header, Inputs, Job
from glocal.options import option
from glocal.progress import Callback

if TYPE_CHECKING:
    import numpy as np

    from glocal.apps.denoise.image import Denoised
    from glocal.apps.denoise.plan import Plan
    from glocal.files.images.picture import Array
    from glocal.jobs.tiles import Pixels, Place, Tiles


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

    Models: photo is a deep network for the noise of cameras; small and large are deep networks for white noise; all three draw
    a graph that they learned. local and nonlocal are the paper's networks, and wide is a larger one of the same kind.
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

    def tiled(self, pixels: Pixels, icc: bytes | None) -> Tiles:
        """Decide the noise level and the networks once for the whole picture."""
        from glocal.apps.denoise.plan import plan_for
        from glocal.files.images.picture import type_of
        from glocal.jobs.tiles import Tiles

        for name in ("mask", "residual"):
            if getattr(self.files, name) is not None:
                message = f"denoise: --{name} is not possible for a picture in tiles. Leave it out."
                raise ArgumentError(message)
        plan = plan_for(pixels, self.options)
        dtype = pixels.dtype if self.output.depth == "keep" else type_of(self.output.depth)
        model = self.options.model
        how = "estimated" if self.options.sigma is None else "given"
        told = {"sigma": plan.sigma, "estimated": self.options.sigma is None, "model": model}
        return Tiles(
            functools.partial(_denoised_place, plan=plan, dtype=dtype),
            dtype,
            functools.partial(_tile_memory, model=model),
            seconds_for((1000, 1000), model) / 1e6,
            told | {"lines": [f"sigma {plan.sigma:.4f} ({255 * plan.sigma:.1f} of 255, {how})"]},
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


def _tile_memory(pixels: int, *, model: str) -> int:
    """Return the bytes for a tile of so many pixels, computed in the smallest parts."""
    side = int(pixels**0.5)
    return least_memory((side, side), model)


def _denoised_place(pixels: Pixels, place: Place, memory: int, *, plan: Plan, dtype: np.dtype[Any]) -> Array:
    """Denoise a rectangle of a large picture, in bands of rows that fit into the memory."""
    import numpy as np

    from glocal.apps.denoise.bands import Window
    from glocal.files.images.picture import to_type

    top, bottom, left, right = place
    around = 2 * (plan.halo or 0)
    most = part_pixels(plan.options.model, memory) or 0
    rows = max(64, (most // (right - left + around) - around) // 16 * 16)
    parts = [
        to_type(plan.denoised(pixels, Window(first, min(bottom, first + rows), left, right)), dtype)
        for first in range(top, bottom, rows)
    ]
    return np.concatenate(parts)
