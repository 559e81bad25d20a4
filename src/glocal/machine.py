"""On what, and when, a number was computed: for training logs and reports. Never the machine's name."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import torch


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
