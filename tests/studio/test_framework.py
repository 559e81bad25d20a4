"""What is imported with gradio, and what is not."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from glocal.studio.framework import LATER, SKIPPED, less_imported

pytestmark = pytest.mark.xdist_group("studio")


def test_functions_are_replaced_and_modules_loaded_when_they_are_used(tmp_path, monkeypatch):
    (tmp_path / "frame").mkdir()
    (tmp_path / "frame" / "__init__.py").write_text(
        "import frame_table\nfrom frame.meta import write\nfrom frame.events import Event\nwrote, said = write(), Event().say()"
    )
    (tmp_path / "frame" / "meta.py").write_text("def write():\n    return 'a stub'")
    (tmp_path / "frame" / "events.py").write_text("class Event:\n    def say(self):\n        return 'a text'")
    (tmp_path / "frame_table.py").write_text("import sys\nsys.modules['frame'].loaded = True\nrows = 3")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    skipped = {"frame.meta": "write", "frame.events": "Event.say", "frame": "Missing.name"}
    try:
        with less_imported(skipped, ["frame_table"]):
            frame = importlib.import_module("frame")
        assert sys.meta_path == finders
        assert (frame.wrote, frame.said, hasattr(frame, "loaded")) == (None, None, False)
        assert not hasattr(frame.frame_table, "__file__")  # asked by those who look through all modules
        assert not hasattr(frame, "loaded")
        assert frame.frame_table.rows == 3
        assert frame.loaded
        assert importlib.import_module("frame_table").__file__ == str(tmp_path / "frame_table.py")
    finally:
        for name in ("frame", "frame.meta", "frame.events", "frame_table"):
            sys.modules.pop(name, None)


def test_gradio_has_what_is_left_out_and_the_studio_loads_nothing_heavy(studio):
    folder = Path(importlib.util.find_spec("gradio").origin).parent
    for module, name in SKIPPED.items():  # else the start would become slow without a word
        text = (folder / f"{module.removeprefix('gradio.')}.py").read_text()
        assert f"def {name.rpartition('.')[2]}(" in text
    loaded = Path(f"/proc/{studio.process.pid}/maps").read_text()
    assert "pydantic_core" in loaded
    for name in (*LATER, "torch", "numba", "scipy"):
        assert f"/{name}/" not in loaded
