"""Read safetensors files, also under names that are not UTF-8, which the library writes but does not open."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file. Cost: one copy of the tensors; two if the name is not UTF-8.

    Raises
    ------
    OSError, safetensors.SafetensorError
        The file cannot be read, or it is damaged.
    """
    from safetensors import safe_open
    from safetensors.torch import load

    if _is_text(path):
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    data = Path(path).read_bytes()
    tensors = load(data)  # checks the header, too
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header.get("__metadata__", {}), tensors


def _is_text(path: str | os.PathLike[str]) -> bool:
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True
