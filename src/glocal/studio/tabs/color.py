"""The colour tab: the colours of one photo on another, with palettes, a live strength and the map as a LUT."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import gradio as gr

from glocal.errors import GlocalError
from glocal.jobs.color import ColorFiles, ColorJob
from glocal.jobs.job import Job
from glocal.studio.job_tab import JobTab, Updates, only
from glocal.studio.orders import Made, look_at_map, preview_colors
from glocal.studio.status import as_text, status
from glocal.studio.widgets import comparison


class ColorTab(JobTab):
    """Photo and references in, a recoloured photo, its palettes and a LUT out."""

    job: ClassVar[type[Job]] = ColorJob
    title: ClassVar[str] = "Colour"
    main: ClassVar[tuple[str, ...]] = ("method", "luminance", "protect")
    uploads: ClassVar[dict[str, str]] = {
        "photo": "Photo",
        "reference": "Reference: where the colours come from",
        "mask": "Mask: white where to change",
        "map": "Map instead of a reference: .glocal, .cube, or a HaldCLUT .png",
    }
    file_options: ClassVar[tuple[str, ...]] = ("lut_size",)
    several: ClassVar[tuple[str, ...]] = ("reference",)
    optional: ClassVar[tuple[str, ...]] = ("mask", "map")
    no_pictures: ClassVar[tuple[str, ...]] = ("map",)
    samples: ClassVar[dict[str, str]] = {"photo": "temple.jpg", "reference": "sunset.jpg"}
    leave_out: ClassVar[tuple[str, ...]] = ("strength",)

    def show(self) -> None:
        """Add the comparison, the strength, the palettes and the LUT."""
        self.compare = comparison("color-compare")
        self.strength = gr.Slider(
            0, 2, value=1, step=0.01, label="Strength", info="0 is the photo, 1 the full change.", interactive=False,
            elem_id="color-strength",
        )  # fmt: skip
        self.palettes = gr.Image(label="Palettes", interactive=False, type="filepath", elem_id="color-palettes")
        with gr.Row():
            self.lut = gr.DownloadButton("Download LUT", interactive=False, elem_id="color-lut")
            self.map = gr.DownloadButton("Download map", interactive=False, elem_id="color-map-file")

    def shown(self) -> list[Any]:
        """Return what a run changes here."""
        return [self.compare, self.strength, self.palettes, self.lut, self.map]

    def _connect(self) -> None:
        super()._connect()
        self.strength.input(
            self._live, [self.strength], [self.compare, self.status], show_progress="hidden", trigger_mode="always_last",
            concurrency_limit=None,
        )  # fmt: skip
        self.strength.release(
            self._settle, [self.strength], self.all_outputs(), show_progress="hidden", concurrency_limit=None
        )

    def look_at(self, name: str, path: Path) -> Any:
        """Look at one upload in the quick worker."""
        return (
            self.studio.quick(look_at_map, path, self.studio.max_pixels)
            if name == "map"
            else super().look_at(name, path)
        )

    def is_needed(self, name: str, page: dict[Any, Any]) -> bool:
        """Whether a run needs this upload: a map replaces the reference."""
        return super().is_needed(name, page) and not (name == "reference" and page[self.files["map"]])

    def named_files(self, roles: dict[str, list[str]], target: str) -> dict[str, Any]:
        """Return mask and map, and where to write map, LUT and palettes; a map that was given has no palettes."""
        stem = Path(target).stem
        files: dict[str, Any] = {"mask": only(roles["mask"]), "map": only(roles["map"]), "lut": (f"{stem}.cube",)}
        ColorJob.split([target], ColorFiles(map=files["map"], reference=tuple(roles["reference"])))
        return files | ({} if roles["map"] else {"save_map": f"{stem}.glocal", "palette_out": f"{stem}_palettes.png"})

    def finished(self, made: Made) -> Updates:
        """Show a result."""
        lut = next(path for path in made.files if path.suffix == ".cube")
        own = next((path for path in made.files if path.suffix == ".glocal"), None)
        return super().finished(made) | {
            self.compare: (str(made.views["before"]), str(made.views["after"])),
            self.strength: gr.update(value=made.order.job.options.strength, interactive=True),
            self.palettes: str(made.views["palettes"]) if "palettes" in made.views else None,
            self.lut: gr.update(value=str(lut), interactive=True, label=f"Download {lut.name}"),
            self.map: gr.update(
                value=str(own) if own else None,
                interactive=own is not None,
                label=f"Download {own.name}" if own else "Download map",
            ),
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
            async for updates in self.follow(session, [results[-1].order.with_strength(float(strength))]):
                yield updates
