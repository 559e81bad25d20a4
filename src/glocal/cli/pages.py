"""The page of all commands and flags, made from the commands themselves, so that it cannot go out of date unnoticed.

`python -m glocal.cli.pages docs/commands.md` writes it; a test compares the file with what the commands say.
"""

from __future__ import annotations

import inspect
import sys
import typing
from pathlib import Path
from typing import Any

from glocal.cli.main import COMMANDS
from glocal.cli.shell.flags import with_flags
from glocal.cli.shell.lazy import Table, load_command, load_function

_HEAD = """# Commands and flags

This page is made from the program (`python -m glocal.cli.pages docs/commands.md`). `glocal COMMAND --help` says the same.
"""


def commands_page(table: Table = COMMANDS) -> str:
    """Return the page in Markdown: each command with its arguments, flags and defaults."""
    return _HEAD + "".join(_section(name, *entry) for name, entry in table.items())


def _section(name: str, home: Any, line: str) -> str:
    if not isinstance(home, str):
        return f"\n## glocal {name}\n\n{line}\n" + "".join(
            _section(f"{name} {inner}", *entry) for inner, entry in home.items()
        )
    command = load_command(name, home)
    hints = inspect.signature(with_flags(load_function(home))).parameters
    text = inspect.cleandoc(command.help or line)
    arguments = [_row(f"`{_name_of(param)}`", param, "") for param in command.params if _is_argument(param)]
    flags = [
        _row(_spelling(param), param, _choices(hints[param.name].annotation))
        for param in command.params
        if not _is_argument(param)
    ]
    out = f"\n## glocal {name}\n\n{text}\n"
    if arguments:
        out += "\n| argument | meaning |\n|---|---|\n" + "".join(arguments)
    if flags:
        out += "\n| flag | meaning |\n|---|---|\n" + "".join(flags)
    return out


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _name_of(param: Any) -> str:
    return str(param.name).upper() + ("..." if param.nargs == -1 else "")


def _spelling(param: Any) -> str:
    names = " ".join(f"`{name}`" for name in param.opts)
    return names + (" / " + " ".join(f"`{name}`" for name in param.secondary_opts) if param.secondary_opts else "")


def _choices(annotation: Any) -> str:
    """Return the words that a flag accepts."""
    hint = typing.get_args(annotation)[0]
    if typing.get_origin(hint) is not typing.Literal:
        return ""
    return f" One of {', '.join(f'`{choice}`' for choice in typing.get_args(hint))}."


def _row(spelling: str, param: Any, choices: str) -> str:
    text = " ".join(str(param.help or "").split()).replace("|", "\\|") + choices
    default = param.default
    silent = default is None or default is False or default in ((), []) or callable(default)
    if not (silent or param.required or _is_argument(param)):
        text += f" Default: `{'on' if default is True else default}`."
    return f"| {spelling} | {text} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(commands_page(), encoding="utf-8")
