"""What can be chosen in a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class BenchOptions:
    """Options of all benchmarks."""

    quick: bool = field(default=False, metadata={"help": "Small sizes, few repeats: does it run at all?"})
    repeats: int = field(default=15, metadata={"help": "Timed runs of each side; medians are reported.", "min": 1})
    large: bool = field(
        default=False, metadata={"help": "Also measure the memory of a 24-megapixel denoising graph (minutes)."}
    )
