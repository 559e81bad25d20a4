"""Controls from options: the type, the limits and the help text of an option decide what the page shows for it."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from glocal.errors import ArgumentError
from glocal.jobs.flags import flag_fields, written
from glocal.options import Options, limits

Widget = Literal["check", "choice", "choices", "slider", "number", "text"]
_WIDEST = 10_000  # a slider over more values cannot be set with a mouse
_AUTO = "auto"


@dataclass(frozen=True)
class Control:
    """What the page shows for one option."""

    name: str
    widget: Widget
    help: str
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    whole: bool = False
    parse: Any = None
    may_be_auto: bool = False  # the app decides if the value is None

    @property
    def label(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ").capitalize()

    @property
    def step(self) -> float:
        """The step of a slider: 1, or a hundredth of the range with one digit."""
        if self.whole:
            return 1
        assert self.minimum is not None
        assert self.maximum is not None
        return float(f"{(self.maximum - self.minimum) / 100:.0e}")

    def shown(self, value: Any) -> Any:
        """Return a value of the option as the page holds it."""
        if self.widget == "choices":
            return list(value)
        if value is None:
            return _AUTO
        return written(value) if self.widget == "text" else value

    def read(self, value: Any) -> Any:
        """Return what the page holds as a value of the option.

        Raises
        ------
        ArgumentError
            A text cannot be read.
        """
        if self.widget == "choices":
            return tuple(value)
        if self.may_be_auto and str(value).strip() in ("", _AUTO):
            return None
        if self.widget == "text":
            try:
                return self.parse(str(value).strip())
            except ArgumentError:
                raise
            except ValueError as error:
                message = f"studio: `{self.name}` (={value!r}) cannot be read. {self.help}"
                raise ArgumentError(message) from error
        if self.widget == "number" and self.whole and isinstance(value, float) and value.is_integer():
            return int(value)
        return value


def controls_for(
    options: Any, *, leave_out: Iterable[str] = (), only: Iterable[str] | None = None
) -> dict[str, Control]:
    """Return the controls of a dataclass of options, in its order.

    Options that only Python has, names of files, and free texts get none: no path of this machine comes from a page.

    >>> from glocal.jobs.job import ImageOutput
    >>> {name: control.widget for name, control in controls_for(ImageOutput).items()}
    {'depth': 'choice', 'quality': 'slider', 'metadata': 'choice'}
    """
    found = (_control(field, hint) for field, hint, _ in flag_fields(options))
    return {
        one.name: one
        for one in found
        if one is not None and one.name not in leave_out and (only is None or one.name in only)
    }


def shown_values(options: Any, controls: Mapping[str, Control], **chosen: Any) -> dict[str, Any]:
    """Return what the page shows at first, or after a preset was chosen: the values that will be used."""
    base = options.given(chosen) if issubclass(options, Options) else options(**chosen)
    return {name: control.shown(getattr(base, name)) for name, control in controls.items()}


def changes(options: Any, controls: Mapping[str, Control], page: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from what they would be anyway: what a command line has to say.

    Raises
    ------
    ArgumentError
        A value cannot be read.
    """
    preset = {"preset": page["preset"]} if "preset" in controls else {}
    usual = shown_values(options, controls, **preset)
    out = {} if preset == {"preset": shown_values(options, controls).get("preset")} else preset
    for name, control in controls.items():
        if page[name] != usual[name]:
            out[name] = control.read(page[name])
    return out


def _control(field: dataclasses.Field[Any], hint: Any) -> Control | None:
    meta = field.metadata
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    parts = typing.get_args(hint) if union else (hint,)
    plain = [part for part in parts if part is not type(None)]
    text = str(meta.get("help", ""))
    if meta.get("writes") or len(plain) == 0:
        return None
    auto = field.default is None
    if "choices" in meta or "known" in meta:
        choices = tuple(meta.get("choices", meta.get("known")))
        return Control(field.name, "choice", text, (_AUTO, *choices) if auto else choices, may_be_auto=auto)
    if len(plain) == 1 and typing.get_origin(plain[0]) is Literal:
        return Control(field.name, "choice", text, typing.get_args(plain[0]))
    if len(plain) == 1 and typing.get_origin(plain[0]) is tuple:
        inner = typing.get_args(plain[0])[0]
        if typing.get_origin(inner) is Literal:
            return Control(field.name, "choices", text, typing.get_args(inner))
    if "parse" in meta:
        return Control(field.name, "text", text, parse=meta["parse"], may_be_auto=auto)
    if plain == [bool]:
        return Control(field.name, "check", text)
    if plain in ([int], [float]):
        low, high = meta.get("min", meta.get("above")), meta.get("max")
        narrow = low is not None and high is not None and high - low <= _WIDEST
        text += f" {limits(meta).strip().capitalize()}." if narrow else ""
        if auto:  # neither a slider nor a box of numbers has a place for that
            return Control(field.name, "text", text, parse=plain[0], may_be_auto=True)
        widget: Widget = "slider" if narrow else "number"
        return Control(field.name, widget, text, minimum=low, maximum=high, whole=plain == [int])
    return None
