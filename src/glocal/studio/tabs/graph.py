"""The graph tab: click a pixel or a moment, and see which patches the non-local graph joins it to."""

from __future__ import annotations

import html
import shutil
import time
from typing import Any

import gradio as gr

from glocal.errors import ArgumentError, GlocalError
from glocal.jobs.failures import describe
from glocal.studio.controls import changes, controls_for, shown_values
from glocal.studio.graph_view import GraphOptions, GraphView, open_signal, show_neighbors
from glocal.studio.job_tab import Updates
from glocal.studio.orders import look_at_picture, look_at_sound
from glocal.studio.status import as_text, status
from glocal.studio.studio import Studio
from glocal.studio.widgets import make_widget

_LISTED = 25


class GraphTab:
    """A picture or a sound in; a click shows its neighbours with their distances and weights."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.controls = controls_for(GraphOptions)
        with gr.Tab("Graph", id="graph"), gr.Row():
            with gr.Column(scale=2, min_width=300):
                self.file = gr.File(label="Photo or recording", height=140, elem_id="graph-file")
                self.sample = gr.Button("Use the sample", size="sm", elem_id="graph-samples")
                shown = shown_values(GraphOptions, self.controls)
                self.widgets = {n: make_widget(c, shown[n], f"graph-{n}") for n, c in self.controls.items()}
                with gr.Row():
                    self.x = gr.Number(0, label="x", precision=0, minimum=0, elem_id="graph-x")
                    self.y = gr.Number(0, label="y", precision=0, minimum=0, elem_id="graph-y")
                self.go = gr.Button("Show the neighbours", variant="primary", elem_id="graph-run")
            with gr.Column(scale=3, min_width=300):
                self.status = gr.HTML(status("Choose a file, then click into it."), elem_id="graph-status")
                self.picture = gr.Image(
                    label="Click a pixel or a moment", interactive=False, type="filepath", buttons=["fullscreen"], elem_id="graph-picture"
                )  # fmt: skip
                self.patches = gr.Image(
                    label="The patches, the nearest first", show_label=False, interactive=False, type="filepath", buttons=[], elem_id="graph-patches"
                )  # fmt: skip
                self.table = gr.HTML(elem_id="graph-table")
        self._connect()

    def _connect(self) -> None:
        everything = {self.file, self.x, self.y, *self.widgets.values()}
        outputs = [self.status, self.picture, self.patches, self.table, self.x, self.y]
        quiet: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None}
        self.file.change(self._open, everything, outputs, **quiet)
        self.sample.click(self._sample, None, [self.file], **quiet)
        self.go.click(self._show, everything, outputs, **quiet)
        self.picture.select(self._click, everything, outputs, trigger_mode="always_last", **quiet)
        for name, widget in self.widgets.items():
            event = widget.release if self.controls[name].widget == "slider" else widget.submit
            event(self._show, everything, outputs, trigger_mode="always_last", **quiet)

    def _sample(self, request: gr.Request) -> str:
        from glocal import samples

        folder = self.studio.place.new_folder(request.session_hash or "")
        return str(shutil.copyfile(samples.path("bridge.jpg"), folder / "bridge.jpg"))

    def _options(self, page: dict[Any, Any]) -> GraphOptions:
        options = GraphOptions(
            **changes(GraphOptions, self.controls, {n: page[widget] for n, widget in self.widgets.items()})
        )
        if options.patch % 2 == 0:
            message = (
                f"graph: `patch` (={options.patch}) must be odd, so that it has a centre. Use {options.patch + 1}."
            )
            raise ArgumentError(message)
        return options

    def _open(self, page: dict[Any, Any], request: gr.Request) -> Updates:
        """Show what was uploaded."""
        clear = {self.picture: None, self.patches: None, self.table: ""}
        if not page[self.file]:
            return clear | {self.status: status("Choose a file, then click into it.")}
        try:
            path = self.studio.uploaded(page[self.file])
            options = self._options(page)
            folder = self.studio.place.new_folder(request.session_hash or "")
            try:
                look = self.studio.quick(look_at_picture, path, self.studio.max_pixels)
            except GlocalError:
                if path.suffix.lower() not in (".wav", ".flac", ".ogg", ".opus", ".mp3"):
                    raise
                look = self.studio.quick(look_at_sound, path)
            shown = self.studio.quick(open_signal, path, folder, options)
        except GlocalError as error:
            return clear | {self.status: status(as_text(error), "error")}
        session = self.studio.session(request.session_hash)
        session.graph_folder = folder
        width, height = shown.size
        text = f"{look.text}; shown with {width} x {height}. Click into it."
        return clear | {
            self.status: status(text),
            self.picture: str(shown.picture),
            self.x: width // 2,
            self.y: height // 2,
        }

    def _click(self, page: dict[Any, Any], event: gr.SelectData, request: gr.Request) -> Updates:
        page = page | {self.x: event.index[0], self.y: event.index[1]}
        return self._show(page, request) | {self.x: event.index[0], self.y: event.index[1]}

    def _show(self, page: dict[Any, Any], request: gr.Request) -> Updates:
        """Show the neighbours of (x, y)."""
        session = self.studio.session(request.session_hash)
        began = time.perf_counter()
        try:
            if not page[self.file] or session.graph_folder is None:
                message = "graph: there is no picture yet. Upload one."
                raise ArgumentError(message)
            path = self.studio.uploaded(page[self.file])
            options = self._options(page)
            place = int(page[self.x] or 0), int(page[self.y] or 0)
            view = self.studio.quick(show_neighbors, path, session.graph_folder, options, *place)
        except GlocalError as error:
            return {self.status: status(as_text(error) if "error:" in str(error) else describe(error), "error")}
        seconds = time.perf_counter() - began
        x, y = view.place
        text = f"{options.k} nearest patches of ({x}, {y}), found in {1000 * seconds:.0f} ms."
        return {
            self.status: status(text), self.picture: str(view.picture), self.patches: str(view.patches),
            self.table: _table(view),
        }  # fmt: skip


def _table(view: GraphView) -> str:
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in ("", "x", "y", "distance", "weight"))
    rows = "".join(
        f"<tr><th scope=row>{i}</th><td>{x}</td><td>{y}</td><td>{distance:.2f}</td><td>{weight:.3f}</td></tr>"
        for i, (x, y, distance, weight) in enumerate(view.rows[:_LISTED])
    )
    return f'<table class="neighbors"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
