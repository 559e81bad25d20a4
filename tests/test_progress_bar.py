"""The bar that `progress=True` draws: in a notebook, in a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import glocal
from glocal import progress_bar
from glocal.progress import COMPILE, Progress


class ZMQInteractiveShell:
    """The name by which a notebook is recognised."""


@pytest.fixture
def notebook(monkeypatch):
    """A notebook that keeps what it is asked to show."""
    drawn = []

    def display(content, display_id):
        drawn.append(content)
        return SimpleNamespace(update=drawn.append)

    shows = SimpleNamespace(HTML=lambda text: text, display=display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell, display=shows))
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    return drawn


def test_a_notebook_shows_a_bar_below_the_cell(notebook):
    with progress_bar.shown(True, "<denoise>") as tell:
        tell(Progress(0.5, seconds_left=90))
        tell(Progress(0.51, seconds_left=80))  # too soon to be drawn
        tell(Progress(1.0))
    assert notebook == [
        "&lt;denoise&gt;",
        "<progress value='0.500' max='1'></progress> &lt;denoise&gt;: 50% 1 min 30 s left",
        "<progress value='1.000' max='1'></progress> &lt;denoise&gt;: 100%",
    ]


def test_every_call_takes_true(notebook):
    photo = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    sound = np.random.default_rng(0).normal(0, 0.1, 4000).astype(np.float32)
    for call, run in {
        "denoise": lambda: glocal.denoise(photo, 0.1, model="local", progress=True),
        "recolor": lambda: glocal.recolor(photo, photo[::-1], progress=True),
        "stylize": lambda: glocal.stylize(photo, photo[::-1], size=32, preset="paper", iterations=2, progress=True),
        "denoise_speech": lambda: glocal.denoise_speech(sound, 16000, model="local", progress=True),
    }.items():
        notebook.clear()
        run()
        assert notebook[0] == call
        assert any("<progress" in part for part in notebook), call


def test_without_a_terminal_there_are_plain_lines(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    with progress_bar.shown(True, "denoise") as tell:
        tell(Progress(0.1, step=COMPILE, seconds=2.0))
    assert capsys.readouterr().err == "denoise: compiling kernels, once for this machine, 2.0 s so far\n"


def test_a_callback_is_passed_on_and_false_shows_nothing(capsys):
    seen = []
    with progress_bar.shown(seen.append, "denoise") as tell:
        tell(Progress(0.5))
    assert seen == [0.5]
    with progress_bar.shown(False, "denoise") as tell:
        assert tell is None
    assert capsys.readouterr() == ("", "")
