"""How much memory there is, and sizes as people write them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from glocal.errors import ArgumentError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as "4G", "512M" or "1.5 GiB"; K, M and G are powers of 1024.

    Raises
    ------
    ArgumentError
        The text is not a size.

    Examples
    --------
    >>> parse_bytes("1.5G") == 1536 * 1024 ** 2
    True
    """
    found = _SIZE.fullmatch(text)
    if not found or float(found[1]) == 0:
        raise ArgumentError(f"`{text}` is not a size. Write it like 4G or 512M.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def available_memory() -> int:
    """Return the bytes that are free without swapping, as far as the system says; a container's limit counts."""
    free = _of_system()
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


def _of_system() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def bytes_text(count: int) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> bytes_text(1500), bytes_text(3 << 30)
    ('1.5 kB', '3.0 GiB')
    """
    if count < 1 << 20:
        return f"{count / 1000:.1f} kB"
    return f"{count / (1 << 20):.0f} MiB" if count < 1 << 30 else f"{count / (1 << 30):.1f} GiB"
