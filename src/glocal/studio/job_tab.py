"""A tab of the page for one job: uploads, controls, run and stop, the result and its file, and the same as a command."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gradio as gr

from glocal.errors import ArgumentError, GlocalError
from glocal.jobs.job import Job
from glocal.studio.controls import changes, controls_for, shown_values
from glocal.studio.job_queue import Ticket
from glocal.studio.orders import Made, Order, check_pixels, estimate, look_at_picture, run_order
from glocal.studio.status import as_text, cost_text, figures, progress_bar, status
from glocal.studio.studio import Session, Studio
from glocal.studio.views import image_url
from glocal.studio.widgets import make_widget
from glocal.studio.worker import Event

Updates = dict[Any, Any]
_SAME = "as the input"
_WAIT = 0.1


class JobTab(ABC):
    """The parts that all jobs share. A subclass says which uploads there are and how a result is shown."""

    job: ClassVar[type[Job]]
    title: ClassVar[str]
    main: ClassVar[tuple[str, ...]] = ()  # the options that are shown first
    file_options: ClassVar[tuple[str, ...]] = ()  # the fields of `job.Files` that are no names of files
    uploads: ClassVar[dict[str, str]] = {"photo": "Photo"}
    several: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()
    no_pictures: ClassVar[tuple[str, ...]] = ()
    samples: ClassVar[dict[str, str]] = {}
    formats: ClassVar[tuple[str, ...]] = (".png", ".tif", ".jpg", ".webp", ".avif")
    leave_out: ClassVar[tuple[str, ...]] = ()

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.controls = controls_for(self.job.Options, leave_out=self.leave_out)
        self.file_controls = controls_for(self.job.Files, only=self.file_options)
        self.output_controls = controls_for(self.job.Output)
        self.files: dict[str, Any] = {}
        self.looks: dict[str, Any] = {}
        self.widgets: dict[str, Any] = {}
        self.file_widgets: dict[str, Any] = {}
        self.output_widgets: dict[str, Any] = {}
        with gr.Tab(self.title, id=self.job.name), gr.Row():
            with gr.Column(scale=2, min_width=300):
                self._inputs()
            with gr.Column(scale=3, min_width=300):
                self._outputs()
        self._connect()

    # The page

    def _inputs(self) -> None:
        for name in self.uploads:
            if name not in self.optional:
                self._upload(name)
        if self.samples:
            self.sample = gr.Button("Use the samples", size="sm", elem_id=f"{self.job.name}-samples")
        shown = shown_values(self.job.Options, self.controls)
        for name in self.main:
            if name in self.controls:
                self.widgets[name] = make_widget(self.controls[name], shown[name], self._id(name))
        self.more_inputs()
        with gr.Row():
            self.run = gr.Button("Run", variant="primary", elem_id=f"{self.job.name}-run")
            self.stop = gr.Button("Stop", variant="stop", interactive=False, elem_id=f"{self.job.name}-stop")
        with gr.Accordion("More options", open=False, elem_id=f"{self.job.name}-more"):
            for name, control in self.controls.items():
                if name not in self.widgets:
                    self.widgets[name] = make_widget(control, shown[name], self._id(name))
            for name, value in shown_values(self.job.Files, self.file_controls).items():
                self.file_widgets[name] = make_widget(self.file_controls[name], value, self._id(name))
            for name in self.optional:
                self._upload(name)
        with gr.Accordion("Output file", open=False, elem_id=f"{self.job.name}-file"):
            self.format = gr.Dropdown(
                [_SAME, *self.formats], value=_SAME, label="Format", elem_id=f"{self.job.name}-format"
            )
            for name, value in shown_values(self.job.Output, self.output_controls).items():
                self.output_widgets[name] = make_widget(self.output_controls[name], value, self._id(name))

    def _upload(self, name: str) -> None:
        label = self.uploads[name] + (" (optional)" if name in self.optional else "")
        count: Any = "multiple" if name in self.several else "single"
        self.files[name] = gr.File(label=label, file_count=count, height=140, elem_id=f"{self.job.name}-{name}")
        self.looks[name] = gr.HTML(elem_classes="look", padding=False, elem_id=f"{self.job.name}-{name}-look")

    def _id(self, name: str) -> str:
        return f"{self.job.name}-{name}"

    def _outputs(self) -> None:
        self.status = gr.HTML(status("Choose the files and press Run."), elem_id=f"{self.job.name}-status")
        self.live = gr.HTML(elem_classes="live", elem_id=f"{self.job.name}-live")
        self.show()
        self.download = gr.DownloadButton("Download", interactive=False, elem_id=f"{self.job.name}-download")
        self.command = gr.Textbox(
            label="The same as a command",
            buttons=["copy"],
            interactive=False,
            lines=1,
            elem_id=f"{self.job.name}-command",
        )

    def more_inputs(self) -> None:  # noqa: B027  # a tab may have none
        """Add controls of this tab alone."""

    @abstractmethod
    def show(self) -> None:
        """Add what shows a result."""

    def _connect(self) -> None:
        for name in self.uploads:
            self.files[name].change(
                functools.partial(self._look, name),
                [self.files[name]],
                [self.looks[name], self.status],
                show_progress="hidden",
            )
        if self.samples:
            self.sample.click(self._samples, None, [self.files[name] for name in self.samples], show_progress="hidden")
        if "preset" in self.controls:
            others = [name for name in self.controls if name != "preset"]
            self.widgets["preset"].input(
                self._preset, [self.widgets["preset"]], [self.widgets[name] for name in others], show_progress="hidden"
            )
        everything = {*self.files.values(), *self.widgets.values(), *self.file_widgets.values()}
        everything |= {*self.output_widgets.values(), self.format}
        self.run.click(
            self.on_run, everything | set(self.extra_inputs()), self.all_outputs(), show_progress="hidden",
            concurrency_limit=None,
        )  # fmt: skip
        self.stop.click(self._stop, None, [self.status], show_progress="hidden", concurrency_limit=None)

    def extra_inputs(self) -> Sequence[Any]:
        """Return the inputs of this tab alone."""
        return ()

    def all_outputs(self) -> list[Any]:
        """Return everything that a run changes."""
        return [self.status, self.live, self.run, self.stop, self.download, self.command, *self.shown()]

    @abstractmethod
    def shown(self) -> list[Any]:
        """Return what `show` added."""

    # Events

    def _look(self, name: str, paths: Any) -> Any:
        """Show what was uploaded; refuse what cannot be read now, not after the run was started."""
        several = paths if isinstance(paths, list) else [paths] if paths else []
        try:
            looks = [self.look_at(name, self.studio.uploaded(path)) for path in several]
        except GlocalError as error:
            return "", status(as_text(error), "error")
        return figures(looks), status("Ready." if looks else "Choose the files and press Run.")

    def look_at(self, name: str, path: Path) -> Any:
        """Look at one upload in the quick worker; `name` says for what it is."""
        return self.studio.quick(look_at_picture, path, self.studio.max_pixels)

    def _samples(self, request: gr.Request) -> Any:
        import shutil

        from glocal import samples

        folder = self.studio.place.new_folder(request.session_hash or "")
        found = []
        for name, sample in self.samples.items():
            shutil.copyfile(samples.path(sample), folder / sample)
            found.append([str(folder / sample)] if name in self.several else str(folder / sample))
        return found if len(found) > 1 else found[0]

    def _preset(self, preset: str) -> Any:
        shown = shown_values(self.job.Options, self.controls, preset=preset)
        return [shown[name] for name in self.controls if name != "preset"]

    def _stop(self, request: gr.Request) -> Any:
        """Ask all jobs of the tab to stop. The run shows that itself: an answer of this click could come after its end."""
        session = self.studio.session(request.session_hash)
        tickets = session.tickets.get(self.job.name, [])
        for ticket in reversed(tickets):  # the last first, so that none of them begins meanwhile
            self.studio.queue.stop(ticket)
        return gr.skip() if tickets else status("Nothing runs.")

    async def on_run(self, page: dict[Any, Any], request: gr.Request) -> AsyncIterator[Updates]:
        """Run the job and show what happens, until its end."""
        session = self.studio.session(request.session_hash)
        try:
            orders = await asyncio.to_thread(self.orders, session, page)
        except GlocalError as error:
            yield {self.status: status(as_text(error), "error")}
            return
        async for updates in self.follow(session, orders):
            yield updates

    async def follow(self, session: Session, orders: list[Order]) -> AsyncIterator[Updates]:
        """Put orders into the queue and show them one after the other."""
        tickets: list[Ticket] = []
        try:
            try:
                for order in orders:
                    cost = await asyncio.to_thread(self.studio.quick, estimate, order)
                    tickets.append(self.studio.queue.submit(session.name, run_order, order, cost=cost))
            except GlocalError as error:
                yield {self.status: status(as_text(error), "error")}
                return
            session.tickets[self.job.name] = tickets
            yield self.begun(orders)
            for order, ticket in zip(orders, tickets, strict=True):
                async for updates in self._watch(session, order, ticket):
                    yield updates
        finally:
            session.tickets.pop(self.job.name, None)
            for ticket in tickets:
                if not ticket.ended.is_set():  # the page was closed
                    self.studio.queue.stop(ticket)
                    self.studio.queue.stop(ticket)
        yield {self.run: gr.update(interactive=True), self.stop: gr.update(interactive=False), self.live: ""}

    def begun(self, orders: list[Order]) -> Updates:
        """Show that a run began."""
        return {
            self.run: gr.update(interactive=False), self.stop: gr.update(interactive=True),
            self.command: orders[0].command(), self.download: gr.update(interactive=False),
        }  # fmt: skip

    async def _watch(self, session: Session, order: Order, ticket: Ticket) -> AsyncIterator[Updates]:
        said: list[str] = []
        shown = ""
        while True:
            ended = ticket.ended.is_set()  # asked before the events are taken, so that none is lost
            for event in ticket.events():
                if event.name == "message":
                    said.append(event.value)
                elif event.name == "stopping":
                    yield {self.status: status("Stopping. Press Stop again to end it at once.")}
                elif event.name == "preview":
                    yield {self.live: f'<img src="{image_url(event.value, "jpeg")}" alt="The picture so far">'}
                elif event.name == "progress":
                    shown = progress_bar(event.value)
                    yield {self.status: shown}
                else:
                    yield self._ended(session, event, said)
            if ended:
                return
            before = self.studio.queue.position(ticket)
            text = status(f"Waiting: {before} job(s) first." if before else f"Starting: {cost_text(ticket.cost)}.")
            if not shown or before:
                if shown != text:
                    yield {self.status: text}
                shown = text if before else shown or text
            await asyncio.sleep(_WAIT)

    def _ended(self, session: Session, event: Event, said: list[str]) -> Updates:
        if event.name == "failed":
            return {self.status: status(event.value, "error")}
        if not isinstance(event.value, Made):
            return {self.status: status("Stopped.")}
        made: Made = event.value
        results = session.made.setdefault(self.job.name, [])
        if made.order.kept is not None:  # a run that went on replaces what it had when it was stopped
            results[:] = [one for one in results if one.order.kept != made.order.kept]
        results.append(made)
        return (
            self.finished(made)
            | {self.status: status(" ".join([*self.facts(made), *said]) or "Done.")}
            | self.listed(session)
        )

    def finished(self, made: Made) -> Updates:
        """Show a result."""
        return {
            self.download: gr.update(value=str(made.file), interactive=True, label=f"Download {made.file.name}"),
            self.command: made.order.command(),
        }  # fmt: skip

    def listed(self, session: Session) -> Updates:
        """Show all results of a session, where a tab does."""
        return {}

    def facts(self, made: Made) -> list[str]:
        """Say what is worth knowing about a result."""
        return ["Stopped; this is the best so far." if made.stopped else "Done."]

    # Orders

    def orders(self, session: Session, page: dict[Any, Any]) -> list[Order]:
        """Make the orders of one press of Run.

        Raises
        ------
        GlocalError
            A file is missing or wrong, or an option cannot be used.
        """
        return [self.order(session, page)]

    def order(self, session: Session, page: dict[Any, Any], **more: Any) -> Order:
        """Make one order: the job with its options, in a folder with its files."""
        names, uploads = [], []
        for name in self.uploads:
            given = page[self.files[name]]
            several = given if isinstance(given, list) else [given] if given else []
            if not several and self.is_needed(name, page):
                message = f"{self.job.name}: there is no {self.uploads[name].lower()}. Upload one."
                raise ArgumentError(message)
            names += [name] * len(several)
            uploads += several
        chosen = changes(self.job.Options, self.controls, {n: page[w] for n, w in self.widgets.items()}) | more
        further = changes(self.job.Files, self.file_controls, {n: page[w] for n, w in self.file_widgets.items()})
        output = changes(self.job.Output, self.output_controls, {n: page[w] for n, w in self.output_widgets.items()})
        options = self.job.Options.given(chosen)
        folder, found = self.studio.collected(session.name, uploads)
        roles: dict[str, list[str]] = {name: [] for name in self.uploads}
        for name, file in zip(names, found, strict=True):
            roles[name].append(file)
        pictures = [folder / file for name in self.uploads if name not in self.no_pictures for file in roles[name]]
        self.studio.quick(check_pixels, pictures, self.studio.max_pixels)
        first = next(iter(self.uploads))
        source = Path(roles[first][0])
        suffix = source.suffix if page[self.format] == _SAME else page[self.format]
        target = f"{source.stem}_{self.job.name}{suffix}"
        files = self.job.Files(**(further | self.named_files(roles, target)))
        job = self.job(options, files, self.job.Output(**output), tuple(roles.get(self.job.shared, ())))
        job.check(1)
        return Order(job, folder, source.name, target)

    def is_needed(self, name: str, page: dict[Any, Any]) -> bool:
        """Whether a run needs this upload."""
        return name not in self.optional

    @abstractmethod
    def named_files(self, roles: dict[str, list[str]], target: str) -> dict[str, Any]:
        """Return the fields of `job.Files` that name files: uploads and further outputs.

        Raises
        ------
        ArgumentError
            The uploads do not fit each other.
        """


def only(names: list[str]) -> str | None:
    """Return the name of the upload, or None if there is none."""
    return names[0] if names else None
