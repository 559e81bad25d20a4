"""What whole commands take: time, processor time and peak memory, from the start of the program to the file.

    python benchmarks/commands.py                    all of them, about ten minutes on two cores
    python benchmarks/commands.py --only "style"     those whose name contains this, only printed

Every command runs twice: first with an empty cache of kernels, then with the kernels that the first run compiled. The rows of
all commands go to benchmarks/results/commands.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from glocal import samples
from glocal.bench.timing import metadata

RESULTS = Path(__file__).resolve().parent / "results" / "commands.json"
PHOTO, PAINTING, SPEECH = (str(samples.path(name)) for name in ("bridge.jpg", "van_gogh_auvers.jpg", "speech.wav"))
PRESETS = ("patches", "painterly", "brush", "bold")
STYLES = [(preset, size) for size in (512, 1024) for preset in PRESETS] + [("paper", 256)]
COMMANDS = {
    **{f"style, {name}, {size}": ["style", PHOTO, PAINTING, "-o", "out.png", "--preset", name, "--size", str(size)]
       for name, size in STYLES},
    "color": ["color", PHOTO, PAINTING, "-o", "out.png"],
    "denoise, small": ["denoise", PHOTO, "-o", "out.png", "--model", "small"],
    "denoise, large": ["denoise", PHOTO, "-o", "out.png", "--model", "large"],
    "denoise, nonlocal": ["denoise", PHOTO, "-o", "out.png", "--model", "nonlocal"],
    "denoise, 24 megapixels, small": ["denoise", "large.jpg", "-o", "out.jpg", "--model", "small", "--sigma", "15/255"],
    "denoise, 24 megapixels, photo": ["denoise", "large.jpg", "-o", "out.jpg", "--model", "photo"],
    "speech, voice": ["speech", SPEECH, "-o", "out.wav"],
    "speech, frames": ["speech", SPEECH, "-o", "out.wav", "--model", "frames"],
}  # fmt: skip


class Used(NamedTuple):
    """What one run of a command took."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def measured(arguments: list[str], folder: Path, **variables: str) -> Used:
    """Run `glocal ARGUMENTS` in a process of its own, in a folder and with environment variables."""
    command = [sys.executable, "-m", "glocal", *arguments, "--overwrite", "--quiet"]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=os.environ | variables, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"glocal {' '.join(arguments)} failed")
    return Used(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def write_large(path: Path) -> None:
    """Write a colour JPEG of 24 megapixels: a shipped photo, enlarged, with white noise of 15 of 255."""
    photo = Image.open(samples.path("mountains.jpg")).convert("RGB").resize((6000, 4000), Image.Resampling.BICUBIC)
    noise = np.random.default_rng(0).normal(0, 15, (4000, 6000, 3)).astype(np.float32)
    Image.fromarray((np.asarray(photo) + noise).clip(0, 255).astype(np.uint8)).save(path, quality=95)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a name")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for work, arguments in COMMANDS.items():
            if given.only not in work:
                continue
            if "large.jpg" in arguments and not (folder / "large.jpg").exists():
                # In another process: a command would count the largest memory of the process that starts it as its own.
                writer = multiprocessing.get_context("spawn").Process(target=write_large, args=(folder / "large.jpg",))
                writer.start()
                writer.join()
            with tempfile.TemporaryDirectory() as cache:
                first, again = (measured(arguments, folder, GLOCAL_CACHE_DIR=cache) for _ in range(2))
            more = {"first_seconds": first.seconds, "first_cpu": first.cpu_seconds}
            rows.append({"work": work, **again._asdict(), **more})
            print(rows[-1], flush=True)
    if not given.only:
        content = {"benchmark": "commands", "machine": metadata(), "rows": rows}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
