"""`glocal doctor`: what is installed, what will be used and why, and one line for each thing to fix."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import typer

from glocal.cli.shell.console import Console, RunOptions
from glocal.errors import GlocalError, ModelError
from glocal.jobs.memory import available_memory, bytes_text
from glocal.jobs.processes import usable_cores


@dataclass(frozen=True)
class Section:
    """What was found about one subject: rows of (name, text), and what to fix."""

    rows: list[tuple[str, str]]
    remedies: list[str] = field(default_factory=list)


def doctor(run: RunOptions) -> None:
    """Check this installation: versions, devices, threads, kernels, codecs, models, and a short test of everything.

    The exit code is 0 if nothing has to be fixed, else 1. Optional parts that are missing are listed, but do not count.
    """
    console = Console(run)
    sections = {title: _looked(title, look) for title, look in SECTIONS.items()}
    remedies = [remedy for section in sections.values() for remedy in section.remedies]
    data: dict[str, Any] = {title: dict(section.rows) for title, section in sections.items()}
    lines = []
    for title, section in sections.items():
        lines.append(title)
        lines += [f"  {name:<16} {text}" for name, text in section.rows]
    lines += ["", *(f"fix: {remedy}" for remedy in remedies)] if remedies else ["", "nothing to fix"]
    console.result(data | {"remedies": remedies}, "\n".join(lines))
    if remedies:
        raise typer.Exit(1)


def _looked(title: str, look: Callable[[], Section]) -> Section:
    """Return a section of the report, even if its check raises an error."""
    try:
        return look()
    except Exception as error:
        return Section([("failed", f"{type(error).__name__}: {error}")], [f"{title}: install glocal again"])


def _versions() -> Section:
    from glocal.files.provenance import versions

    rows = list(versions().items())
    needed = ("torch", "numpy", "numba", "pillow", "imagecodecs", "soundfile")
    missing = [name for name in needed if name not in dict(rows)]
    return Section(rows, [f"pip install {name}" for name in missing])


def _devices() -> Section:
    import torch

    rows = [("cpu", f"{usable_cores()} cores, {bytes_text(available_memory())} of memory free")]
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        rows.append((f"cuda:{index}", f"{properties.name}, {bytes_text(properties.total_memory)}"))
    if len(rows) == 1:
        built = torch.version.cuda
        why = "this torch is built without CUDA" if built is None else f"torch for CUDA {built} finds no device"
        rows.append(("cuda", f"none: {why}"))
    return Section(rows)


def _threads() -> Section:
    import numba
    import torch

    rows = [
        ("cores", str(usable_cores())),
        ("torch", str(torch.get_num_threads())),
        ("numba", str(numba.get_num_threads())),
    ]
    rows += [(name, os.environ[name]) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS") if name in os.environ]
    remedies = []
    if torch.get_num_threads() > 2 * usable_cores():
        remedies.append(f"threads: set OMP_NUM_THREADS={usable_cores()}, torch uses more threads than there are cores")
    return Section(rows, remedies)


def _kernels() -> Section:
    import torch

    from glocal.kernels.select import explain

    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    rows = []
    for device in devices:
        for operation, backend, why in explain(device):
            name = operation if device == "cpu" else f"{operation} ({device})"
            rows.append((name, f"{backend}{f' ({why})' if why else ''}"))
    if importlib.util.find_spec("numba") is None:
        return Section(rows, ["kernels: pip install numba"])
    return Section([*rows, ("compiled kernels", _compiled_kernels())])


def _compiled_kernels() -> str:
    from glocal.kernels.cache import SETTING, cache_folder

    folder = cache_folder()
    if folder.problem:
        return (
            f"in memory, compiled at each start: {folder.path} cannot be written ({folder.problem}). "
            f"Set {SETTING} to a folder that you may write to"
        )
    return f"{folder.path}, {len(folder.files)} files, {bytes_text(folder.size)}"


def _codecs() -> Section:
    import soundfile

    from glocal.files.images.formats import FORMATS
    from glocal.files.images.read import read_image
    from glocal.files.images.write import write_image

    rows, remedies = [], []
    for name in FORMATS:
        try:
            _round_trip(name, read_image, write_image)
            rows.append((name, "read and write"))
        except GlocalError as error:
            rows.append((name, f"not available: {str(error).split(': ', 1)[-1]}"))
            if name not in ("AVIF", "HEIF"):
                remedies.append(f"{name}: pip install --force-reinstall pillow imagecodecs")
    sounds = [name for name in ("WAV", "FLAC", "OGG", "MP3") if name in soundfile.available_formats()]
    rows.append(("audio", ", ".join(sounds) + f" (libsndfile {soundfile.__libsndfile_version__})"))
    if len(sounds) < 4:
        remedies.append("audio: pip install --upgrade soundfile")
    return Section(rows, remedies)


def _round_trip(name: str, read_image: Callable[..., Any], write_image: Callable[..., Any]) -> None:
    """Write and read one small picture of a format."""
    import tempfile
    from pathlib import Path

    import numpy as np

    from glocal.files.images.formats import FORMATS
    from glocal.files.images.picture import Picture

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{FORMATS[name].suffixes[0]}"
        write_image(path, Picture(np.zeros((16, 16, 3), np.uint8)))
        read_image(path)


def _models() -> Section:
    from glocal.files.model_files import check_models

    try:
        checks = check_models()
    except ModelError as error:
        return Section([("index", str(error))], ["models: install glocal again"])
    rows = [(one.name, f"sha256 {one.sha256[:16]}, {'whole' if one.ok else 'DAMAGED'}") for one in checks]
    remedies = [f"model {one.name}: {one.problem}" for one in checks if not one.ok]
    return Section(rows or [("none", "this build ships no trained models")], remedies)


def _self_test() -> Section:
    from glocal.cli.shell.self_test import run_checks

    results = list(run_checks())
    fix = f"run `{sys.executable} -m pip install --force-reinstall glocal`"
    remedies = [f"{one.name}: {one.problem}; {fix}" for one in results if one.problem]
    return Section([(one.name, str(one)) for one in results], remedies)


SECTIONS: dict[str, Callable[[], Section]] = {
    "versions": _versions,
    "devices": _devices,
    "threads": _threads,
    "kernels": _kernels,
    "codecs": _codecs,
    "models": _models,
    "self-test": _self_test,
}
