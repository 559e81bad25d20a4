"""Import gradio without the parts that the page does not need: this takes a third of the time.

While it is imported, gradio writes a type stub next to each of its components, makes the documentation of each event from
a template, and loads pandas. The first two are for editors, the last for tables.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

SKIPPED = {"gradio.component_meta": "create_or_modify_pyi", "gradio.events": "EventListener.set_doc"}
LATER = ("pandas",)


def import_gradio() -> Any:
    """Return the module `gradio`.

    Raises
    ------
    ImportError
        It is not installed.
    """
    with less_imported(SKIPPED, LATER):
        return importlib.import_module("gradio")


@contextlib.contextmanager
def less_imported(skipped: Mapping[str, str], later: Sequence[str] = ()) -> Iterator[None]:
    """Within it, imported modules get functions that do nothing, or are loaded only when they are used.

    Parameters
    ----------
    skipped : mapping of str to str
        The function or method to replace in each module.
    later : sequence of str
        Modules that are loaded when one of their names is used for the first time.
    """
    finder: Any = _Finder(skipped)
    sys.meta_path.insert(0, finder)
    places = [_Later(name) for name in later if name not in sys.modules]
    sys.modules |= {place.__name__: place for place in places}
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for place in places:
            place.leave()


class _Later(ModuleType):
    """Stands for a module, and loads it when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # those that look through all modules want no name of it
            raise AttributeError(name)
        self.leave()
        return getattr(importlib.import_module(self.__name__), name)

    def leave(self) -> None:
        """Let the next import find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


class _Finder:
    def __init__(self, skipped: Mapping[str, str]) -> None:
        self.skipped = skipped

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find one of the modules as Python does, and change how it is loaded; leave all others to Python."""
        if name not in self.skipped:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def run_and_replace(module: ModuleType) -> None:
            run(module)
            *owners, last = self.skipped[name].split(".")
            owner: Any = module
            for one in owners:
                owner = getattr(owner, one, None)
            if owner is not None:
                setattr(owner, last, _nothing)

        loader.exec_module = run_and_replace
        return spec


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""
