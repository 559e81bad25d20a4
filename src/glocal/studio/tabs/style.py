"""The style tab: watch the picture being painted, stop and go on, mix it with the photo, compare seeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import gradio as gr

from glocal.errors import ArgumentError, GlocalError
from glocal.jobs.job import Job
from glocal.jobs.style import StyleJob
from glocal.studio.job_tab import JobTab, Updates, only
from glocal.studio.orders import Made, Order, restyle
from glocal.studio.status import as_text, status
from glocal.studio.studio import Session
from glocal.studio.widgets import comparison


class StyleTab(JobTab):
    """Photo and paintings in, a painted photo out."""

    job: ClassVar[type[Job]] = StyleJob
    title: ClassVar[str] = "Style"
    main: ClassVar[tuple[str, ...]] = ("preset", "size", "structure", "seed")
    file_options: ClassVar[tuple[str, ...]] = ("weights", "init")
    uploads: ClassVar[dict[str, str]] = {
        "photo": "Photo",
        "painting": "Painting",
        "mask": "Mask: white where to paint",
        "region": "Regions of the photo: a mask for each",
        "painted": "Regions of the painting that they take: as many masks, in the same order",
        "start": "Picture to start from",
    }
    several: ClassVar[tuple[str, ...]] = ("painting", "region", "painted")
    optional: ClassVar[tuple[str, ...]] = ("mask", "region", "painted", "start")
    samples: ClassVar[dict[str, str]] = {"photo": "bridge.jpg", "painting": "van_gogh_auvers.jpg"}
    leave_out: ClassVar[tuple[str, ...]] = ("strength",)  # a slider on the finished picture

    def more_inputs(self) -> None:
        """Add the number of seeds."""
        self.seeds = gr.Slider(
            elem_id="style-seeds",
            minimum=1,
            maximum=4,
            value=1,
            step=1,
            label="Seeds",
            info="Pictures side by side, each with the next seed.",
        )

    def extra_inputs(self) -> Sequence[Any]:
        """Return the number of seeds."""
        return (self.seeds,)

    def show(self) -> None:
        """Add the comparison, the strength and the gallery."""
        self.compare = comparison("style-compare")
        with gr.Row():
            self.strength = gr.Slider(
                0, 1, value=1, step=0.01, label="Strength", info="0 is the photo. Changes the finished picture at once.",
                interactive=False, elem_id="style-strength",
            )  # fmt: skip
            self.go_on = gr.Button("Go on", interactive=False, elem_id="style-go-on")
        self.gallery = gr.Gallery(
            label="This session",
            columns=4,
            height=220,
            object_fit="contain",
            interactive=False,
            elem_id="style-gallery",
        )

    def shown(self) -> list[Any]:
        """Return what a run changes here."""
        return [self.compare, self.strength, self.go_on, self.gallery]

    def _connect(self) -> None:
        super()._connect()
        after = [self.compare, self.strength, self.download, self.command, self.status]
        self.strength.input(
            self._mix,
            [self.strength],
            after,
            show_progress="hidden",
            trigger_mode="always_last",
            concurrency_limit=None,
        )
        self.go_on.click(self._continue, None, self.all_outputs(), show_progress="hidden", concurrency_limit=None)
        self.gallery.select(self._choose, None, [*after, self.go_on], show_progress="hidden")

    def named_files(self, roles: dict[str, list[str]], target: str) -> dict[str, Any]:
        """Return mask, pairs of regions, and the picture to start from."""
        mine, theirs = roles["region"], roles["painted"]
        if len(mine) != len(theirs):
            message = (
                f"style: there are {len(mine)} regions of the photo and {len(theirs)} of the painting. "
                "Upload them in pairs."
            )
            raise ArgumentError(message)
        pairs = tuple(f"{one}={other}" for one, other in zip(mine, theirs, strict=True))
        start = {"init": roles["start"][0]} if roles["start"] else {}
        return {"mask": only(roles["mask"]), "regions": pairs, **start}

    def orders(self, session: Session, page: dict[Any, Any]) -> list[Order]:
        """Make one order for each seed."""
        found = []
        for k in range(int(page[self.seeds])):
            seed = int(page[self.widgets["seed"]] or 0) + k
            order = self.order(session, page, **({"seed": seed} if k else {}))
            found.append(replace(order, kept=self.studio.place.new_private_file(session.name, ".result")))
        return found

    def begun(self, orders: list[Order]) -> Updates:
        """Show that a run began."""
        off = {self.strength: gr.update(interactive=False), self.go_on: gr.update(interactive=False)}
        return super().begun(orders) | off

    def finished(self, made: Made) -> Updates:
        """Show a result. One that was stopped can go on, if its preset has checkpoints."""
        options = made.order.job.options
        return super().finished(made) | {
            self.compare: _pair(made),
            self.strength: gr.update(value=options.strength, interactive=True),
            self.go_on: gr.update(interactive=made.stopped and options.method == "networks"),
            self.live: "",
        }

    def listed(self, session: Session) -> Updates:
        """Show the gallery."""
        results = session.made[self.job.name]
        session.shown = len(results) - 1
        return {self.gallery: [(str(made.views["after"]), _caption(made)) for made in results]}

    def facts(self, made: Made) -> list[str]:
        """Say the seed."""
        return [*super().facts(made), f"Seed {made.order.job.options.seed}."]

    async def _mix(self, strength: float, request: gr.Request) -> Updates:
        session = self.studio.session(request.session_hash)
        results = session.made.get(self.job.name, [])
        if not results:
            return {self.status: status("There is no picture yet.")}
        try:
            made = await asyncio.to_thread(self.studio.quick, restyle, results[session.shown], float(strength))
        except GlocalError as error:
            return {self.status: status(as_text(error), "error")}
        results[session.shown] = made
        updates = self.finished(made)
        return {part: updates[part] for part in (self.compare, self.download, self.command)}

    async def _continue(self, request: gr.Request) -> AsyncIterator[Updates]:
        """Go on with a run that was stopped, from its checkpoint."""
        session = self.studio.session(request.session_hash)
        made = session.made[self.job.name][session.shown]
        job = replace(made.order.job, files=replace(made.order.job.files, resume=True))
        async for updates in self.follow(session, [replace(made.order, job=job)]):
            yield updates

    def _choose(self, event: gr.SelectData, request: gr.Request) -> Updates:
        session = self.studio.session(request.session_hash)
        session.shown = int(event.index)
        made = session.made[self.job.name][session.shown]
        updates = self.finished(made)
        updates.pop(self.live)
        return updates | {self.status: status(" ".join(self.facts(made)))}


def _pair(made: Made) -> tuple[str, str]:
    return str(made.views["before"]), str(made.views["after"])


def _caption(made: Made) -> str:
    options = made.order.job.options
    return f"{options.preset}, seed {options.seed}" + (", stopped" if made.stopped else "")
