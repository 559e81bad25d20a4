"""Where a number comes from. No number stands on the page without one of these beside it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Source:
    """The origin of a number: a run with its command, seed, date and machine, or a place in the paper.

    Attributes:
        kind: "this run", "stored run" or "paper".
        command: What was typed; for the paper, the section.
        seed: The seed or seeds, in words; empty for the paper.
        date: Day and time (UTC); for the paper, the year.
        machine: Processor or GPU, cores and torch version; empty for the paper.
    """

    kind: str
    command: str
    seed: str = ""
    date: str = ""
    machine: str = ""

    def text(self) -> str:
        """One line for people.

        Example:
            >>> Source("paper", "section B.3", date="2017").text()
            'paper: section B.3, 2017'
        """
        parts = [f"seed {self.seed}" if self.seed else "", self.date, self.machine]
        return ", ".join([f"{self.kind}: {self.command}", *filter(None, parts)])


@dataclass(frozen=True)
class Number:
    """A number with its source. `digits` are those after the decimal point; negative means scientific notation."""

    value: float
    source: Source
    digits: int = 2
    unit: str = ""
    signed: bool = False

    def text(self) -> str:
        """The number as it is printed.

        Example:
            >>> here = Source("paper", "section B.3")
            >>> Number(0.286, here, unit="dB", signed=True).text(), Number(1.2e-16, here, digits=-1).text()
            ('+0.29 dB', '1.2e-16')
            >>> Number(-0.001, here, signed=True).text()
            '0.00'
        """
        style = f".{abs(self.digits)}{'e' if self.digits < 0 else 'f'}"
        zero = float(format(self.value, style)) == 0  # printed without a sign, whichever side it was rounded from
        shown = format(0.0 if zero else self.value, ("+" if self.signed and not zero else "") + style)
        return f"{shown} {self.unit}".strip()


def paper(section: str) -> Source:
    """A number that the paper states, in its `section`."""
    return Source("paper", f"Puy, Kitić, Pérez, {section}", date="2017")


def this_run(command: str, seed: int, device: str = "cpu") -> Source:
    """A number that is computed now, on this machine."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Source("this run", command, str(seed), now, machine(device))


def machine(device: str = "cpu") -> str:
    """The processor (or GPU), the cores that may be used and the torch version; never the machine's name."""
    import torch

    if device.startswith("cuda"):
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


def as_record(number: Number) -> dict[str, Any]:
    """A number for the JSON files beside the page."""
    return {"value": number.value, "unit": number.unit, "source": vars(number.source)}
