"""What a person sees when something goes wrong: one line, and an exit code that scripts can rely on."""

from __future__ import annotations

import errno
import re
import sys
import traceback

from glocal.errors import GlocalError, MemoryLimitError, OutputError

STOPPED = 130
# What a remedy names for callers in Python, and the flag that does the same.
_FLAGS = {"overwrite=True": "--overwrite", "ColorMap.save": "--save-map", "write_lut": "--lut"}
_LAST_SENTENCE = re.compile(r"^(.*[.)])\s+([A-Z`].*?)\.?$", re.DOTALL)
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EPIPE)  # the disk is full, or the reader of a pipe has ended
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


class Stopped(KeyboardInterrupt):
    """The user stopped a command, which saved its result so far; the message says where."""


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error: see the table in docs/files.md."""
    if isinstance(error, GlocalError):
        return error.exit_code
    if _lacks_memory(error):
        return MemoryLimitError.exit_code
    if isinstance(error, KeyboardInterrupt):
        return STOPPED
    if isinstance(error, OSError) and error.errno in _OUTPUT:
        return OutputError.exit_code
    return 2 if _is_usage(error) else 1


def describe(error: BaseException) -> str:
    """`error: WHAT (path): WHY. Try: ONE THING.` for an error, without anything that a terminal would act on.

    The errors of glocal end with their remedy as the last sentence, which becomes the part after "Try:". Where it names an
    argument of Python, the flag of the command line takes its place.

    Examples
    --------
    >>> from glocal.errors import InputError
    >>> describe(InputError("read image (a.png): there is no such file. Check the name."))
    'error: read image (a.png): there is no such file. Try: check the name.'
    >>> describe(InputError("write file (a.png): the file exists already. Add overwrite=True."))
    'error: write file (a.png): the file exists already. Try: add --overwrite.'
    """
    return visible(_described(error))


def _described(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return f"stopped: {error}" if str(error) else "stopped"
    if _is_usage(error) and isinstance(error.__cause__, GlocalError):
        flag = error.param.opts[-1]  # type: ignore[attr-defined]
        return _with_remedy(f"{flag}: {error.__cause__}")  # the option's own message has a remedy
    if _is_usage(error):
        context = getattr(error, "ctx", None)
        name = context.command_path if context else "glocal"
        fact = error.format_message().replace("Value error, ", "").rstrip(".")  # type: ignore[attr-defined]
        end = "" if fact.endswith("?") else "."
        return f"error: {fact}{end} Try: `{name} --help`."
    if _lacks_memory(error):
        return "error: there is not enough memory. Try: a smaller input or --max-memory."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "error: the disk is full. Try: free some space or choose another folder."
    if not isinstance(error, GlocalError):
        return f"error: unexpected {type(error).__name__}: {error}. Try: run it again with --debug and report the text."
    return _with_remedy(str(error))


def _with_remedy(message: str) -> str:
    text = " ".join(message.split())
    found = _LAST_SENTENCE.match(text)
    if not found or found[2].count(")") > found[2].count("("):
        return f"error: {text.rstrip('.')}. Try: `glocal --help`."
    fact, remedy = found.groups()
    for name, flag in _FLAGS.items():
        remedy = remedy.replace(name, flag)
    return f"error: {fact.rstrip('.')}. Try: {remedy[0].lower()}{remedy[1:]}."


def show_failure(error: BaseException, *, debug: bool) -> int:
    """Write an error to stderr and return the exit code."""
    if isinstance(error, BrokenPipeError):
        return exit_code_of(error)  # the reader of the pipe has ended; it needs no message
    if debug:
        sys.stderr.write("".join(traceback.format_exception(error)))
    sys.stderr.write(describe(error) + "\n")
    return exit_code_of(error)


def visible(text: str) -> str:
    r"""Write out control characters: names of files and recipes may come from strangers.

    Examples
    --------
    >>> visible("a\x1b[31m.png")
    'a\\x1b[31m.png'
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def _is_usage(error: BaseException) -> bool:
    """Whether the command line was wrong; asked without importing the library that reads it."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)
