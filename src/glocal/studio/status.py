"""The lines of text that a tab shows: what runs, what it costs, what went wrong."""

from __future__ import annotations

import html
from collections.abc import Iterable

from glocal.errors import GlocalError
from glocal.jobs.failures import describe
from glocal.jobs.job import Cost
from glocal.jobs.memory import bytes_text
from glocal.progress import COMPILE, seconds_text
from glocal.studio.orders import Look
from glocal.studio.worker import State


def status(text: str, level: str = "note") -> str:
    """Return a line of status; screen readers read it when it changes."""
    role = "alert" if level == "error" else "status"
    return f'<p class="status {level}" role="{role}">{html.escape(text)}</p>'


def as_text(error: GlocalError) -> str:
    """Return the text of an error; a worker may have written it for the user already."""
    text = str(error)
    return text if text.startswith("error:") else describe(error)


def figures(looks: Iterable[Look]) -> str:
    """Return the small pictures of uploads, each with its properties."""
    pictures = [(f'<img src="{look.url}" alt="">' if look.url else "", html.escape(look.text)) for look in looks]
    return "".join(f"<figure>{image}<figcaption>{text}</figcaption></figure>" for image, text in pictures)


def cost_text(cost: Cost) -> str:
    """Return the estimate of a job: its size, memory and time."""
    parts = [cost.size, cost.parts, f"about {bytes_text(cost.memory)}"]
    if cost.seconds is not None:
        parts.append(seconds_text(cost.seconds))
    return ", ".join(part for part in parts if part)


def progress_bar(state: State) -> str:
    """Return a bar with the step, the level and the time left."""
    words = {COMPILE: "compiling, once on this machine"}.get(state.step, state.step)
    if state.levels > 1:
        words += f", level {state.level + 1} of {state.levels}"
    if state.seconds_left is not None:
        words += f", about {seconds_text(state.seconds_left)} left"
    share = f"{100 * state.fraction:.0f}"
    return f'<progress max="100" value="{share}">{share} %</progress>' + status(f"{share} %: {words.lstrip(', ')}")
