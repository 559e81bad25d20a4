"""Peak memory of one work, in a fresh process: `python -m glocal.bench.memory CASE` prints it as JSON.

The case prepares its inputs and runs once at a small size, so that libraries are loaded and code is compiled. Then the
peak is reset and the work runs at full size; what counts is the peak above the memory held before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from glocal.errors import GlocalError

Work = Callable[[], object]


class MeasureError(GlocalError, RuntimeError):
    """A measurement could not be made."""


def peak_mib(case: str) -> float:
    """Run a case in a fresh process and return its peak above its inputs, in MiB. Raises MeasureError."""
    command = [sys.executable, "-m", "glocal.bench.memory", case]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        message = f"bench: the process that measures {case!r} failed: {reason}. Run `{' '.join(command)}` to see why."
        raise MeasureError(message)
    return float(json.loads(done.stdout)["mib"])


def measure(prepare: Callable[[bool], Work]) -> float:
    """Prepare and run the small form, then prepare and measure the full one, in this process."""
    prepare(True)()
    work = prepare(False)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    kept = work()
    peak = _status("VmHWM") - before
    del kept
    return peak


def _status(key: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    message = f"bench: this system does not report {key}. Measure memory on Linux."
    raise MeasureError(message)


def _cases() -> dict[str, Callable[[bool], Work]]:
    from glocal.bench import conv, graph, grid

    return {
        "conv-ours": lambda small: conv.memory_case("ours", small=small),
        "conv-torch": lambda small: conv.memory_case("torch", small=small),
        "grid-forward": lambda small: grid.memory_case(backward=False, small=small),
        "grid-backward": lambda small: grid.memory_case(backward=True, small=small),
        "graph-24-megapixels": lambda small: graph.memory_case(small=small),
        "graph-1-megapixel": lambda small: graph.memory_case(small=small, height=1000, width=1000),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"case": sys.argv[1], "mib": measure(_cases()[sys.argv[1]])}) + "\n")
