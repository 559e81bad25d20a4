"""Flags from dataclasses: a command's parameter that is annotated with a dataclass becomes one flag for each field.

An app has one frozen options dataclass, in a module that does not import torch. The Python call and the command line
read the same one::

    @dataclass(frozen=True)
    class DenoiseOptions:
        sigma: float | None = field(default=None, metadata={"help": "Noise level in [0, 1]; estimated if not given."})
        model: Literal["local", "nonlocal"] = field(default="nonlocal", metadata={"help": "Which network."})

    def denoise(images: Images, options: DenoiseOptions, batch: BatchOptions, run: RunOptions) -> None: ...

Keys of a field's metadata, all optional but `help`: `help`; `flag`, another spelling than the field's name;
`short`, such as "-o"; `min` and `max` for numbers; `parse`, a function from the text to the value, for fields that
take more than one type, and `metavar` to go with it; `hidden`, true for a field that is no flag at all; `writes`, true
for the name of one more output, which a recipe does not repeat.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from glocal.errors import GlocalError


def with_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same command with every dataclass parameter spread into flags, ready for typer.

    Args:
        function: Its parameters are either annotated for typer (`Annotated[..., typer.Argument(...)]`) or dataclasses.

    Returns:
        A function with the flat signature that gathers the flags into the dataclasses and calls `function`.

    Raises:
        TypeError: Two dataclasses share a field name.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[dataclasses.Field[Any]]]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            fields = [field for field in dataclasses.fields(hint) if not field.metadata.get("hidden")]
            groups[name] = (hint, fields)
            types_of = typing.get_type_hints(hint)
            parameters += [_flag(field, types_of[field.name]) for field in fields]
        else:
            parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
    names = [parameter.name for parameter in parameters]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        message = f"with_flags: {function.__name__} has more than one flag named {', '.join(sorted(doubled))}"
        raise TypeError(message)

    def command(**given: Any) -> Any:
        for name, (kind, fields) in groups.items():
            values = {field.name: given.pop(field.name) for field in fields}
            given[name] = kind(**{key: _gathered(value) for key, value in values.items()})
        return function(**given)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def arguments_for(function: Callable[..., Any], values: Mapping[str, Any], *, leave_out: tuple[type, ...]) -> list[str]:
    """The flags that give a command these values: what `with_flags` would read back to them.

    Args:
        function: A command as it is written, with dataclass parameters.
        values: Field name to value, as a recipe holds them. Names that are no fields, defaults and None are left out.
        leave_out: Dataclasses whose fields are no business of a recipe.
    """
    out: list[str] = []
    for hint in typing.get_type_hints(function).values():
        if not dataclasses.is_dataclass(hint) or hint in leave_out:
            continue
        for field in dataclasses.fields(hint):
            value, default = values.get(field.name), _default(field)
            if (
                value is None
                or field.metadata.get("hidden")
                or field.metadata.get("writes")
                or _listed(value) == _listed(default)
            ):
                continue
            name = field.metadata.get("flag", "--" + field.name.replace("_", "-"))
            if isinstance(value, bool):
                out.append(name if value else f"--no-{name.removeprefix('--')}")
            elif isinstance(value, (list, tuple)) and "parse" not in field.metadata:
                out += [f"{name}={item}" for item in value]
            else:
                out.append(f"{name}={_written(value)}")
    return out


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _written(value: Any) -> str:
    """A value as the user would write it: the parts of a tuple with commas between."""
    return ",".join(str(part) for part in value) if isinstance(value, (list, tuple)) else str(value)


def _gathered(value: Any) -> Any:
    """Flags that may be given several times arrive as a list; options are frozen, so they hold a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _flag(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """One field as a keyword parameter that typer understands."""
    meta = field.metadata
    name = meta.get("flag", "--" + field.name.replace("_", "-"))
    default = _default(field)
    hint, many = _item(hint)
    many = many and "parse" not in meta  # one text then holds them all
    spellings = [meta["short"]] if "short" in meta else []
    if hint is bool and default is True:
        spellings.append(f"{name}/--no-{name.removeprefix('--')}")
    else:
        spellings.append(name)
    settings: dict[str, Any] = {"help": meta.get("help", "")}
    settings |= {key: meta[key] for key in ("min", "max", "metavar") if key in meta}
    if "parse" in meta:
        settings["parser"] = _parser(meta["parse"])
        settings.setdefault("metavar", "<text>")
        hint = str | None if default is None else str
        default = default if default is None else _written(default)
    if many:
        hint, default = list[hint], list(default or ())  # type: ignore[valid-type]
    annotation = Annotated[hint, typer.Option(*spellings, **settings)]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty


def _item(hint: Any) -> tuple[Any, bool]:
    """`tuple[X, ...]` is a flag that may be given several times; anything else is a flag for itself."""
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[-1] is Ellipsis:
        return typing.get_args(hint)[0], True
    if isinstance(hint, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) == 1 and typing.get_origin(inner[0]) is tuple:
            return typing.get_args(inner[0])[0], True
    return hint, False


def _parser(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """`parse` with its complaints turned into those of wrong usage; a default passes through as it is."""

    def parser(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        try:
            return parse(text)
        except (GlocalError, ValueError) as error:
            raise typer.BadParameter(str(error)) from error

    return parser
