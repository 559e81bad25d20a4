"""The options of colour transfer. Free of torch; the Python call and the command line share them."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.options import DEVICE, Options, option

Method = Literal["graph", "transport"]
Mapping = Literal["smooth", "nearest"]
Luminance = Literal["keep", "match"]
Weigh = Literal["equal", "pixels"]
Gamut = Literal["compress", "clip"]
Protection = Literal["neutrals", "skin"]


def parse_lambdas(text: str) -> tuple[float, ...]:
    """Three weights as people write them on a command line.

    >>> parse_lambdas("1, 0.1, 1")
    (1.0, 0.1, 1.0)
    """
    try:
        return tuple(float(part) for part in text.strip("() ").split(","))
    except ValueError as error:
        message = f"lambda: `{text}` is not three numbers. Write them like 1,0.1,1."
        raise ArgumentError(message) from error


def parse_protect(text: str) -> tuple[str, ...]:
    """Names of what to protect as people write them on a command line.

    >>> parse_protect("neutrals,skin")
    ('neutrals', 'skin')
    """
    names = tuple(part.strip() for part in text.strip("() ").split(",") if part.strip())
    _check_protect(names)
    return names


def _check_protect(names: Any) -> None:
    known = typing.get_args(Protection)
    for name in names if isinstance(names, (list, tuple)) else (names,):
        if name not in known:
            message = f"recolor: `protect` (={name!r}) is unknown. Choose among {', '.join(known)}."
            raise ArgumentError(message)


@dataclass(frozen=True)
class ColorOptions(Options):
    """What may be chosen about a colour transfer."""

    call: ClassVar[str] = "recolor"

    method: Method = option("graph", "The paper's random graph layer (A.1), or optimal transport (A.2).")
    mapping: Mapping = option(
        "smooth", "A smooth field over the colours, or the paper's nearest palette entry, which leaves 64 colours."
    )
    colors: int = option(64, "Palette entries.", min=1, max=1024)
    weigh: Weigh = option("equal", "All palette entries count the same, or each by its share of the picture.")
    strength: float = option(1.0, "0 leaves the photo as it is, 1 is the whole change.", min=0, max=2)
    luminance: Luminance = option("keep", "Leave the luminance, or move its distribution half way to the reference's.")
    gamut: Gamut = option("compress", "Colours beyond sRGB: bring them back in order, or cut them off.")
    protect: tuple[Protection, ...] = option(
        (),
        "Colours that stay as they are: neutrals, skin or neutrals,skin.",
        must="be a list of names",
        parse=parse_protect,
        metavar="<names>",
    )
    lambdas: tuple[float, float, float] = option(
        (1.0, 0.1, 1.0),
        "Weights of likeness to the reference, of moving little, and of keeping similar colours together.",
        min=0,
        must="be three numbers, none negative",
        remedy="The paper has 1, 0.1, 1.",
        flag="--lambda",
        parse=parse_lambdas,
        metavar="<g1,g2,g3>",
    )
    iterations: int = option(200, "At most so many steps of the optimiser.", min=1)
    slack: float = option(1.0, "Transport: how often a reference colour may be used, 1 is the paper.", min=1)
    seed: int = option(0, "Draws the palette and the random layer.", min=0)
    device: str = option(
        "cpu",
        "As in the other jobs; colours are computed on the CPU, whatever it says.",
        pattern=DEVICE,
        must="be cpu, cuda or cuda:N",
        remedy="Use cpu.",
        no_flag=True,
    )
    degree: int = option(10, "Neighbours of a palette entry in the graph.", min=1, hidden=True)
    maps: int = option(100, "Random feature maps.", min=1, hidden=True)
    sigma: float = option(
        0.25, "Width of the graph's weights.", above=0, must="be positive", remedy="The paper uses 0.25.", hidden=True
    )

    def __post_init__(self) -> None:
        _check_protect(self.protect)
        super().__post_init__()
        object.__setattr__(self, "lambdas", tuple(float(value) for value in self.lambdas))
