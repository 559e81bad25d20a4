"""Let the documentation show the options of a call: they come from a dataclass, which reading the source alone does not tell."""

from __future__ import annotations

import importlib
import inspect
import typing
from typing import Any

import griffe

_KINDS = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
}


class CallOptions(griffe.Extension):
    """Take the signature and the docstring of functions with `@takes_options` from the function itself."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace what was read from the source; griffe calls this for every function."""
        if not any("takes_options" in str(one.value) for one in func.decorators):
            return
        call = getattr(importlib.import_module(func.module.path), func.name)
        if func.docstring is not None:
            func.docstring.value = inspect.getdoc(call) or ""
        known = {one.name: one for one in func.parameters}
        shown = []
        for one in inspect.signature(call).parameters.values():
            default = None if one.default is inspect.Parameter.empty else repr(one.default)
            old = known.get(one.name)
            annotation = old.annotation if old is not None and one.name != "options" else _named(one.annotation)
            shown.append(griffe.Parameter(one.name, annotation=annotation, kind=_KINDS[one.kind], default=default))
        func.parameters = griffe.Parameters(*shown)


def _named(hint: Any) -> str:
    if isinstance(hint, type):
        return hint.__name__
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(repr(choice) for choice in typing.get_args(hint))
    if typing.get_args(hint) and typing.get_origin(hint) is not tuple:
        return " | ".join("None" if part is type(None) else _named(part) for part in typing.get_args(hint))
    return str(hint).replace("typing.", "")
