"""The errors that glocal raises on purpose.

Every one is a `GlocalError` and also a built-in error, so that `except ValueError` works as people expect. A message
states the fact first (the argument with its value, shapes with axis names) and then one remedy.
`exit_code` is what the command line returns for it.
"""

from __future__ import annotations

import importlib
from typing import Any


class GlocalError(Exception):
    """Base of all errors that glocal raises on purpose."""

    exit_code = 1


class ArgumentError(GlocalError, ValueError):
    """An argument has a value that cannot be used."""

    exit_code = 2


class InputError(GlocalError, ValueError):
    """A signal, an image or a file cannot be read or used."""

    exit_code = 3


class OutputError(GlocalError, RuntimeError):
    """An output exists already or cannot be written."""

    exit_code = 4


class MemoryLimitError(GlocalError, RuntimeError):
    """The work does not fit into the memory there is."""

    exit_code = 5


class ModelError(GlocalError, RuntimeError):
    """A model is missing or damaged."""

    exit_code = 6


class DeviceError(GlocalError, RuntimeError):
    """A device or backend is not available, or tensors are on different devices."""

    exit_code = 7


class DerivativeError(GlocalError, RuntimeError):
    """A derivative was asked for that does not exist."""

    exit_code = 1


class MissingDependencyError(GlocalError, RuntimeError):
    """An optional library that this call needs is not installed."""

    exit_code = 1


def needed(module: str, user: str, extra: str) -> Any:
    """Import an optional library, and return the module.

    Parameters
    ----------
    module : str
        Its name.
    user : str
        What needs it, for the message.
    extra : str
        The extra of glocal that installs it.

    Raises
    ------
    MissingDependencyError
        It cannot be imported.

    Examples
    --------
    >>> needed("no_such_library", "plot: the chart", "plot")
    Traceback (most recent call last):
    ...
    glocal.errors.MissingDependencyError: plot: the chart needs no_such_library, which cannot be imported (...
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        message = f"{user} needs {library}, which cannot be imported ({error}). Run `pip install 'glocal[{extra}]'`."
        raise MissingDependencyError(message) from error
