"""Models in files: safetensors, with an index of their SHA-256 sums. Arrays only; no pickles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.atomic import write_whole
from glocal.errors import ModelError

MODELS = Path(__file__).parent.parent / "models"
INDEX = "index.json"
SUFFIX = ".safetensors"
_REPAIR = "Install glocal again"


@dataclass(frozen=True)
class ModelFile:
    """The arrays of a model and what its index entry says about it (data, protocol, figures)."""

    name: str
    arrays: dict[str, npt.NDArray[Any]]
    info: dict[str, Any] = field(default_factory=dict)
    sha256: str = ""


@dataclass(frozen=True)
class Check:
    """What `check_models` found about one model: whether it can be used, and why not."""

    name: str
    path: Path
    ok: bool
    sha256: str
    problem: str = ""


def read_model(name: str | Path, *, folder: Path = MODELS) -> ModelFile:
    """Read a model and make sure that it is the one that was shipped.

    Parameters
    ----------
    name
        A name in the index of `folder`, or the path of a ``.safetensors`` file of your own (which is read without
        comparing its sum with an index).
    folder
        Where the models and ``index.json`` are; by default inside of the package.

    Returns
    -------
    ModelFile
        The arrays by name. Cost: one copy of the file.

    Raises
    ------
    ModelError
        There is no such model, its file is missing or damaged, its sum differs from the index, or a value is NaN
        or infinite.
    """
    if str(name).endswith(SUFFIX):
        path = Path(name)
        data = _read(path, "", "Check the name")
        return ModelFile(path.stem, _arrays(data, path, "Save it again"), _info(data), hashlib.sha256(data).hexdigest())
    index = read_index(folder)
    entry = index.get(str(name))
    if entry is None:
        known = ", ".join(sorted(index)) or "none"
        raise ModelError(f"read_model: there is no model `{name}`. Use one of: {known}.")
    path = folder / entry["file"]
    data = _read(path, f" {name}", _REPAIR)
    found = hashlib.sha256(data).hexdigest()
    if found != entry["sha256"]:
        raise ModelError(
            f"load model ({path}): the file is damaged: its SHA-256 is {found[:12]}..., not {entry['sha256'][:12]}.... "
            f"{_REPAIR}."
        )
    return ModelFile(str(name), _arrays(data, path, _REPAIR), dict(entry.get("info", {})), found)


def write_model(
    name: str, arrays: Mapping[str, npt.NDArray[Any]], *, folder: Path, info: Mapping[str, Any] | None = None
) -> Path:
    """Write ``NAME.safetensors`` into `folder` and enter its sum and `info` into the index there.

    The same arrays and `info` give the same bytes. A model of the same name is replaced.

    Raises
    ------
    OutputError
        The folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = write_model("tiny", {"h": np.ones(3, np.float32)}, folder=folder, info={"sigma": 0.07})
    >>> read_model("tiny", folder=folder).info
    {'sigma': 0.07}
    """
    from safetensors.numpy import save

    kept = {key: np.ascontiguousarray(arrays[key]) for key in sorted(arrays)}
    data = save(kept, metadata={"info": json.dumps(dict(info or {}), sort_keys=True)})
    path = folder / (name + SUFFIX)
    with write_whole(path, overwrite=True) as temporary:
        temporary.write_bytes(data)
    index = read_index(folder)
    index[name] = {"file": path.name, "sha256": hashlib.sha256(data).hexdigest(), "info": dict(info or {})}
    with write_whole(folder / INDEX, overwrite=True) as temporary:
        temporary.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path


def read_index(folder: Path = MODELS) -> dict[str, dict[str, Any]]:
    """Return the index of a folder of models: name to file, sum and info. Empty if there is none.

    Raises
    ------
    ModelError
        The index is damaged.
    """
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        whole = all({"file", "sha256"} <= set(entry) for entry in index.values())
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"read models ({path}): the index is damaged. {_REPAIR}.") from error
    if not whole:
        raise ModelError(f"read models ({path}): an entry lacks its file or sum. {_REPAIR}.")
    return dict(index)


def check_models(folder: Path = MODELS) -> list[Check]:
    """Compare every model of a folder with the index."""
    checks = []
    for name, entry in sorted(read_index(folder).items()):
        path = folder / entry["file"]
        try:
            sum_found = read_model(name, folder=folder).sha256
        except ModelError as error:
            checks.append(Check(name, path, False, entry["sha256"], str(error)))
        else:
            checks.append(Check(name, path, True, sum_found))
    return checks


def _read(path: Path, what: str, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ModelError(f"load model{what} ({path}): {reason}. {remedy}.") from error


def _arrays(data: bytes, path: Path, remedy: str) -> dict[str, npt.NDArray[Any]]:
    from safetensors.numpy import load

    try:
        arrays = dict(load(data))
    except Exception as error:  # safetensors has a different error class for each of its languages
        raise ModelError(f"load model ({path}): it is not a safetensors file. {remedy}.") from error
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelError(f"load model ({path}): `{name}` has values that are NaN or infinite. {remedy}.")
    return arrays


def _info(data: bytes) -> dict[str, Any]:
    """Return the `info` that `write_model` put into the file itself."""
    length = int.from_bytes(data[:8], "little")
    try:
        info = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["info"])
    except (ValueError, KeyError, TypeError):
        return {}
    return info if isinstance(info, dict) else {}
