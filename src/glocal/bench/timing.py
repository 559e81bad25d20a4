"""Times several works in turn, and keeps what is needed to judge the results."""

from __future__ import annotations

import datetime
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numba", "numpy", "scipy", "faiss-cpu", "torch_geometric", "pykeops")


@dataclass(frozen=True)
class Timing:
    """Median of the timed runs and their spread, the distance of the quartiles as a part of the median."""

    seconds: float
    spread: float


@dataclass(frozen=True)
class Row:
    """One line of a table: ours and one peer. `ratio` is how many times less we take; None where the peer is missing."""

    work: str
    peer: str
    unit: str
    ours: float
    theirs: float | None
    ratio: float | None
    target: float | None
    ours_spread: float = 0.0
    theirs_spread: float = 0.0
    note: str = ""


_SHORT = 0.3  # seconds


def interleave(works: Mapping[str, Callable[[], Any]], *, repeats: int, warmup: int = 2) -> dict[str, Timing]:
    """Time every work `repeats` times in turn, after `warmup` runs of each that do not count.

    A short work runs once more before each run that counts. So it finds the memory as its own last run left it, as in a
    training, and not as its peer did: after large arrays of a peer are freed, new pages may take longer than the work.

    >>> sorted(interleave({"a": lambda: None, "b": lambda: None}, repeats=3))
    ['a', 'b']
    """

    def timed(work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    last = {name: [timed(work) for _ in range(warmup)][-1:] for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, work in works.items():
                if min(last[name], default=_SHORT) < _SHORT:
                    work()
                last[name] = [timed(work)]
                seconds[name] += last[name]
    finally:
        if collecting:
            gc.enable()
    return {name: summary(values) for name, values in seconds.items()}


def summary(seconds: Sequence[float]) -> Timing:
    """Reduce timed runs to their median and spread.

    >>> summary([1.0, 3.0, 2.0])
    Timing(seconds=2.0, spread=0.5)
    """
    middle = statistics.median(seconds)
    if len(seconds) < 2:
        return Timing(middle, 0.0)
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(middle, (high - low) / middle if middle else 0.0)


def rows(
    work: str,
    times: Mapping[str, Timing],
    targets: Mapping[str, float | None],
    missing: Mapping[str, str],
    note: str = "",
) -> list[Row]:
    """Compare "ours" with every peer in `targets`; `missing` says why a peer has no time."""
    ours = times["ours"]
    lines = []
    for peer, target in targets.items():
        theirs = times.get(peer)
        if theirs is None:
            lines.append(Row(work, peer, "s", ours.seconds, None, None, target, ours.spread, note=missing[peer]))
            continue
        ratio = theirs.seconds / ours.seconds
        line = Row(work, peer, "s", ours.seconds, theirs.seconds, ratio, target, ours.spread, theirs.spread, note)
        lines.append(line)
    return lines


def metadata() -> dict[str, Any]:
    """Say on what the figures were taken: processor, cores, threads, load, versions, date."""
    import torch

    import glocal

    versions = {"glocal": glocal.__version__}  # an editable installation may still tell an older one
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "missing"
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": _processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def document(name: str, lines: Sequence[Any]) -> dict[str, Any]:
    """Make what is kept of a benchmark, ready for JSON. The lines are dataclasses, such as `Row`."""
    return {"benchmark": name, "machine": metadata(), "rows": [asdict(line) for line in lines]}


def write_json(path: Path, kept: Mapping[str, Any]) -> None:
    """Write a benchmark's document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def text(lines: Sequence[Row]) -> str:
    """Lay rows out as a table for a terminal.

    >>> print(text([Row("sort", "list.sort", "s", 0.5, 2.0, 4.0, 3.0)]))
    work  peer       ours    peer's  ratio  at least  note
    sort  list.sort  500 ms  2.00 s  4.0x   3x
    """
    table = [("work", "peer", "ours", "peer's", "ratio", "at least", "note")]
    for line in lines:
        theirs = "missing" if line.theirs is None else amount(line.theirs, line.unit)
        ratio = "" if line.ratio is None else f"{line.ratio:.1f}x"
        target = "" if line.target is None else f"{line.target:g}x"
        table.append((line.work, line.peer, amount(line.ours, line.unit), theirs, ratio, target, line.note))
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in table)
    return "\n".join(line.rstrip() for line in padded)


def amount(value: float, unit: str) -> str:
    """Write a measured value with three digits.

    >>> amount(0.01234, "s"), amount(12.3, "s"), amount(123.4, "MiB")
    ('12.3 ms', '12.3 s', '123 MiB')
    """
    if unit == "s" and value < 1:
        value, unit = value * 1000, "ms"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"
