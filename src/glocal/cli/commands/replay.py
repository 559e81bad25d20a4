"""`glocal replay`: run again what made a file, and say whether the result is the same."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from glocal.atomic import check_free, write_whole
from glocal.cli.shell.batch import BatchOptions
from glocal.cli.shell.console import Console, RunOptions
from glocal.cli.shell.flags import arguments_for
from glocal.errors import InputError
from glocal.jobs.failures import visible
from glocal.options import option


@dataclass(frozen=True)
class ReplayOptions:
    """Flags of `glocal replay`."""

    inputs: tuple[str, ...] = option((), "A folder in which the inputs are now. May be given several times.")
    output: str | None = option(None, "Keep the new result under this name.", short="-o")
    overwrite: bool = option(False, "Replace that file if it exists.")


def replay(
    file: Annotated[Path, typer.Argument(help="An image or audio file that glocal wrote.")],
    options: ReplayOptions,
    run: RunOptions,
) -> None:
    """Run again what made FILE, from the recipe inside of it, and say whether the result is the same.

    The inputs are searched by the names in the recipe, next to FILE and in the folders of --inputs, and recognised by
    their hashes. The exit code is 0 if the new result is the same, and 1 if it is not.
    """
    from glocal.files.embedded import compare_files, recipe_of
    from glocal.files.provenance import versions

    console = Console(run)
    recipe = recipe_of(file)
    if options.output is not None:
        check_free(options.output, overwrite=options.overwrite)
    found = _found_inputs(recipe, file, options.inputs)
    changed = {
        name: (old, versions().get(name))
        for name, old in recipe.get("versions", {}).items()
        if versions().get(name) != old
    }
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / ("replay" + file.suffix)
        _run_again(recipe, found, target, quiet=run.quiet)
        difference = compare_files(file, target)
        if options.output is not None:
            with write_whole(options.output, overwrite=options.overwrite) as beside:
                shutil.copyfile(target, beside)
    data = {
        "file": str(file),
        "command": recipe["command"],
        "same_bytes": difference.same_bytes,
        "same_content": difference.same_content,
        "largest_difference": difference.largest,
        "mean_difference": difference.mean,
        "versions_changed": changed,
        "stopped": bool(recipe.get("stopped")),
    }
    console.result(data, _verdict(data))
    if not difference.same_content:
        raise typer.Exit(1)


def _verdict(data: dict[str, Any]) -> str:
    if data["same_bytes"]:
        return f"{data['file']}: the same to the bit"
    libraries = visible(", ".join(f"{name} {old} -> {new}" for name, (old, new) in data["versions_changed"].items()))
    why = f" (changed since: {libraries})" if libraries else ""
    if data["stopped"]:
        why = " (the run that made it was stopped before its end, this one was not)"
    if data["same_content"]:
        return f"{data['file']}: the same content; only the metadata differ{why}"
    return (
        f"{data['file']}: different, by {data['largest_difference']:.2g} of full scale at most "
        f"and {data['mean_difference']:.2g} on average{why}"
    )


def _found_inputs(recipe: dict[str, Any], file: Path, folders: tuple[str, ...]) -> dict[str, Path]:
    """Find each input of the recipe by its hash."""
    from glocal.files.provenance import sha256_of

    out: dict[str, Path] = {}
    for entry in recipe.get("inputs", []):
        name = Path(entry["path"])
        places = [name, file.parent / name, file.parent / name.name]
        places += [Path(folder) / part for folder in folders for part in (name, name.name)]
        there = [place for place in places if place.is_file()]
        match = next((place for place in there if sha256_of(place) == entry["sha256"]), None)
        if match is None:
            why = "is not the file it was" if there else "is not there"
            raise InputError(f"replay ({file}): the input {name} {why}. Name its folder with --inputs.")
        out[entry["path"]] = match
    return out


def _run_again(recipe: dict[str, Any], found: dict[str, Path], target: Path, *, quiet: bool) -> None:
    """Call the command of the recipe with its inputs and options."""
    from glocal.cli import main
    from glocal.cli.shell.lazy import load_function

    entry = main.COMMANDS.get(recipe["command"])
    function = load_function(entry[0]) if entry is not None and isinstance(entry[0], str) else None
    if function is None or BatchOptions not in typing.get_type_hints(function).values():
        raise InputError(
            f"replay: there is no command `{recipe['command']}` that makes files. Use the glocal version that wrote it."
        )
    values = {
        name: str(found[value]) if isinstance(value, str) and value in found else value
        for name, value in (recipe.get("options", {}) | recipe.get("arguments", {})).items()
    }
    positional = recipe.get("arguments", {}).get("positional", list(found))
    flags = arguments_for(function, values, leave_out=(BatchOptions, RunOptions))
    # A recipe may come from a stranger, so an argument must be one of the files that were found, and not a flag.
    arguments = [str(found[name]) for name in positional if name in found]
    with contextlib.redirect_stdout(io.StringIO()):  # the command reports about a temporary file
        main.invoke([recipe["command"], *arguments, *flags, "-o", str(target), *(["--quiet"] if quiet else [])])
