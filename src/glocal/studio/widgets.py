"""Components of the page: the widget of a control, and the slider that compares two pictures."""

from __future__ import annotations

from typing import Any

import gradio as gr

from glocal.studio.controls import Control


def make_widget(control: Control, value: Any, name: str) -> Any:
    """Make the component of a control."""
    same = {"label": control.label, "info": control.help, "value": value, "elem_id": name}
    if control.widget == "check":
        return gr.Checkbox(**same)
    if control.widget == "choice":
        make = gr.Radio if len(control.choices) <= 4 else gr.Dropdown
        return make(choices=list(control.choices), **same)
    if control.widget == "choices":
        return gr.CheckboxGroup(choices=list(control.choices), **same)
    if control.widget == "slider":
        return gr.Slider(control.minimum or 0, control.maximum or 1, step=control.step, **same)
    if control.widget == "number":
        return gr.Number(minimum=control.minimum, precision=0 if control.whole else None, **same)
    return gr.Textbox(lines=1, **same)


def comparison(name: str) -> Any:
    """Make the slider that compares the photo with its result."""
    return gr.ImageSlider(
        label="Photo and result", type="filepath", interactive=False, buttons=["fullscreen"], elem_id=name
    )
