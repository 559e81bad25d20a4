"""Options as flags of the command line: a recipe or a form as a command."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from glocal.options import Options


def flag_fields(options: Any) -> list[tuple[dataclasses.Field[Any], Any, Any]]:
    """Return the fields of a dataclass that are flags, each with its type and the default that a user sees."""
    if issubclass(options, Options):
        fields = options.public()
    else:
        types_of = typing.get_type_hints(options)
        fields = [(field, types_of[field.name], _default(field)) for field in dataclasses.fields(options)]
    return [one for one in fields if not (one[0].metadata.get("hidden") or one[0].metadata.get("no_flag"))]


def flag_name(field: dataclasses.Field[Any]) -> str:
    """Return the flag of a field, such as `--search-radius`."""
    return str(field.metadata.get("flag", "--" + field.name.replace("_", "-")))


def flags_for(classes: Iterable[Any], values: Mapping[str, Any]) -> list[str]:
    """Return the flags that set the fields of some dataclasses to these values.

    Unknown names, defaults, None and further outputs are left out.

    >>> from glocal.apps.denoise.options import DenoiseOptions
    >>> flags_for([DenoiseOptions], {"sigma": 0.1, "strength": 1.0, "model": "wide"})
    ['--sigma=0.1', '--model=wide']
    """
    out: list[str] = []
    for options in classes:
        for field, _, default in flag_fields(options):
            value = values.get(field.name)
            if value is None or field.metadata.get("writes") or _listed(value) == _listed(default):
                continue
            name = flag_name(field)
            if isinstance(value, bool):
                out.append(name if value else f"--no-{name.removeprefix('--')}")
            elif isinstance(value, (list, tuple)) and "parse" not in field.metadata:
                out += [f"{name}={item}" for item in value]
            else:
                out.append(f"{name}={written(value)}")
    return out


def written(value: Any) -> str:
    """Return a value as the user would write it: the parts of a tuple with commas between.

    >>> written((1, 0.1)), written("keep")
    ('1,0.1', 'keep')
    """
    return ",".join(str(part) for part in value) if isinstance(value, (list, tuple)) else str(value)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty
