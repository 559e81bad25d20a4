"""The options of colour transfer, in one frozen place that knows no torch: the Python call and the command line share it."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from glocal.errors import ArgumentError

Method = Literal["graph", "transport"]
Mapping = Literal["smooth", "nearest"]
Luminance = Literal["keep", "match"]
Weigh = Literal["equal", "pixels"]
Gamut = Literal["compress", "clip"]
Protection = Literal["neutrals", "skin"]

_CHOICES = {"method": Method, "mapping": Mapping, "luminance": Luminance, "gamut": Gamut, "weigh": Weigh}


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
    for name in names:
        _check_choice("protect", name, Protection, "Choose among")
    return names


@dataclass(frozen=True)
class ColorOptions:
    """What may be chosen about a colour transfer; the paper's names are in brackets.

    Parameters
    ----------
    method : "graph" or "transport"
        The random graph layer of A.1, or the optimal transport of A.2.
    mapping : "smooth" or "nearest"
        How a pixel follows the palette: by a local affine fit of the palette's displacement, or by taking the new
        value of its nearest palette entry (the paper's, 64 colours in the picture).
    colors : int
        Palette entries (`n`).
    weigh : "equal" or "pixels"
        All palette entries count the same (the paper), or each by the share of the picture that is nearest to it.
    strength : float
        0 leaves the photo as it is, 1 is the whole change.
    luminance : "keep" or "match"
        Leave `L` untouched, or move its distribution half way to the reference's.
    gamut : "compress" or "clip"
        What happens to colours that sRGB does not have.
    protect : tuple of "neutrals", "skin"
        Colours of the photo that stay as they are.
    lambdas : three floats
        Weights of the three terms of A.1: a factor on the balanced `gamma_1`, `gamma_2` itself, and a factor on
        `gamma_3 = 1 / max L_ii`.
    iterations : int
        At most so many steps of L-BFGS.
    slack : float
        Transport only: a reference colour may take up to `slack / n` of the mass; 1 is the paper.
    seed : int
        Of the k-means and of the random layer.
    degree, maps, sigma : int, int, float
        Neighbours of a palette entry (`d`), random feature maps (`m_1`), and the width of the weights (`sigma`).
    """

    method: Method = field(default="graph", metadata={"help": "The paper's random graph layer, or optimal transport."})
    mapping: Mapping = field(
        default="smooth", metadata={"help": "A smooth field over the colours, or the paper's nearest palette entry."}
    )
    colors: int = field(default=64, metadata={"help": "Palette entries.", "min": 1, "max": 1024})
    weigh: Weigh = field(
        default="equal", metadata={"help": "All palette entries count the same, or each by its share of the picture."}
    )
    strength: float = field(
        default=1.0, metadata={"help": "0 leaves the photo as it is, 1 is the whole change.", "min": 0, "max": 2}
    )
    luminance: Luminance = field(default="keep", metadata={"help": "Leave the luminance, or match it gently."})
    gamut: Gamut = field(
        default="compress", metadata={"help": "Colours beyond sRGB: bring them back in order, or cut them off."}
    )
    protect: tuple[Protection, ...] = field(
        default=(),
        metadata={
            "help": "Colours that stay as they are: neutrals, skin or neutrals,skin.",
            "parse": parse_protect,
            "metavar": "<names>",
        },
    )
    lambdas: tuple[float, float, float] = field(
        default=(1.0, 0.1, 1.0),
        metadata={
            "help": "Weights of likeness to the reference, of moving little, and of keeping similar colours together.",
            "flag": "--lambda",
            "parse": parse_lambdas,
            "metavar": "<g1,g2,g3>",
        },
    )
    iterations: int = field(default=200, metadata={"help": "At most so many steps of the optimiser.", "min": 1})
    slack: float = field(
        default=1.0, metadata={"help": "Transport: how often a reference colour may be used, 1 is the paper.", "min": 1}
    )
    seed: int = field(default=0, metadata={"help": "Another seed, another palette and another random layer.", "min": 0})
    degree: int = field(default=10, metadata={"help": "Neighbours of a palette entry in the graph.", "hidden": True})
    maps: int = field(default=100, metadata={"help": "Random feature maps.", "hidden": True})
    sigma: float = field(default=0.25, metadata={"help": "Width of the graph's weights.", "hidden": True})

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            _check_choice(name, getattr(self, name), kind, "Choose one of")
        object.__setattr__(self, "protect", tuple(self.protect))
        for what in self.protect:
            _check_choice("protect", what, Protection, "Choose among")
        for name, usual in (("colors", 64), ("degree", 10), ("maps", 100), ("iterations", 200)):
            if getattr(self, name) < 1:
                message = f"recolor: `{name}` (={getattr(self, name)}) must be at least 1. The default is {usual}."
                raise ArgumentError(message)
        if self.colors > 1024:
            message = f"recolor: `colors` (={self.colors}) must be at most 1024. The paper uses 64."
            raise ArgumentError(message)
        if not 0 <= self.strength <= 2:
            message = f"recolor: `strength` (={self.strength}) must be between 0 and 2. 1 is the whole change."
            raise ArgumentError(message)
        self._check_weights()

    def _check_weights(self) -> None:
        object.__setattr__(self, "lambdas", tuple(float(v) for v in self.lambdas))
        if len(self.lambdas) != 3 or not all(0 <= v < float("inf") for v in self.lambdas):
            message = (
                f"recolor: `lambdas` (={self.lambdas}) must be three numbers, none negative. The paper has 1, 0.1, 1."
            )
            raise ArgumentError(message)
        if not self.sigma > 0:
            message = f"recolor: `sigma` (={self.sigma}) must be positive. The paper uses 0.25."
            raise ArgumentError(message)
        if not self.slack >= 1:
            message = f"recolor: `slack` (={self.slack}) must be at least 1, or the mass has no place. The paper has 1."
            raise ArgumentError(message)


def _check_choice(name: str, value: object, kind: Any, remedy: str) -> None:
    choices = typing.get_args(kind)
    if value not in choices:
        message = f"recolor: `{name}` (={value!r}) is unknown. {remedy} {', '.join(choices)}."
        raise ArgumentError(message)
