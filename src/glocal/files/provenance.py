"""Recipes: what made a file, as JSON that fits into its metadata and can be run again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from glocal.atomic import write_whole
from glocal.errors import InputError

VERSION = 1
_LIBRARIES = ("torch", "numpy", "numba", "pillow", "imagecodecs", "soundfile")
_CHUNK = 1 << 20


def build_recipe(
    command: str,
    options: object,
    *,
    inputs: Iterable[str | Path | tuple[str, str]] = (),
    arguments: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Everything that is needed to make a result again.

    Parameters
    ----------
    command
        The command's name, such as "style".
    options
        The options dataclass of the app, or a mapping.
    inputs
        Files that were read, in the order of the command's arguments. Their names as they are given here and
        their SHA-256 sums are recorded; a relative name says nothing about the machine. A pair (name, sum) is for a
        file whose sum is known from reading it.
    arguments
        More that belongs to the call, such as flags of the output. `positional`, a list of names, shows
        `glocal replay` which of the inputs are arguments of the command if not all of them are.
    seed
        The seed, if the options do not hold it.

    Returns
    -------
    dict[str, Any]
        A dictionary that JSON can hold, the same for the same call on the same machine.

    Examples
    --------
    >>> recipe = build_recipe("denoise", {"sigma": 0.1}, seed=3)
    >>> recipe["command"], recipe["options"], recipe["seed"]
    ('denoise', {'sigma': 0.1}, 3)
    """
    settings = _plain(options)
    return {
        "recipe": VERSION,
        "command": command,
        "options": settings,
        "arguments": _plain(arguments or {}),
        "seed": seed if seed is not None else settings.get("seed"),
        "inputs": [_input(one) for one in inputs],
        "versions": versions(),
    }


def with_options(recipe: Mapping[str, Any], options: object) -> dict[str, Any]:
    """Return the recipe with other options.

    >>> with_options(build_recipe("denoise", {"sigma": 0.1}), {"sigma": 0.2})["options"]
    {'sigma': 0.2}
    """
    return dict(recipe) | {"options": _plain(options)}


def _input(one: str | Path | tuple[str, str]) -> dict[str, str]:
    path, digest = one if isinstance(one, tuple) else (one, sha256_of(one))
    return {"path": str(path), "sha256": digest}


def to_json(recipe: Mapping[str, Any]) -> str:
    """Write a recipe as one line of JSON with sorted keys, so that equal recipes have equal text."""
    return json.dumps(_plain(recipe), sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def write_recipe(path: str | os.PathLike[str], recipe: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write a recipe to a JSON file of its own.

    Raises
    ------
    OutputError
        The file exists, or it cannot be written.
    """
    with write_whole(path, overwrite=overwrite) as beside:
        beside.write_text(to_json(recipe) + "\n")


def from_json(text: str, source: str) -> dict[str, Any]:
    """Read a recipe; `source` names its origin in messages.

    Raises
    ------
    InputError
        The text is not a recipe, or one of a newer version.
    """
    try:
        recipe = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"read recipe ({source}): it is damaged. Use the file as glocal wrote it.") from error
    if not isinstance(recipe, dict) or not isinstance(recipe.get("command"), str):
        raise InputError(f"read recipe ({source}): it names no command. Use the file as glocal wrote it.")
    if not _is_whole(recipe):
        raise InputError(f"read recipe ({source}): its fields are damaged. Use the file as glocal wrote it.")
    if recipe.get("recipe") != VERSION:
        raise InputError(
            f"read recipe ({source}): its version is {recipe.get('recipe')!r}, not {VERSION}. "
            "Use the glocal version that wrote it."
        )
    return recipe


def _is_whole(recipe: dict[str, Any]) -> bool:
    """Whether the fields have the types that `build_recipe` gives them; those of an older version may be missing."""
    inputs = recipe.get("inputs", [])
    return all(isinstance(recipe.get(name, {}), dict) for name in ("options", "arguments", "versions")) and (
        isinstance(inputs, list)
        and all(isinstance(one, dict) for one in inputs)
        and all(isinstance(one.get(name), str) for one in inputs for name in ("path", "sha256"))
        and isinstance(recipe.get("arguments", {}).get("positional", []), list)
    )


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file, in constant memory.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while block := file.read(_CHUNK):
                digest.update(block)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"read file ({path}): {reason}. Check the name.") from error
    return digest.hexdigest()


def file_state(path: str | Path) -> tuple[int, int, int] | None:
    """Return a value that changes when a file is changed or replaced; None if there is no file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def check_unchanged(path: str | Path, before: tuple[int, int, int] | None) -> None:
    """Make sure that a file which was read in parts is the one whose sum was taken.

    Raises
    ------
    InputError
        Its state is not `before` any more.
    """
    if file_state(path) != before:
        raise InputError(f"read file ({path}): it changed while it was read. Run it again.")


def versions() -> dict[str, str]:
    """Versions of Python, of glocal and of the libraries that decide about a result."""
    # The package itself is above this one; only its version is read, by name.
    found = {"glocal": str(sys.modules["glocal"].__version__), "python": platform.python_version()}
    found["machine"] = f"{platform.system()} {platform.machine()}"
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _plain(value: Any) -> Any:
    """Convert a value for JSON: dataclasses to dictionaries, paths to strings, tuples and arrays to lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
