"""The page: its tabs, its look, and what happens when it is opened and closed."""

from __future__ import annotations

from typing import Any

import gradio as gr

from glocal.studio.studio import Studio
from glocal.studio.tabs.color import ColorTab
from glocal.studio.tabs.graph import GraphTab
from glocal.studio.tabs.photo import PhotoTab
from glocal.studio.tabs.speech import SpeechTab
from glocal.studio.tabs.style import StyleTab

TABS = (StyleTab, ColorTab, PhotoTab, SpeechTab, GraphTab)
CSS = """
.status { margin: .25rem 0; font-size: 1rem }
.status.error { border-left: 4px solid #d33; padding-left: .6rem }
.look figure { display: inline-block; margin: 0 .5rem .25rem 0; max-width: 100% }
.look img { max-height: 120px; max-width: 100%; border-radius: 4px }
.look figcaption { font-size: .8rem; opacity: .8; overflow-wrap: anywhere }
.live img { width: 100%; max-height: 32rem; object-fit: contain }
progress { width: 100%; height: .8rem }
.neighbors { font-size: .85rem; border-collapse: collapse } .neighbors :is(td, th) { padding: 0 .6rem; text-align: right }
.one-to-one img { object-fit: none !important }
"""
# The fonts of the system: the page loads nothing.
THEME = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]).set(
    block_info_text_color="*neutral_600", block_info_text_color_dark="*neutral_300"
)


def build_page(studio: Studio) -> Any:
    """Make the page of a studio.

    Returns
    -------
    gradio.Blocks
        To be mounted; nothing runs yet.
    """
    with gr.Blocks(title="glocal studio", analytics_enabled=False, delete_cache=(3600, 86400)) as page:
        gr.Markdown("# glocal studio")
        with gr.Tabs():
            for tab in TABS:
                tab(studio)

        def closed(request: gr.Request) -> None:
            studio.leave(request.session_hash)

        page.unload(closed)
    page.queue(default_concurrency_limit=None, api_open=False)
    return page
