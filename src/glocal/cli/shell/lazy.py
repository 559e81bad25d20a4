"""Commands that are imported when they are called, so that help and wrong usage answer at once."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from glocal.cli.shell.flags import with_flags

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
Entry = tuple[str, str]
Table = Mapping[str, "Entry | tuple[Table, str]"]


class LazyGroup(TyperGroup):
    """A group whose commands are a table: name to (`module:function`, one line of help), or to a further table."""

    def __init__(self, table: Table, **settings: Any) -> None:
        super().__init__(rich_markup_mode=None, context_settings=HELP_NAMES, **settings)
        self.table = table
        self.listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return the command; while the help text lists all commands, only its name and its line."""
        if cmd_name not in self.table:
            return None
        home, line = self.table[cmd_name]
        if not isinstance(home, str):
            return LazyGroup(home, name=cmd_name, help=line)
        if self.listing:
            return TyperCommand(cmd_name, callback=None, params=[], help=line, rich_markup_mode=None)
        return load_command(cmd_name, home)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; for a mistyped name, ask whether the nearest one was meant."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self.table:
            near = difflib.get_close_matches(name, self.table, n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{name}'.{meant}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text without importing any command."""
        self.listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.listing = False


def load_command(name: str, home: str) -> Any:
    """Import `module:function` and make a command of it."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, context_settings=HELP_NAMES)(with_flags(load_function(home)))
    return typer.main.get_command(app)


def load_function(home: str) -> Callable[..., Any]:
    """Import `module:name`: a function, or a job, which becomes the command that runs it on files."""
    module, _, attribute = home.partition(":")
    found: Any = getattr(importlib.import_module(module), attribute)
    if isinstance(found, type):
        from glocal.cli.shell.file_command import file_command

        found = file_command(found)
    function: Callable[..., Any] = found
    return function
