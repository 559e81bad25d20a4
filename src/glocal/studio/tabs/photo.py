"""The photo tab: remove noise, look at single pixels, adjust the noise level."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gradio as gr

from glocal.jobs.denoise import DenoiseJob
from glocal.jobs.job import Job
from glocal.studio.job_tab import JobTab, Updates, only
from glocal.studio.orders import CROP, Made, crop
from glocal.studio.status import status


class PhotoTab(JobTab):
    """A noisy photo in, a clean one and what was removed out."""

    job: ClassVar[type[Job]] = DenoiseJob
    title: ClassVar[str] = "Photo"
    main: ClassVar[tuple[str, ...]] = ("model", "strength")
    uploads: ClassVar[dict[str, str]] = {
        "photo": "Photo",
        "mask": "Mask: white where to denoise",
        "profile": "Noise profile: a photo of a flat area, taken with the same camera and settings",
    }
    optional: ClassVar[tuple[str, ...]] = ("mask", "profile")
    samples: ClassVar[dict[str, str]] = {"photo": "meadow.jpg"}

    def show(self) -> None:
        """Add the comparison at one screen pixel a pixel, the noise level and the residual."""
        self.compare = gr.ImageSlider(
            label="Before and after, one pixel of the screen for each of the photo", type="filepath", interactive=False,
            buttons=["fullscreen"], height=CROP[1] + 8, elem_id="denoise-compare", elem_classes="one-to-one",
        )  # fmt: skip
        self.level = gr.Slider(
            0.1, 75, step=0.1, label="Noise level, of 255", info="As it was found. Change it to run again with your level.",
            interactive=False, elem_id="denoise-level",
        )  # fmt: skip
        self.residual = gr.Image(
            label="What was removed, magnified. Click to look there at 1:1",
            interactive=False,
            type="filepath",
            elem_id="denoise-residual",
        )

    def shown(self) -> list[Any]:
        """Return what a run changes here."""
        return [self.compare, self.level, self.residual]

    def _connect(self) -> None:
        super()._connect()
        self.level.release(
            self._again, [self.level], self.all_outputs(), show_progress="hidden", concurrency_limit=None
        )

    def named_files(self, roles: dict[str, list[str]], target: str) -> dict[str, Any]:
        """Return mask, noise profile, and where to write what was removed."""
        return {
            "mask": only(roles["mask"]),
            "noise_profile": only(roles["profile"]),
            "residual": f"{Path(target).stem}_residual.png",
        }

    def finished(self, made: Made) -> Updates:
        """Show a result."""
        level = min(75.0, max(0.1, round(255 * float(made.facts["sigma"]), 1)))
        return super().finished(made) | {
            self.compare: self._cut(made, 0.5, 0.5),
            self.level: gr.update(value=level, interactive=True),
            self.residual: str(made.views["residual"]),
        }

    def facts(self, made: Made) -> list[str]:
        """Say the noise level."""
        how = "found" if made.facts["estimated"] else "given"
        return [
            *super().facts(made),
            f"Noise level {255 * made.facts['sigma']:.1f} of 255 ({how}), model {made.facts['model']}.",
        ]

    def _cut(self, made: Made, x: float, y: float) -> tuple[str, str]:
        before, after = self.studio.quick(crop, made, x, y)
        return str(before), str(after)

    def _move(self, event: gr.SelectData, request: gr.Request) -> Any:
        """Look at another place."""
        results = self.studio.session(request.session_hash).made.get(self.job.name)
        if not results:
            return gr.skip()
        width, height = results[-1].facts["residual_size"]
        return self._cut(results[-1], event.index[0] / width, event.index[1] / height)

    async def _again(self, level: float, request: gr.Request) -> AsyncIterator[Updates]:
        """Run again with another noise level."""
        session = self.studio.session(request.session_hash)
        results = session.made.get(self.job.name)
        if not results:
            yield {self.status: status("There is no picture yet.")}
            return
        order = results[-1].order
        options = replace(order.job.options, sigma=round(level / 255, 4))
        async for updates in self.follow(session, [replace(order, job=replace(order.job, options=options))]):
            yield updates
