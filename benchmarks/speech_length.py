"""What `glocal speech` costs for short and long files: time, processor time and peak memory of the whole command.

    python benchmarks/speech_length.py               files of 2, 10 and 60 minutes, and a minute of stereo at 48 kHz
    python benchmarks/speech_length.py --minutes 10  no file is longer than this

The files repeat the shipped sentence with white noise. The rows go to benchmarks/results/speech_length.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import commands
import numpy as np
import soundfile
import soxr

from glocal import samples
from glocal.bench.timing import metadata

RESULTS = Path(__file__).resolve().parent / "results" / "speech_length.json"
FILES = ((1, 48000, 2), (2, 16000, 1), (10, 16000, 1), (60, 16000, 1))  # minutes, rate, channels
NOISE = 0.02  # standard deviation


@dataclass(frozen=True)
class Row:
    """One file: what it was, and what the command took, with the start of the program."""

    model: str
    minutes: float
    rate: int
    channels: int
    seconds: float
    cpu_seconds: float
    peak_mib: float


def write_noisy(path: Path, minutes: float, rate: int, channels: int) -> None:
    """Write the sentence again and again, each time with other noise."""
    sentence, own = soundfile.read(samples.path("speech.wav"), dtype="float32")
    sentence = soxr.resample(sentence, own, rate)
    draw, left = np.random.default_rng(0), round(minutes * 60 * rate)
    with soundfile.SoundFile(path, "w", rate, channels, "PCM_16") as file:
        while left:
            part = sentence[:left, None] + NOISE * draw.standard_normal((min(left, len(sentence)), channels))
            file.write(part.clip(-1, 1))
            left -= len(part)


def measured(model: str, minutes: float, rate: int, channels: int, folder: Path) -> Row:
    """Run the command on a new file in a process of its own."""
    noisy, clean = folder / "noisy.wav", folder / "clean.wav"
    write_noisy(noisy, minutes, rate, channels)
    used = commands.measured(["speech", str(noisy), "-o", str(clean), "--model", model], folder)
    if soundfile.info(clean).frames != soundfile.info(noisy).frames:
        sys.exit(f"glocal speech changed the length of a file of {minutes} minutes")
    return Row(model, minutes, rate, channels, *used)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="the longest file")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in ("voice", "frames"):
            for minutes, rate, channels in FILES:
                if minutes <= given.minutes:
                    rows.append(measured(model, minutes, rate, channels, Path(folder)))
                    print(rows[-1], flush=True)
    kept = {"benchmark": "speech_length", "machine": metadata(), "rows": [asdict(row) for row in rows]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
