"""Which files a command line means, and under which names their results go."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from glocal.errors import ArgumentError, GlocalError, InputError, OutputError
from glocal.jobs.inputs import Cost, silent

DEFAULT_PATTERN = "{stem}_{command}{ext}"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
PIPED = ".wav"  # the format of a pipe; commands that cannot write it have no pipe


@dataclass(frozen=True, slots=True)
class Task:
    """One input, its output, the bytes of memory it may take, and what is wrong with it from the beginning.

    skip : leave it out if the output exists when its turn comes, or if another process is working on it.
    needs : what it will take, once that is known.
    """

    source: Path
    target: Path
    memory: int = 1 << 62
    problem: GlocalError | None = None
    skip: bool = False
    needs: Cost | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """An input file, and its folder relative to the folder that the user named."""

    path: Path
    below: Path = Path()
    problem: GlocalError | None = None


def plan_tasks(
    command: str,
    inputs: Sequence[str],
    *,
    output: str | None,
    recursive: bool,
    suffixes: Collection[str],
    say: Callable[[str], None] = silent,
) -> list[Task]:
    """Pair every input file with its output.

    Parameters
    ----------
    command
        Stands for `{command}` in a pattern.
    inputs
        Files, folders and globs. Of a folder, the files with one of `suffixes` are taken, and with `recursive`
        those of the folders inside.
    output
        A file (for one input), a folder, a pattern with `{stem}`, `{ext}`, `{name}` or `{command}` in its last
        part, or None for `DEFAULT_PATTERN` next to each input. Below a folder the tree of the inputs is kept.
    recursive
        See `inputs`.
    suffixes
        With their dots, in lower case.
    say
        Gets a line about inputs that are left out.

    Returns
    -------
    list[Task]
        The tasks in the order of the inputs; one that names a missing file, or an output of a format that cannot be
        written, carries its error. Inputs that are outputs of other inputs are left out.

    Raises
    ------
    ArgumentError
        One output file for several inputs, an unknown field in the pattern, or two inputs that would
        get the same output.
    InputError
        The inputs name no file at all.
    """
    check_mounted(output, *inputs)
    found = list(_expand(inputs, recursive=recursive, suffixes=suffixes, results=_folder_of(output)))
    if not found:
        raise InputError(
            f"{command} ({' '.join(inputs)}): there are no files of a known format. Name files, or add --recursive."
        )
    folder_asked = any(_is_folder(Path(text)) for text in inputs)
    target = _targets(command, output, many=len(found) > 1 or folder_asked)
    tasks = [_task(one, target(one), suffixes) for one in found]
    taken: dict[str, Path] = {}
    for task in tasks:
        key = os.path.abspath(task.target)  # noqa: PTH100  links must stay as they are: two names, two outputs
        if key in taken:
            raise ArgumentError(
                f"-o: {taken[key]} and {task.source} would both be written to {task.target}. "
                "Choose an output folder or a pattern that keeps them apart."
            )
        taken[key] = task.source
    # What an earlier run made of one of the inputs is no input: -o "{stem}_new{ext}" next to them, run a second time.
    made = {task.target.absolute() for task in tasks if task.target.absolute() != task.source.absolute()}
    left_out = [str(task.source) for task in tasks if task.source.absolute() in made]
    if left_out:
        names = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
        say(
            f"{command}: {len(left_out)} of {len(tasks)} inputs are left out, since other inputs are written there: {names}"
        )
    return [task for task in tasks if task.source.absolute() not in made]


def check_mounted(*names: str | None) -> None:
    """Refuse empty names, and addresses such as s3://BUCKET/NAME, which are not paths. A single letter is a drive of Windows.

    >>> check_mounted("scans/a.png", "C://scans/a.png", None)
    """
    for name in names:
        if name == "":
            raise ArgumentError(
                "file: a name is empty, which would mean the current folder. Name a file or a folder, or write a dot."
            )
        if name is not None and _ADDRESS.match(name):
            raise InputError(
                f"file ({name}): it is an address, and files are read and written by their paths. "
                "Mount the storage, for example with rclone or s3fs, and give the path."
            )


def output_root(output: str | None) -> Path:
    """Return the folder of a whole batch: the output folder, or the current one.

    >>> output_root("out").name, output_root("out/{stem}.png").name
    ('out', 'out')
    """
    if output is None or output == "-":
        return Path()
    path = Path(output)
    named = _names_folder(output) or not ("{" in path.name or path.suffix)
    return path if named or _is_folder(path) else path.parent


def _folder_of(output: str | None) -> Path | None:
    """Return the folder of results, if the output names one."""
    if output is None or output == "-" or output_root(output) == Path():
        return None
    return output_root(output).absolute() if "{" in Path(output).name or not Path(output).suffix else None


def _expand(
    inputs: Iterable[str], *, recursive: bool, suffixes: Collection[str], results: Path | None
) -> Iterator[_Found]:
    """List every input file once; results in a folder inside of an input folder are not inputs."""
    seen: set[Path] = set()
    inputs = list(inputs)
    for text in inputs:
        base = Path(text).absolute()
        inside = results is not None and results != base and results.is_relative_to(base)
        for one in _matches(text, recursive=recursive, suffixes=suffixes):
            if inside and results is not None and one.path.absolute().is_relative_to(results):
                continue
            if len(inputs) > 1:  # one folder or pattern names no file twice
                key = one.path.absolute()
                if key in seen:
                    continue
                seen.add(key)
            yield one


def _matches(text: str, *, recursive: bool, suffixes: Collection[str]) -> Iterator[_Found]:
    path = Path(text)
    problem: GlocalError | None = _unusable(path) if text != "-" else None
    if problem is not None:
        yield _Found(path, problem=problem)
        return
    if path.is_dir():
        yield from _files_in(path, Path(), recursive=recursive, suffixes=suffixes)
        return
    if path.exists() or text == "-" or not any(letter in text for letter in "*?["):
        if text != "-" and not path.exists():
            problem = InputError(f"read file ({text}): there is no such file. Check the name.")
        yield _Found(path, problem=problem)
        return
    # The part in front of the first wildcard is the folder from which the tree is kept.
    parts = path.parts
    first = next(i for i, part in enumerate(parts) if any(letter in part for letter in "*?["))
    base = Path(*parts[:first])
    matches = [file for file in sorted(base.glob(str(Path(*parts[first:])))) if file.is_file()]
    if not matches:
        problem = InputError(f"read file ({text}): no file matches this pattern. Check it, or quote it for the shell.")
        yield _Found(path, problem=problem)
    for file in matches:
        yield _Found(file, file.parent.relative_to(base))


def _files_in(folder: Path, below: Path, *, recursive: bool, suffixes: Collection[str]) -> Iterator[_Found]:
    """List the files of a folder in the order of their names. Links to folders are not followed."""
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        return
    for entry in inside:
        if recursive and entry.is_dir(follow_symlinks=False):
            yield from _files_in(folder / entry.name, below / entry.name, recursive=True, suffixes=suffixes)
        elif os.path.splitext(entry.name)[1].lower() in suffixes and entry.name[0] != "." and entry.is_file():  # noqa: PTH122
            yield _Found(folder / entry.name, below)


def _unusable(path: Path) -> GlocalError | None:
    """Return the problem of a name that the system cannot look up, such as one that is too long."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        return InputError(f"read file ({path}): {reason}. Give it another name.")
    return None


def _task(one: _Found, target: Path, suffixes: Collection[str]) -> Task:
    """Return a task. Its output name is checked now, before long work; a suffix that comes from the input is not."""
    suffix = target.suffix.lower()
    problem, piped = one.problem, str(target) == "-"
    if problem is None and piped and PIPED not in suffixes:
        problem = ArgumentError("-o (-): only sound goes through a pipe. Name a file.")
    elif problem is None and not piped and suffix not in suffixes and suffix != one.path.suffix.lower():
        known = " ".join(sorted(suffixes))
        wrong_name = (
            f"the suffix `{suffix}` names no format" if suffix else "the name has no suffix, so the format is not known"
        )
        problem = ArgumentError(f"-o ({target}): {wrong_name}. Use one of {known}.")
    if problem is None and not piped and (wrong := _unusable(target)) is not None:
        problem = OutputError(
            str(wrong).replace("read file", "write file").replace("Give it another name", "Choose another -o")
        )
    return Task(one.path, target, problem=problem)


def _targets(command: str, output: str | None, *, many: bool) -> Callable[[_Found], Path]:
    """Return the function that says where the result of an input goes. What all inputs share is looked up once."""
    if output is None:
        return lambda one: (
            Path("-") if str(one.path) == "-" else one.path.with_name(_named(DEFAULT_PATTERN, one.path, command))
        )
    path = Path(output)
    if output == "-":
        if many:
            raise ArgumentError("-o: `-` takes one result, and there are several inputs. Name a folder.")
        return lambda one: path
    if "{" in path.name:
        if output == path.name:
            return lambda one: one.path.with_name(_named(path.name, one.path, command))
        return lambda one: path.parent / one.below / _named(path.name, one.path, command)
    names_folder = _is_folder(path) or _names_folder(output)
    if many and path.suffix and not names_folder:
        raise ArgumentError(f"-o: `{output}` names one file, and there are several inputs. Name a folder or a pattern.")
    if not (many or names_folder):
        return lambda one: path
    folders: dict[Path, Path] = {}

    def inside(one: _Found) -> Path:
        if one.below not in folders:
            folders[one.below] = path / one.below
        return folders[one.below] / one.path.name

    return inside


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that the system cannot look up
        return False


def _names_folder(output: str) -> bool:
    return output.endswith(("/", os.sep))


def _named(pattern: str, source: Path, command: str) -> str:
    """Fill in a pattern for a name."""
    try:
        return pattern.format(stem=source.stem, ext=source.suffix, name=source.name, command=command)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ArgumentError(
            f"-o: the pattern `{pattern}` cannot be filled in. Use {{stem}}, {{ext}}, {{name}} and {{command}}."
        ) from error
