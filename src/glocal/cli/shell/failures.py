"""What a person sees when something goes wrong: one line on stderr and an exit code that scripts can rely on."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Any

import typer

from glocal.errors import GlocalError, MemoryLimitError

STOPPED = 130
_USAGE: Any = typer.BadParameter.__mro__[1]  # click's UsageError, wherever this typer keeps its click
_LAST_SENTENCE = re.compile(r"^(.*[.)])\s+([A-Z`].*?)\.?$", re.DOTALL)


class Stopped(KeyboardInterrupt):
    """The user stopped a command, which saved what it had; the message says where."""


def exit_code_of(error: BaseException) -> int:
    """The exit code of SPEC section 3 for an error."""
    if isinstance(error, GlocalError):
        return error.exit_code
    if isinstance(error, MemoryError):
        return MemoryLimitError.exit_code
    if isinstance(error, KeyboardInterrupt):
        return STOPPED
    return 2 if isinstance(error, _USAGE) else 1


def describe(error: BaseException) -> str:
    """`error: WHAT (path): WHY. Try: ONE THING.` for an error.

    The errors of glocal end with their remedy as the last sentence, which becomes the part after "Try:".

    Example:
        >>> from glocal.errors import InputError
        >>> describe(InputError("read image (a.png): there is no such file. Check the name."))
        'error: read image (a.png): there is no such file. Try: check the name.'
    """
    if isinstance(error, KeyboardInterrupt):
        return f"stopped: {error}" if str(error) else "stopped"
    if isinstance(error, _USAGE):
        context = getattr(error, "ctx", None)
        name = context.command_path if context else "glocal"
        return f"error: {error.format_message().rstrip('.')}. Try: `{name} --help`."  # type: ignore[attr-defined]
    if isinstance(error, MemoryError):
        return "error: there is not enough memory. Try: a smaller input or --max-memory."
    if not isinstance(error, GlocalError):
        return f"error: unexpected {type(error).__name__}: {error}. Try: run it again with --debug and report the text."
    text = " ".join(str(error).split())
    found = _LAST_SENTENCE.match(text)
    if not found or found[2].count(")") > found[2].count("("):
        return f"error: {text.rstrip('.')}. Try: `glocal --help`."
    fact, remedy = found.groups()
    return f"error: {fact.rstrip('.')}. Try: {remedy[0].lower()}{remedy[1:]}."


def report_failure(error: BaseException, *, debug: bool) -> int:
    """Write an error to stderr and return the exit code."""
    if debug:
        sys.stderr.write("".join(traceback.format_exception(error)))
    sys.stderr.write(describe(error) + "\n")
    return exit_code_of(error)
