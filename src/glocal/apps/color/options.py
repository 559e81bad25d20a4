"""The options of colour transfer, for the Python call and the command line. This module does not import torch."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.options import Options, device_option, option, parse_numbers

Method = Literal["graph", "transport"]
Mapping = Literal["smooth", "nearest"]
Luminance = Literal["keep", "match"]
Weigh = Literal["equal", "pixels"]
Gamut = Literal["compress", "clip"]
Protection = Literal["neutrals", "skin"]
LIBRARIES = 500 << 20  # bytes of torch, the kernels and the code
PIXEL = 80  # bytes: the file, its encoder and float copies


def parse_protect(text: str) -> tuple[str, ...]:
    """Parse the names of colours to protect as written on a command line.

    >>> parse_protect("neutrals,skin")
    ('neutrals', 'skin')
    """
    return tuple(part.strip() for part in text.strip("() ").split(",") if part.strip())


def _check_protect(names: Any) -> None:
    known = typing.get_args(Protection)
    for name in names if isinstance(names, (list, tuple)) else (names,):
        if name not in known:
            message = f"recolor: `protect` (={name!r}) is unknown. Choose among {', '.join(known)}."
            raise ArgumentError(message)


@dataclass(frozen=True)
class ColorOptions(Options):
    """The options of one colour transfer."""

    call: ClassVar[str] = "recolor"

    method: Method = option("graph", "The paper's random graph layer (A.1), or optimal transport (A.2).")
    mapping: Mapping = option(
        "smooth",
        "smooth: a smooth field over the colours. nearest: the paper's nearest palette entry, which gives 64 colours.",
    )
    colors: int = option(64, "Number of palette entries.", min=1, max=1024)
    weigh: Weigh = option(
        "equal", "equal: all palette entries count the same. pixels: each counts by its share of the picture."
    )
    strength: float = option(1.0, "0 is the unchanged photo, 1 the full change.", min=0, max=2)
    luminance: Luminance = option(
        "keep", "keep: the photo's luminance. match: move its distribution half way to the reference's."
    )
    gamut: Gamut = option("compress", "Colours outside sRGB: compress them smoothly, or clip them.")
    protect: tuple[Protection, ...] = option(
        (),
        "Colours that do not change: neutrals, skin or neutrals,skin.",
        must="be a list of names",
        parse=parse_protect,
        metavar="<names>",
    )
    lambdas: tuple[float, float, float] = option(
        (1.0, 0.1, 1.0),
        "Weights of the three terms: similarity to the reference, small changes, similar colours stay together.",
        min=0,
        must="be three numbers, none negative",
        remedy="The paper uses 1, 0.1, 1.",
        flag="--lambda",
        parse=parse_numbers,
        metavar="<g1,g2,g3>",
    )
    iterations: int = option(200, "Maximum number of optimiser steps.", min=1)
    slack: float = option(1.0, "Transport: how often a reference colour may be used. The paper uses 1.", min=1)
    seed: int = option(0, "Seed of the palette and of the random layer.", min=0)
    device: str = device_option(
        "Accepted as in the other jobs, but colours are always computed on the CPU.", no_flag=True
    )
    degree: int = option(10, "Number of neighbours of a palette entry in the graph.", min=1, hidden=True)
    maps: int = option(100, "Number of random feature maps.", min=1, hidden=True)
    sigma: float = option(
        0.25, "Width of the graph's weights.", above=0, must="be positive", remedy="The paper uses 0.25.", hidden=True
    )

    def __post_init__(self) -> None:
        _check_protect(self.protect)
        super().__post_init__()
        object.__setattr__(self, "lambdas", tuple(float(value) for value in self.lambdas))


@dataclass(frozen=True)
class ColorFiles:
    """Further files of a colour transfer."""

    reference: tuple[str, ...] = option(
        (), "Where the colours come from, for many photos; may be given several times.", in_tiles=True
    )
    map: str | None = option(
        None, "Apply a map of --save-map, a .cube or a HaldCLUT .png to all inputs.", keyword=True, in_tiles=True
    )
    save_map: str | None = option(None, "Save the map, such as look.glocal.", writes="map", in_tiles=True)
    mask: str | None = option(None, "A picture that is white where the photo changes.", keyword=True, in_tiles=True)
    lut: tuple[str, ...] = option(
        (), "Export the map as a 3-D LUT: look.cube, or a HaldCLUT look.png.", writes="lut", in_tiles=True
    )
    lut_size: Literal["33", "65"] = option("33", "Points along an axis of a .cube.", in_tiles=True)
    palette_out: str | None = option(
        None,
        "Draw the palettes and the move of every colour into a picture.",
        writes="picture",
        in_tiles="it is a drawing of two transfers, for which a small copy of the picture is enough",
    )
