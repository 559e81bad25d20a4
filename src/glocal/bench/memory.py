"""Peak memory of one work, in a fresh process: `python -m glocal.bench.memory conv:memory_case '{"side": "ours"}'`.

The case prepares its inputs and runs once at a small size, so that libraries are loaded and code is compiled. Then the
peak is reset and the work runs at full size; what counts is the peak above the memory held before.
"""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from glocal.errors import GlocalError

Work = Callable[[], object]


class MeasureError(GlocalError, RuntimeError):
    """A measurement could not be made."""


def peak_mib(case: str, **arguments: object) -> float:
    """Run a case in a fresh process and return its peak above its inputs, in MiB.

    Parameters
    ----------
    case : str
        `MODULE:FUNCTION` in this package. The function takes `arguments` and `small`, and returns the work.

    Raises
    ------
    MeasureError
        The process failed.
    """
    command = [sys.executable, "-m", "glocal.bench.memory", case, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        message = f"bench: the process that measures {case!r} failed: {reason}. Run `{' '.join(command)}` to see why."
        raise MeasureError(message)
    return float(json.loads(done.stdout)["mib"])


def measure(prepare: Callable[..., Work]) -> float:
    """Prepare and run the small form, then prepare and measure the full one, in this process."""
    prepare(small=True)()
    work = prepare(small=False)
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


if __name__ == "__main__":
    home, _, name = sys.argv[1].partition(":")
    prepare = getattr(importlib.import_module(f"glocal.bench.{home}"), name)
    peak = measure(functools.partial(prepare, **json.loads(sys.argv[2])))
    sys.stdout.write(json.dumps({"case": sys.argv[1], "mib": peak}) + "\n")
