"""Stylise the shipped photo of a bridge with the shipped van Gogh: the result, and all three side by side.

python examples/demo.py -o out
"""

from __future__ import annotations

import argparse
from pathlib import Path

from glocal import samples
from glocal.cli.main import run


def main() -> int:
    """Run `glocal style` on the samples and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out"), help="a folder")
    parser.add_argument("--size", default="512", help="longer side in pixels")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    command = ["style", str(samples.path("bridge.jpg")), str(samples.path("van_gogh_auvers.jpg")), "--overwrite"]
    command += ["-o", str(chosen.output / "style.png"), "--compare", str(chosen.output / "style_side_by_side.png")]
    command += ["--size", chosen.size]
    return run(command)


if __name__ == "__main__":
    raise SystemExit(main())
