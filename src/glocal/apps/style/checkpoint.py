"""Files that a run writes while it works: checkpoints, from which it can continue, and previews."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glocal.apps.style.options import StyleFiles
from glocal.apps.style.solve import HISTORY, Checkpoint
from glocal.atomic import write_whole
from glocal.color_space import rgb_from_lab
from glocal.errors import InputError, OutputError
from glocal.files.images.picture import Picture, to_depth
from glocal.files.images.write import write_image
from glocal.progress import Progress

_FORMAT = "glocal-style-checkpoint-2"
_PREVIEW_SECONDS = 2.0
_CHECKPOINT_SECONDS = 30.0

_EXACT = ("z", "factors", "pairs", "fresh", "rows", "dots")


def checkpoint_path(target: str | os.PathLike[str]) -> Path:
    """Return the path of the checkpoint of an output: next to it.

    >>> checkpoint_path("out/a.png").name
    'a.png.checkpoint'
    """
    path = Path(target)
    return path.with_name(path.name + ".checkpoint")


def save_checkpoint(path: str | os.PathLike[str], point: Checkpoint, recipe: dict[str, Any]) -> None:
    """Write a checkpoint and replace an older one. The file appears complete or not at all.

    Raises
    ------
    OutputError
        If it cannot be written, for example because the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    about = {"level": point.level, "iteration": point.iteration, "recipe": _key(recipe)}
    tensors = {"lab": point.lab.detach().cpu().contiguous()} | (point.exact or {})
    with write_whole(path, overwrite=True) as beside:  # directly into the file: large runs have no memory for a copy
        try:
            save_file(tensors, beside, {"format": _FORMAT, "about": json.dumps(about)})
        except SafetensorError as error:  # it contains the system's error only as text
            message = f"write checkpoint ({path}): {error}. Free some space or choose another folder."
            raise OutputError(message) from error


def load_checkpoint(path: str | os.PathLike[str], recipe: dict[str, Any]) -> Checkpoint:
    """Read a checkpoint of a run with the same options and inputs.

    Raises
    ------
    InputError
        If there is none, it is damaged, or it belongs to another run.
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
        raise InputError(f"read checkpoint ({path}): there is none. Leave out --resume to start again.") from error
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"read checkpoint ({path}): it is damaged. Leave out --resume to start again.") from error
    if key != _key(recipe):
        message = (
            f"read checkpoint ({path}): it belongs to a run with other options or pictures, or on another device. "
            "Leave out --resume to start again."
        )
        raise InputError(message)
    return Checkpoint(level, iteration, lab, exact)


def _check_exact(exact: dict[str, Any], size: int) -> None:
    """Check that the parts of the L-BFGS history are consistent.

    Raises
    ------
    ValueError
        If they are not.
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


class Keeper:
    """Writes previews and checkpoints now and then while a run goes on.

    A checkpoint that cannot be written (a full disk) is said once and given up: the run itself goes on. Previews
    take at most a twentieth of the time, and so do checkpoints.

    recipe : of the run; a checkpoint of another one is refused.
    files : says which files are wanted, and whether to `resume`.
    target : the output of the run, or None.
    say : gets messages for people.
    begun : the checkpoint from which the run continues, or None.
    """

    def __init__(
        self, recipe: dict[str, Any], files: StyleFiles, target: Path | None, say: Callable[[str], None]
    ) -> None:
        beside = None if target is None else checkpoint_path(target)
        self.begun = load_checkpoint(beside, recipe) if files.resume and beside is not None else None
        self.recipe, self.preview, self.say = recipe, files.preview, say
        self.checkpoint = beside if files.checkpoints else None
        self._next = {"preview": 0.0, "checkpoint": 0.0}

    def keep(self, now: Progress, *, stopping: bool) -> None:
        """Write what is due; a checkpoint also when the run is about to stop."""
        if self.preview is not None and now.image is not None and self._due("preview"):
            with self._timed("preview", _PREVIEW_SECONDS):
                rgb = rgb_from_lab(now.image).clamp(0, 1).float().cpu().numpy()
                write_image(self.preview, Picture(to_depth(rgb, "8")), overwrite=True)
        if self.checkpoint is not None and now.snapshot is not None and (stopping or self._due("checkpoint")):
            try:
                with self._timed("checkpoint", _CHECKPOINT_SECONDS):
                    save_checkpoint(self.checkpoint, now.snapshot(), self.recipe)
            except (OutputError, OSError) as error:
                self.checkpoint = None
                self.say(f"no checkpoint is kept: {error} The run goes on; --no-checkpoints turns them off.")

    def _due(self, name: str) -> bool:
        return time.monotonic() >= self._next[name]

    @contextmanager
    def _timed(self, name: str, seconds: float) -> Iterator[None]:
        """Put off the next file: by `seconds`, or by more if this one takes long."""
        began = time.monotonic()
        yield
        self._next[name] = began + max(seconds, 20 * (time.monotonic() - began))
