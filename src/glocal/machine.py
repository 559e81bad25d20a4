"""On what, and when, a number was computed: for training logs and reports. Never the machine's name."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch

from glocal.errors import DeviceError, MemoryLimitError


def now() -> str:
    """Day and minute, UTC.

    >>> now().endswith(" UTC")
    True
    """
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine(device: torch.device | str = "cpu") -> str:
    """Return the processor and its usable cores, or the GPU, and the torch version.

    >>> f"torch {torch.__version__}" in machine()
    True
    """
    if str(device).startswith("cuda"):
        chip = torch.cuda.get_device_name(device)
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        chip = f"{_processor()}, {cores} cores"
    return f"{chip}, torch {torch.__version__}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


def check_device(call: str, device: str) -> None:
    """Raise DeviceError if there is no device "cpu", "cuda" or "cuda:1" here; `call` is the function it is for.

    Examples
    --------
    >>> check_device("train", "cpu")
    """
    name, _, index = device.partition(":")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device != "cpu" and not (name == "cuda" and (index or "0").isdigit() and int(index or 0) < there):
        message = f"{call}: the device {device!r} is not available here. Use cpu."
        raise DeviceError(message)


@contextmanager
def computing_on(call: str, device: str) -> Iterator[None]:
    """Make a GPU the current one, and say in an error of glocal what is missing; `call` is the function it is for.

    Raises
    ------
    DeviceError
        There is no such device here.
    MemoryLimitError
        The device has too little memory for what is computed inside.
    """
    check_device(call, device)
    try:
        with nullcontext() if device == "cpu" else torch.cuda.device(device):
            yield
    except torch.OutOfMemoryError as error:
        message = f"{call}: {device} has too little memory. Use a smaller input, or cpu."
        raise MemoryLimitError(message) from error


def has_bfloat16(device: torch.device | str = "cpu") -> bool:
    """Return whether this CPU or GPU multiplies bfloat16 in hardware, so that convolutions in it are faster than in float32."""
    if str(device).startswith("cuda"):
        return torch.cuda.get_device_capability(device) >= (8, 0)
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(known is not None and known())
