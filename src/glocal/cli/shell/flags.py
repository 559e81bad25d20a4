"""Flags from dataclasses: a command's parameter that is annotated with a dataclass becomes one flag for each field.

`glocal.options` says how a field is written and which settings it may have. An app's options are a subclass of `Options`, which
checks values itself: one check and one message for Python and for the command line. Other dataclasses, such as the flags of
batches, are checked by typer.
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
from glocal.jobs.flags import flag_fields, flag_name, flags_for, written
from glocal.options import Options, limits


def with_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with a flag for each field of its dataclass parameters, ready for typer.

    Parameters
    ----------
    function
        Its parameters are either annotated for typer (`Annotated[..., typer.Argument(...)]`) or dataclasses.

    Returns
    -------
    Callable[..., Any]
        A function with the flat signature that gathers the flags into the dataclasses and calls `function`.

    Raises
    ------
    TypeError
        Two dataclasses share a field name.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            fields = flag_fields(hint)
            groups[name] = (hint, [field.name for field, _, _ in fields])
            parameters += [_flag(*field, checked=issubclass(hint, Options)) for field in fields]
        else:
            parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
    names = [parameter.name for parameter in parameters]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        message = f"with_flags: {function.__name__} has more than one flag named {', '.join(sorted(doubled))}"
        raise TypeError(message)

    def command(**given: Any) -> Any:
        gathered = {}
        for name, (group, fields) in groups.items():
            values = {key: _gathered(given.pop(key)) for key in fields}
            gathered[name] = group.given(values) if issubclass(group, Options) else group(**values)
        return function(**given, **gathered)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def arguments_for(function: Callable[..., Any], values: Mapping[str, Any], *, leave_out: tuple[type, ...]) -> list[str]:
    """Return the flags for these values; `with_flags` reads them back.

    Parameters
    ----------
    function
        A command as it is written, with dataclass parameters.
    values
        Field name to value, as a recipe holds them. Names that are no fields, defaults and None are left out.
    leave_out
        Dataclasses whose fields are no business of a recipe.
    """
    hints = typing.get_type_hints(function).values()
    return flags_for([hint for hint in hints if dataclasses.is_dataclass(hint) and hint not in leave_out], values)


def _gathered(value: Any) -> Any:
    """Turn the list of a repeated flag into a tuple, since options are frozen."""
    return tuple(value) if isinstance(value, list) else value


def _flag(field: dataclasses.Field[Any], hint: Any, default: Any, *, checked: bool) -> inspect.Parameter:
    """One field as a keyword parameter that typer understands; `checked` if its dataclass checks the values itself."""
    meta = field.metadata
    name = flag_name(field)
    hint, many = _item(hint)
    many = many and "parse" not in meta  # one text then holds them all
    if "choices" in meta and hint is str:
        hint = typing.Literal[meta["choices"]]
    spellings = [meta["short"]] if "short" in meta else []
    if hint is bool and default is True:
        spellings.append(f"{name}/--no-{name.removeprefix('--')}")
    else:
        spellings.append(name)
    settings: dict[str, Any] = {"help": _help(field, default) if checked else meta.get("help", "")}
    settings |= {key: meta[key] for key in ("metavar", *(() if checked else ("min", "max"))) if key in meta}
    number = next((one for one in (int, float) if hint in (one, one | None)), None) if checked and not many else None
    if "parse" in meta or number is not None:  # the dataclass names the argument and its limits; the library does not
        settings["parser"] = _parser(meta.get("parse", number), checked)
        settings.setdefault("metavar", "<text>" if number is None else f"<{number.__name__}>")
        hint = str | None if default is None else str
        default = default if default is None else written(default)
    if many:
        hint, default = list[hint], list(default or ())  # type: ignore[valid-type]
    annotation = Annotated[hint, typer.Option(*spellings, **settings)]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help(field: dataclasses.Field[Any], default: Any) -> str:
    """Return the help text with the limits, if there are any, and the source of the default."""
    text, meta = str(field.metadata["help"]), field.metadata
    if "parse" not in meta and "max" in meta and meta["max"] <= 10_000:
        text += f"{limits(meta).capitalize().replace(' from', ' From')}."
    if default is None and field.default is not None and "Default" not in text:
        text += " Default: the preset's."
    return text


def _item(hint: Any) -> tuple[Any, bool]:
    """Return the type of one value, and whether the flag may be given several times, as for `tuple[X, ...]`."""
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[-1] is Ellipsis:
        return typing.get_args(hint)[0], True
    if isinstance(hint, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) == 1 and typing.get_origin(inner[0]) is tuple:
            return typing.get_args(inner[0])[0], True
    return hint, False


def _parser(parse: Callable[[str], Any], checked: bool) -> Callable[[Any], Any]:
    """Turn the errors of `parse` into those of wrong usage; a default passes through as it is.

    If the dataclass checks its values itself (`checked`), text that `parse` cannot read is left for its message.
    """

    def parser(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        try:
            return parse(text)
        except (GlocalError, ValueError) as error:
            if checked and not isinstance(error, GlocalError):
                return text
            raise typer.BadParameter(str(error)) from error

    return parser
