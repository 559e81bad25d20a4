"""The colour tab: the colours of one photo on another, with palettes, a live strength and the map as a LUT."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gradio as gr

from glocal.errors import GlocalError
from glocal.jobs.color import ColorFiles, ColorJob
from glocal.jobs.job import Job
from glocal.studio.job_tab import JobTab, Updates, comparison, with_strength
from glocal.studio.orders import Made, preview_colors
from glocal.studio.status import as_text, status


class ColorTab(JobTab):
    """Photo and references in, a recoloured photo, its palettes and a LUT out."""

    job: ClassVar[type[Job]] = ColorJob
    title: ClassVar[str] = "Colour"
    main: ClassVar[tuple[str, ...]] = ("method", "luminance", "protect")
    uploads: ClassVar[dict[str, str]] = {
        "photo": "Photo",
        "reference": "Reference: where the colours come from",
        "mask": "Mask: white where to change",
    }
    several: ClassVar[tuple[str, ...]] = ("reference",)
    optional: ClassVar[tuple[str, ...]] = ("mask",)
    samples: ClassVar[dict[str, str]] = {"photo": "temple.jpg", "reference": "sunset.jpg"}
    leave_out: ClassVar[tuple[str, ...]] = ("strength",)

    def more_inputs(self) -> None:
        """Add the size of the LUT."""
        self.lut_size = gr.Radio(
            ["33", "65"], value="33", label="LUT size", info="Points along an axis of the .cube file."
        )

    def extra_inputs(self) -> Any:
        """Return the size of the LUT."""
        return (self.lut_size,)

    def show(self) -> None:
        """Add the comparison, the strength, the palettes and the LUT."""
        self.compare = comparison("color-compare")
        self.strength = gr.Slider(
            0, 2, value=1, step=0.01, label="Strength", info="0 is the photo, 1 the full change.", interactive=False,
            elem_id="color-strength",
        )  # fmt: skip
        self.palettes = gr.Image(label="Palettes", interactive=False, type="filepath", elem_id="color-palettes")
        self.lut = gr.DownloadButton("Download LUT", interactive=False, elem_id="color-lut")

    def shown(self) -> list[Any]:
        """Return what a run changes here."""
        return [self.compare, self.strength, self.palettes, self.lut]

    def _connect(self) -> None:
        super()._connect()
        self.strength.input(
            self._live, [self.strength], [self.compare, self.status], show_progress="hidden", trigger_mode="always_last",
            concurrency_limit=None,
        )  # fmt: skip
        self.strength.release(
            self._settle, [self.strength], self.all_outputs(), show_progress="hidden", concurrency_limit=None
        )

    def orders(self, session: Any, page: dict[Any, Any]) -> Any:
        """Make the order with the LUT that was chosen."""
        order = self.order(session, page)
        return [replace(order, job=replace(order.job, files=replace(order.job.files, lut_size=page[self.lut_size])))]

    def made_job(self, options: Any, output: Any, roles: dict[str, list[str]], target: str) -> Job:
        """Make the job; it also writes the map, the LUT and the palettes."""
        stem = Path(target).stem
        files = ColorFiles(
            mask=roles["mask"][0] if roles["mask"] else None, save_map=f"{stem}.glocal", lut=(f"{stem}.cube",),
            palette_out=f"{stem}_palettes.png",
        )  # fmt: skip
        return ColorJob(options, files, output, tuple(roles["reference"]))

    def finished(self, made: Made) -> Updates:
        """Show a result."""
        lut = next(path for path in made.files if path.suffix == ".cube")
        return super().finished(made) | {
            self.compare: (str(made.views["before"]), str(made.views["after"])),
            self.strength: gr.update(value=made.order.job.options.strength, interactive=True),
            self.palettes: str(made.views["palettes"]),
            self.lut: gr.update(value=str(lut), interactive=True, label=f"Download {lut.name}"),
        }

    def facts(self, made: Made) -> list[str]:
        """Say how well the LUT repeats the map."""
        return [*super().facts(made), *made.facts.get("lines", ())]

    async def _live(self, strength: float, request: gr.Request) -> Updates:
        """Show another strength while the slider moves."""
        results = self.studio.session(request.session_hash).made.get(self.job.name)
        if not results:
            return {self.status: status("There is no picture yet.")}
        try:
            view = await asyncio.to_thread(self.studio.quick, preview_colors, results[-1], float(strength))
        except GlocalError as error:
            return {self.status: status(as_text(error), "error")}
        return {self.compare: (str(results[-1].views["before"]), str(view))}

    async def _settle(self, strength: float, request: gr.Request) -> AsyncIterator[Updates]:
        """Make the files again when the slider stands still."""
        session = self.studio.session(request.session_hash)
        results = session.made.get(self.job.name)
        if results and results[-1].order.job.options.strength != strength:
            async for updates in self.follow(session, [with_strength(results[-1].order, float(strength))]):
                yield updates
