"""Checkpoints of a run as files, so that it can go on after an interruption."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from glocal.apps.style.solve import HISTORY, Checkpoint
from glocal.atomic import write_whole
from glocal.errors import InputError, OutputError

_FORMAT = "glocal-style-checkpoint-2"

_EXACT = ("z", "factors", "pairs", "fresh", "rows", "dots")


def checkpoint_path(target: str | os.PathLike[str]) -> Path:
    """Where the checkpoint of an output lies: beside it.

    >>> checkpoint_path("out/a.png").name
    'a.png.checkpoint'
    """
    path = Path(target)
    return path.with_name(path.name + ".checkpoint")


def save_checkpoint(path: str | os.PathLike[str], point: Checkpoint, recipe: dict[str, Any]) -> None:
    """Write a checkpoint, whole or not at all, replacing an older one.

    Raises
    ------
    OutputError
        It cannot be written, for example because the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    about = {"level": point.level, "iteration": point.iteration, "recipe": _key(recipe)}
    tensors = {"lab": point.lab.detach().cpu().contiguous()} | (point.exact or {})
    with write_whole(path, overwrite=True) as beside:  # straight into the file: large runs have no room for a copy
        try:
            save_file(tensors, beside, {"format": _FORMAT, "about": json.dumps(about)})
        except SafetensorError as error:  # it hides the system's error in its text
            message = f"write checkpoint ({path}): {error}. Free some space or choose another folder."
            raise OutputError(message) from error


def load_checkpoint(path: str | os.PathLike[str], recipe: dict[str, Any]) -> Checkpoint:
    """Read a checkpoint of a run with the same options and inputs.

    Raises
    ------
    InputError
        There is none, it is damaged, or it belongs to another run.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
            if notes["format"] != _FORMAT:
                raise ValueError(notes["format"])
            about = json.loads(notes["about"])
            level, iteration, key = int(about["level"]), int(about["iteration"]), about["recipe"]
            lab = file.get_tensor("lab")
            exact = {name: file.get_tensor(name) for name in _EXACT} if "z" in file.keys() else None  # noqa: SIM118
            if exact is not None:
                _check_exact(exact, lab.numel())
    except OSError as error:
        raise InputError(f"read checkpoint ({path}): there is none. Leave out --resume to start anew.") from error
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"read checkpoint ({path}): it is damaged. Leave out --resume to start anew.") from error
    if key != _key(recipe):
        message = (
            f"read checkpoint ({path}): it belongs to a run with other options or pictures, or on another device. "
            "Leave out --resume to start anew."
        )
        raise InputError(message)
    return Checkpoint(level, iteration, lab, exact)


def _check_exact(exact: dict[str, Any], size: int) -> None:
    """See that the memory of L-BFGS fits together.

    Raises
    ------
    ValueError
        It does not.
    """
    pairs, rows, dots, fresh = (exact[name] for name in ("pairs", "rows", "dots", "fresh"))
    slots = HISTORY + 1
    fits = rows.shape == (2 * len(pairs), size) and dots.shape == (2 * slots + 1, 2 * slots + 1)
    fits = fits and exact["z"].numel() == size
    known = all(0 <= pair < slots for pair in pairs.tolist()) and all(0 <= row < 2 * slots for row in fresh.tolist())
    if not (fits and known):
        raise ValueError(tuple(rows.shape))


def _key(recipe: dict[str, Any]) -> str:
    kept = {name: recipe[name] for name in ("options", "arguments", "inputs")}
    return json.dumps(kept, sort_keys=True, default=str)
