"""What can be chosen in a benchmark."""

from __future__ import annotations

from dataclasses import dataclass

from glocal.options import option


@dataclass(frozen=True)
class BenchOptions:
    """Options of all benchmarks."""

    quick: bool = option(False, "Small sizes, few repeats: does it run at all?")
    repeats: int = option(15, "Timed runs of each side; medians are reported.", min=1)
    large: bool = option(False, "`graph` only: also measure the memory of a 24-megapixel denoising graph (minutes).")
