"""Which backend runs an operation, and why the others do not. Selection is a table, not a chain of ifs.

`GLOCAL_BACKEND=reference|portable|cpu|cuda` overrides the choice for everything.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from glocal.errors import ArgumentError, DeviceError

ON_SIGNALS = (
    "reverse",
    "extract",
    "extract_backward",
    "graph_conv",
    "graph_conv_backward",
    "shared_conv",
    "shared_conv_backward",
    "gram",
    "gram_maps",
    "gram_backward",
    "variation",
)
ON_VECTORS = ("products", "combine")
ON_WINDOWS = ("similarities", "ranked_conv")
ON_LATTICES = ("lattice_conv", "lattice_conv_backward", "lattice_shared", "lattice_shared_backward")
ON_CANDIDATES = ("squared_differences",)
ON_NEIGHBORS = ("patch_neighbors", "knn", "match_patches", "match_rows", "window_neighbors")
_TRITON = 3, 5  # the oldest whose matrix products take float64
OPERATIONS = (*ON_NEIGHBORS, *ON_SIGNALS, *ON_LATTICES, *ON_VECTORS, *ON_WINDOWS, *ON_CANDIDATES)


def _cpu_refuses(device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"the tensors are on {device}"
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed"
    return None


def _cuda_refuses(device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"the tensors are on {device}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    version = str(importlib.import_module("triton").__version__)
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _TRITON:
        return f"triton {version} multiplies no float64; {_TRITON[0]}.{_TRITON[1]} does, which comes with torch 2.9"
    return None


def _always(device: torch.device) -> str | None:
    return None


@dataclass(frozen=True)
class Backend:
    """One set of kernels: the module that holds each operation, when it cannot run, and which dtypes it takes."""

    name: str
    modules: dict[str, str]
    refuses: Callable[[torch.device], str | None]
    half: bool = False
    """Whether it takes bfloat16 and float16; otherwise it is given float32."""


# The first backend that has the operation and does not refuse runs it.
BACKENDS: tuple[Backend, ...] = (
    Backend(
        "cuda",
        dict.fromkeys(ON_NEIGHBORS, "cuda.neighbors")
        | dict.fromkeys(ON_SIGNALS, "cuda.operations")
        | dict.fromkeys(ON_WINDOWS, "cuda.ranked"),
        _cuda_refuses,
        half=True,
    ),
    Backend(
        "cpu",
        {"patch_neighbors": "cpu.neighbors", "window_neighbors": "cpu.window"}
        | dict.fromkeys(("match_patches", "match_rows"), "cpu.match")
        | dict.fromkeys((*ON_SIGNALS, *ON_VECTORS, *ON_CANDIDATES), "cpu.operations")
        | dict.fromkeys(ON_LATTICES, "cpu.lattice")
        | dict.fromkeys(ON_WINDOWS, "cpu.ranked"),
        _cpu_refuses,
    ),
    Backend(
        "portable",
        dict.fromkeys((*ON_NEIGHBORS, *ON_CANDIDATES), "portable")
        | {"window_neighbors": "portable_window"}
        | {"lattice_conv": "lattice", "lattice_shared": "lattice"},
        _always,
        half=True,
    ),
    Backend(
        "reference",
        dict.fromkeys(OPERATIONS, "reference")
        | dict.fromkeys(ON_NEIGHBORS, "reference_search")
        | dict.fromkeys(ON_WINDOWS, "reference_ranked"),
        _always,
    ),
)


def pick(operation: str, device: torch.device | str) -> Callable[..., Any]:
    """Return the function that runs `operation` for tensors on `device`. Raises DeviceError if none may.

    >>> pick("window", "cpu")
    Traceback (most recent call last):
    ...
    glocal.errors.DeviceError: ...no backend has the operation 'window'...
    """
    return _pick(operation, torch.device(device), os.environ.get("GLOCAL_BACKEND", ""))[1]


def chosen_and_picked(operation: str, device: torch.device) -> tuple[Backend, Callable[..., Any]]:
    """Return what `chosen` and `pick` return, for the price of one."""
    return _pick(operation, device, os.environ.get("GLOCAL_BACKEND", ""))


def chosen(operation: str, device: torch.device | str) -> Backend:
    """Return the backend that runs `operation` for tensors on `device`. Raises DeviceError if none may.

    >>> chosen("knn", "cpu").name
    'portable'
    """
    return _pick(operation, torch.device(device), os.environ.get("GLOCAL_BACKEND", ""))[0]


def explain(device: torch.device | str = "cpu") -> list[tuple[str, str, str]]:
    """List `(operation, backend, why the earlier ones do not run it)` for `device`."""
    rows, wanted = [], os.environ.get("GLOCAL_BACKEND", "")
    for operation in OPERATIONS:
        backend = chosen(operation, device)
        earlier = BACKENDS[: BACKENDS.index(backend)]
        forced = f"GLOCAL_BACKEND is {wanted!r}"
        reasons = [f"{b.name}: {_why_not(b, operation, torch.device(device)) or forced}" for b in earlier]
        rows.append((operation, backend.name, "; ".join(reasons)))
    return rows


def forget() -> None:
    """Choose again from now on: call it where a package was installed or removed while Python runs."""
    _pick.cache_clear()


def _why_not(backend: Backend, operation: str, device: torch.device) -> str | None:
    refusal = backend.refuses(device)
    if refusal is None and operation not in backend.modules:
        return "does not have this operation"
    return refusal


@cache
def _pick(operation: str, device: torch.device, wanted: str) -> tuple[Backend, Callable[..., Any]]:
    names = [b.name for b in BACKENDS]
    if wanted and wanted not in names:
        message = f"GLOCAL_BACKEND (={wanted!r}) is not a backend. Choose one of {', '.join(names)}, or unset it."
        raise ArgumentError(message)
    if operation not in OPERATIONS:
        message = f"pick: no backend has the operation {operation!r}. Choose one of {', '.join(OPERATIONS)}."
        raise DeviceError(message)
    candidates = BACKENDS
    if wanted:  # an operation that the wanted backend does not have falls through to the plainer ones after it
        chosen = BACKENDS[names.index(wanted)]
        if refusal := chosen.refuses(device):
            message = f"GLOCAL_BACKEND (={wanted!r}) cannot run here: {refusal}. Unset it to choose by itself."
            raise DeviceError(message)
        candidates = BACKENDS[names.index(wanted) :]
    for backend in candidates:
        if _why_not(backend, operation, device) is None:
            module = importlib.import_module(f"glocal.kernels.{backend.modules[operation]}")
            function: Callable[..., Any] = getattr(module, operation)
            return backend, function
    message = f"pick: no backend can run {operation!r} on {device}. Move the tensors to the CPU."
    raise DeviceError(message)
