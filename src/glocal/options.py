"""Options that are written once. Free of torch.

An app has one frozen dataclass of options, a subclass of `Options`. Each field states its type, its default, its help text
and its limits. The flag of the command line, the keyword of the Python call, the check with its message, the entry in the
recipe and the tables in the docs are all read from that one place.

>>> @dataclass(frozen=True)
... class Blur(Options):
...     call: ClassVar[str] = "blur"
...     radius: int = option(3, "How far to look, in pixels.", min=1, max=99)
>>> Blur(radius=0)
Traceback (most recent call last):
glocal.errors.ArgumentError: blur: `radius` (=0) must be a whole number from 1 to 99. The default is 3.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from glocal.errors import ArgumentError

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
Returned = TypeVar("Returned")


def option(default: Any, help: str, **settings: Any) -> Any:
    """Define a field of an options dataclass.

    Parameters
    ----------
    default, help
        The default value, and one sentence on what the option does.
    min, max, above
        Limits of a number; `above` excludes its value.
    words
        Texts that are allowed instead of a number.
    known, suffix
        The names that a page offers for a text, and the suffix of the file that it may also be, such as a model.
    must, remedy
        Replace the generated text of the error message: "must ..." and the last sentence.
    parse, metavar, flag, short
        How the command line reads the option: a function from text to value, the name of that text, other spellings.
        The message of such a function begins with the text; the flag is put before it.
    hidden
        True for an option that is neither a flag nor a keyword: only `options=` reaches it.
    no_flag
        True for an option that only Python has.
    writes
        For the name of a further output file, which a recipe does not repeat: picture, sound, lut, map or file.
    keyword
        True for a further input file that the Python call takes as a keyword of the same name.
    in_tiles
        True for a further file that also works with a picture in tiles, or the reason why it does not.
    """
    return dataclasses.field(default=default, metadata={"help": help, **settings})


def device_option(help: str = "Where to compute.", **settings: Any) -> Any:
    """Define the field `device` of an app: cpu, cuda or cuda:N."""
    choices = {} if settings.get("no_flag") else {"known": ("cpu", "cuda"), "metavar": "<cpu|cuda>"}
    return option("cpu", help, pattern=_DEVICE, must="be cpu, cuda or cuda:N", remedy="Use cpu.", **choices, **settings)


def fraction_option(help: str, *, default: float | None = 1.0, remedy: str = "Use 1 for all of it.") -> Any:
    """Define a field with a value from 0 to 1."""
    return option(default, help, min=0, max=1, remedy=remedy)


def unused_seed() -> Any:
    """Define the field `seed` of an app where nothing is random."""
    return option(0, "Accepted as in the other jobs, but nothing is random here.", min=0, no_flag=True)


def parse_level(text: str) -> float | None:
    """Parse a noise level: "auto", "0.1" or "25/255".

    >>> parse_level("auto"), parse_level("51/255")
    (None, 0.2)
    """
    if text.lower() == "auto":
        return None
    top, _, bottom = text.partition("/")
    try:
        return float(top) / float(bottom or "1")
    except (ValueError, ZeroDivisionError) as error:
        message = f"`{text}` is not a noise level. Write auto, 0.1 or 25/255."
        raise ArgumentError(message) from error


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parse a list of numbers as written on a command line.

    >>> parse_numbers("2, 1")
    (2.0, 1.0)
    """
    try:
        return tuple(float(part) for part in text.strip("() ").split(","))
    except ValueError as error:
        message = f"`{text}` is not a list of numbers. Write it like 2,1."
        raise ArgumentError(message) from error


@dataclass(frozen=True)
class Options:
    """The base of all options: every field is checked against its type and its limits."""

    call: ClassVar[str] = "options"

    def __post_init__(self) -> None:
        hints = _hints(type(self))  # type: ignore[arg-type]
        for field in dataclasses.fields(self):
            object.__setattr__(
                self, field.name, _checked(self.call, field, hints[field.name], getattr(self, field.name))
            )

    @classmethod
    def given(cls, values: Mapping[str, Any], base: Self | None = None) -> Self:
        """Return the options with these values; the others come from `base` or are the defaults."""
        return cls(**values) if base is None else dataclasses.replace(base, **values)

    @classmethod
    def public(cls) -> list[tuple[dataclasses.Field[Any], Any, Any]]:
        """Return the fields that are keywords, each with its type and the default that a user sees."""
        hints = _hints(cls)  # type: ignore[arg-type]
        return [
            (field, hints[field.name], field.default)
            for field in dataclasses.fields(cls)
            if not field.metadata.get("hidden")
        ]


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _checked(call: str, field: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    """Convert the value to the type of its field.

    Raises
    ------
    ArgumentError
        The value has another type or lies outside of the limits.
    """
    meta = field.metadata
    hints = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in hints:
        return None
    if isinstance(value, str) and value in meta.get("words", ()):
        return value
    if "words" in meta:
        hints = tuple(one for one in hints if one is not str)  # only these
    for one in hints:
        found = _converted(one, value)
        if found is not None and _within(meta, found):
            if "suffix" in meta and found not in meta["known"] and not found.endswith(meta["suffix"]):
                message = (
                    f"{call}: `{field.name}` (={value!r}) is unknown. "
                    f"Choose one of {', '.join(meta['known'])}, or a {meta['suffix']} file."
                )
                raise ArgumentError(message)
            return found
    choices = [choice for one in hints if typing.get_origin(one) is typing.Literal for choice in typing.get_args(one)]
    if choices and not isinstance(value, (list, tuple)):
        remedy = meta.get("remedy", f"Choose one of {', '.join(map(str, choices))}.")
        message = f"{call}: `{field.name}` (={value!r}) is unknown. {remedy}"
        raise ArgumentError(message)
    must = meta.get("must", _must(hints, meta))
    remedy = meta.get("remedy", f"The default is {field.default}.")
    message = f"{call}: `{field.name}` (={value!r}) must {must}. {remedy}"
    raise ArgumentError(message)


def _converted(hint: Any, value: Any) -> Any:
    """Convert the value to this type, or return None if that is impossible."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return (
            value if any(value == choice and type(value) is type(choice) for choice in typing.get_args(hint)) else None
        )
    if origin is tuple:
        return _converted_tuple(typing.get_args(hint), value)
    if hint is bool:
        return value if isinstance(value, bool) else None
    if hint is int:
        return int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else None
    if hint is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        # A whole number stays one: messages and recipes show what the user wrote.
        return (int(value) if isinstance(value, numbers.Integral) else float(value)) if real else None
    if hint is str:
        return os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return None


def _converted_tuple(hints: tuple[Any, ...], value: Any) -> tuple[Any, ...] | None:
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        return None
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(hints) != len(value):
        return None
    parts = tuple(_converted(hint, part) for hint, part in zip(hints, value, strict=True))
    return None if any(part is None for part in parts) else parts


def _within(meta: Mapping[str, Any], value: Any) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    for part in parts:
        if isinstance(part, numbers.Real) and not isinstance(part, bool):
            if part < meta.get("min", part) or part > meta.get("max", part):
                return False
            if "above" in meta and part <= meta["above"]:
                return False
    return "pattern" not in meta or (isinstance(value, str) and meta["pattern"].fullmatch(value) is not None)


def _must(hints: tuple[Any, ...], meta: Mapping[str, Any]) -> str:
    """Describe in words what a value must be."""
    if bool in hints:
        return "be True or False"
    if int in hints or float in hints:
        text = "be a whole number" if float not in hints else "be a number"
        text += limits(meta)
        return text + "".join(f", or {word!r}" for word in meta.get("words", ()))
    if str in hints:
        return "be a text"
    return "be a list of values of the right type"


def limits(meta: Mapping[str, Any]) -> str:
    """Describe the limits of a number in words: " from 0 to 1", or an empty text.

    >>> limits({"min": 0, "max": 1}), limits({"min": 3}), limits({"above": 0})
    (' from 0 to 1', ' of at least 3', ' above 0')
    """
    low, high = meta.get("min"), meta.get("max")
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    if low is not None:
        return f" of at least {low:g}"
    text = "" if "above" not in meta else f" above {meta['above']:g}"
    return text if high is None else f"{text}{' and' if text else ''} up to {high:g}"


def takes_options(
    options: type[Options], *, positional: tuple[str, ...] = ()
) -> Callable[[Callable[..., Returned]], Callable[..., Returned]]:
    """Make a function with a parameter `options` take every public field of the options as a keyword.

    `options=` still works; keywords then change single fields of it. Fields named in `positional` follow the positional
    parameters. In the docstring, the line `{options}` becomes the list of fields with their types, defaults and help.

    >>> @dataclass(frozen=True)
    ... class Blur(Options):
    ...     call: ClassVar[str] = "blur"
    ...     radius: int = option(3, "How far to look, in pixels.", min=1)
    >>> @takes_options(Blur)
    ... def blur(image, *, options):
    ...     return options.radius
    >>> blur("a.png"), blur("a.png", radius=5), list(inspect.signature(blur).parameters)
    (3, 5, ['image', 'radius', 'options'])
    """
    fields = options.public()

    def decorate(function: Callable[..., Returned]) -> Callable[..., Returned]:
        plain = inspect.signature(function)
        first: list[inspect.Parameter] = []
        last: list[inspect.Parameter] = []
        placed: list[inspect.Parameter] = []
        keyed: list[inspect.Parameter] = []
        for parameter in plain.parameters.values():
            if parameter.name != "options":
                (last if parameter.kind is parameter.KEYWORD_ONLY else first).append(parameter)
        for field, hint, default in fields:
            by_place = field.name in positional
            how = inspect.Parameter.POSITIONAL_OR_KEYWORD if by_place else inspect.Parameter.KEYWORD_ONLY
            parameter = inspect.Parameter(field.name, how, default=default, annotation=hint)
            (placed if by_place else keyed).append(parameter)
        whole = inspect.Parameter("options", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options | None)
        names = {field.name for field, _, _ in fields}
        signature = plain.replace(parameters=[*first, *placed, *keyed, whole, *last])

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Returned:
            try:
                found = signature.bind(*arguments, **keywords).arguments
            except TypeError as error:
                message = f"{options.call}: {error}. The arguments are {', '.join(signature.parameters)}."
                raise TypeError(message) from None
            base = found.pop("options", None)
            if base is not None and not isinstance(base, options):
                message = f"{options.call}: `options` (={base!r}) must be a {options.__name__}. Give single options as keywords."
                raise ArgumentError(message)
            values = {name: found.pop(name) for name in [*found] if name in names}
            return function(**found, options=options.given(values, base))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = _filled(function.__doc__ or "", describe(options))
        return call

    return decorate


def _filled(text: str, fields: str) -> str:
    r"""Put the list of fields into a docstring, which Python 3.13 and newer keep without its indentation.

    >>> _filled("    {options}\n", "    a : int\n"), _filled("{options}\n", "    a : int\n")
    ('    a : int\n', 'a : int\n')
    """
    line = "    {options}\n"
    return text.replace(line, fields) if line in text else text.replace("{options}\n", textwrap.dedent(fields))


def describe(options: type[Options]) -> str:
    """Return the fields of the options as the parameter list of a docstring."""
    lines = []
    for field, hint, default in options.public():
        shown = "the preset's" if default is None and field.default is not None else repr(default)
        lines.append(f"    {field.name} : {_type_name(hint)}, default {shown}")
        text = field.metadata["help"]
        lines += textwrap.wrap(text, 112, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines) + "\n"


def _type_name(hint: Any) -> str:
    """Write a type as in docstrings.

    >>> _type_name(int | None), _type_name(typing.Literal["a", "b"])
    ('int or None', '"a" or "b"')
    """
    if isinstance(hint, types.UnionType):
        return " or ".join(_type_name(part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(f'"{choice}"' for choice in typing.get_args(hint))
    return (
        "None"
        if hint is type(None)
        else getattr(hint, "__name__", str(hint))
        if not typing.get_args(hint)
        else str(hint)
    )
