"""The options of colour transfer, in one frozen place that knows no torch: the Python call and the command line share it."""

from __future__ import annotations

from dataclasses import dataclass

from glocal.errors import ArgumentError

METHODS = ("graph", "transport")
MAPPINGS = ("smooth", "nearest")
LUMINANCES = ("keep", "match")
GAMUTS = ("compress", "clip")
PROTECTIONS = ("neutrals", "skin")


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
    degree, maps, sigma : int, int, float
        Neighbours of a palette entry (`d`), random feature maps (`m_1`), and the width of the weights (`sigma`).
    iterations : int
        At most so many steps of L-BFGS.
    slack : float
        Transport only: a reference colour may take up to `slack / n` of the mass; 1 is the paper.
    seed : int
        Of the k-means and of the random layer.
    """

    method: str = "graph"
    mapping: str = "smooth"
    colors: int = 64
    strength: float = 1.0
    luminance: str = "keep"
    gamut: str = "compress"
    protect: tuple[str, ...] = ()
    lambdas: tuple[float, float, float] = (1.0, 0.1, 1.0)
    degree: int = 10
    maps: int = 100
    sigma: float = 0.25
    iterations: int = 200
    slack: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                message = f"recolor: `{name}` (={getattr(self, name)!r}) is unknown. Choose one of {', '.join(choices)}."
                raise ArgumentError(message)
        object.__setattr__(self, "protect", tuple(self.protect))
        for what in self.protect:
            if what not in PROTECTIONS:
                message = f"recolor: `protect` (={what!r}) is unknown. Choose among {', '.join(PROTECTIONS)}."
                raise ArgumentError(message)
        for name in ("colors", "degree", "maps", "iterations"):
            if getattr(self, name) < 1:
                message = f"recolor: `{name}` (={getattr(self, name)}) must be at least 1. The default is {_default(name)}."
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
            message = f"recolor: `lambdas` (={self.lambdas}) must be three numbers, none negative. The paper has 1, 0.1, 1."
            raise ArgumentError(message)
        if not self.sigma > 0:
            message = f"recolor: `sigma` (={self.sigma}) must be positive. The paper uses 0.25."
            raise ArgumentError(message)
        if not self.slack >= 1:
            message = f"recolor: `slack` (={self.slack}) must be at least 1, or the mass has no place. The paper has 1."
            raise ArgumentError(message)


_CHOICES = {"method": METHODS, "mapping": MAPPINGS, "luminance": LUMINANCES, "gamut": GAMUTS}


def _default(name: str) -> int:
    value: int = ColorOptions.__dataclass_fields__[name].default
    return value
