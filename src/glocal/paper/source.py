"""Where a number comes from. Every number on the page has a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glocal.machine import machine, now


@dataclass(frozen=True)
class Source:
    """The origin of a number: a run with its command, seed, date and machine, or a place in the paper.

    Attributes
    ----------
    kind
        "this run", "stored run" or "paper".
    command
        What was typed; for the paper, the section.
    seed
        The seed or seeds, in words; empty for the paper.
    date
        Day and time (UTC); for the paper, the year.
    machine
        Processor or GPU, cores and torch version; empty for the paper.
    """

    kind: str
    command: str
    seed: str = ""
    date: str = ""
    machine: str = ""

    def text(self) -> str:
        """One line for people.

        Examples
        --------
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
        """Return the number as it is printed.

        Examples
        --------
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
    """Return a number that the paper states, in its `section`."""
    return Source("paper", f"Puy, Kitić, Pérez, {section}", date="2017")


def this_run(command: str, seed: int, device: str = "cpu") -> Source:
    """Return a number that is computed now, on this machine."""
    return Source("this run", command, str(seed), now(), machine(device))


def as_record(number: Number) -> dict[str, Any]:
    """Return a number for the JSON files next to the page."""
    return {"value": number.value, "unit": number.unit, "source": vars(number.source)}
