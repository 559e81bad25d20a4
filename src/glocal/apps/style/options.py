"""The options and presets of style transfer. Does not import torch, so that `glocal style --help` is fast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, get_args

from glocal.errors import ArgumentError
from glocal.options import Options, device_option, option, parse_numbers

Preset = Literal["patches", "painterly", "brush", "bold", "paper"]
_REMEDY = "Leave it out for the preset's."
_EVEN = math.log(0.5) / math.log(0.7)  # the power of `structure` at which 0.7 gives half of the full amount


def parse_size(text: str) -> int | str:
    """Parse a number of pixels, or "keep".

    >>> parse_size("512"), parse_size("keep")
    (512, 'keep')
    """
    return "keep" if text == "keep" else int(text)


def _tuned(default: Any, help: str, **settings: Any) -> Any:
    """Return an option that is part of a preset. In Python it can be set only through `options=`."""
    return option(default, help, remedy=_REMEDY, hidden=True, **settings)


@dataclass(frozen=True)
class StyleOptions(Options):
    """The options of one style transfer. A preset is a named set of options."""

    call: ClassVar[str] = "stylize"

    preset: str = option(
        "",
        "patches: painted with pieces of the painting. painterly: true to the photo, light stays light. brush: the painting's strokes and shapes. "
        "bold: large areas of paint. paper: exactly the method of 2017.",
        choices=get_args(Preset),
    )
    size: int | str = option(
        512,
        "Longer side of the result in pixels, or keep. Default: 512 (paper: 256).",
        min=8,
        max=65536,
        words=("keep",),
        must="be a whole number from 8 to 65536, or 'keep'",
        remedy=_REMEDY,
        parse=parse_size,
        metavar="<pixels>",
    )
    iterations: int = option(
        300, "Number of steps at the first level; not for patches.", min=1, max=100_000, remedy=_REMEDY
    )
    style_scale: float = option(
        1.0,
        "Size of the strokes; 1 gives photo and painting the same longer side.",
        min=0.05,
        max=20,
        remedy=_REMEDY,
    )
    keep_color: Literal["off", "luma", "match"] = option(
        "off", "luma: only strokes; the photo keeps its colours. match: the painting gets the photo's palette first."
    )
    strength: float = option(1.0, "0 is the photo, 1 the full effect.", min=0, max=1, remedy=_REMEDY)
    structure: float = option(
        0.0,
        "From 0, the painting's shapes, to 1, the photo's structure. Default: 0 (painterly: 0.7, patches: 0.5).",
        min=0,
        max=1,
        remedy=_REMEDY,
    )
    anchor: float = option(
        0.0,
        "How strongly light stays light and dark stays dark; the paper uses 0. Not for patches.",
        min=0,
        max=1e6,
        remedy=_REMEDY,
    )
    tv: float = option(
        0.01,
        "Total variation; more gives flatter areas and fewer strokes. Not for patches.",
        min=0,
        max=1e6,
        remedy=_REMEDY,
    )
    networks: Literal["both", "local", "nonlocal"] = option(
        "both", "Figure 2 of the paper uses nonlocal. Not for patches."
    )
    seed: int = option(0, "Seed of the filters and of the noise.", min=0, max=2**63 - 1, remedy=_REMEDY)
    device: str = device_option("Where to compute. Devices round differently, so their pictures differ a little.")
    method: Literal["networks", "patches"] = option(
        "networks", "networks minimises equation 10; patches joins pieces of the painting.", hidden=True
    )
    maps: int = _tuned(50, "Number of maps of each network.", min=1, max=4096)
    filters: tuple[tuple[int, int], ...] = _tuned(((5, 1),), "(side, dilation) of the filters of each local network.")
    scattered: tuple[int, ...] = _tuned(
        (), "Sides of more local networks, which have `degree` taps at random positions in their square."
    )
    degree: int = _tuned(25, "Number of neighbours of a pixel in the non-local graph.", min=1, max=1024)
    patch: int = _tuned(3, "Side of the patches that the non-local graph compares.", min=1, max=31)
    even: float = _tuned(
        0.0,
        "Ripples of a picture below this variance in Lab, such as noise and JPEG blocks in a sky, do not count in its graph.",
        min=0,
        max=1e4,
    )
    whiten: float = _tuned(
        0.0,
        "0 draws filters from N(0, 1); 1 draws them so that the painting's patches have equal variance in all directions.",
        min=0,
        max=1,
    )
    colors: Literal["plain", "centred", "white"] = option(
        "plain",
        "The colours for the networks: Lab / 100, the same minus the painting's mean, or also decorrelated.",
        hidden=True,
    )
    balance: Literal["once", "gradient", "relative"] = option(
        "once",
        "once is the paper's rule: the largest gradient entry of each network is 1 at the start of the run, for Gram "
        "matrices that are sums over the pixels. gradient makes it 1 at the start of every level. "
        "relative divides each Gram distance by the painting's own norm.",
        hidden=True,
    )
    coarsest: int = _tuned(32, "Longer side of the first level; each level doubles it.", min=8, max=65536)
    ease: float = _tuned(1.0, "Each level has this fraction of the iterations of the level before.", min=0.01, max=1)
    anchor_reach: int = _tuned(
        6, "The anchor compares averages over this many steps on the photo's graph.", min=1, max=100
    )
    anchor_color: float = _tuned(
        0.3, "Strength of the anchor for a and b, as a fraction of its strength for the luminance.", min=0, max=100
    )
    anchor_edges: float = _tuned(
        0.0,
        "Strength of the anchor for single pixels at the photo's edges, as a fraction of the anchor.",
        min=0,
        max=100,
    )
    anchor_ease: float = _tuned(1.0, "Each level has this fraction of the anchor of the level before.", min=0, max=1)

    @classmethod
    def given(cls, values: Mapping[str, Any], base: StyleOptions | None = None) -> StyleOptions:
        """Return a preset, or `base`, with these changes. A change that is None keeps the value."""
        changes = {name: value for name, value in values.items() if value is not None}
        if base is not None:
            return _changed(base, changes)
        return style_options(changes.pop("preset", DEFAULT_PRESET), changes)

    @classmethod
    def public(cls) -> list[tuple[Any, Any, Any]]:
        """All options except the preset and the device have the default None, which means the value of the preset."""
        shown: list[tuple[Any, Any, Any]] = []
        for one, hint, default in super().public():
            if one.name == "preset":
                shown.append((one, Preset, DEFAULT_PRESET))
            elif one.name == "device":
                shown.append((one, hint, default))
            else:
                shown.append((one, hint | None, None))
        return shown


def structure_parts(structure: float) -> dict[str, Any]:
    """Return the options that hold the photo's structure: the anchors and the whitening grow together.

    They grow slowly at first, because the first bit of an anchor has the largest effect. Equal steps of `structure` then
    change the picture about equally.

    >>> structure_parts(0.7)["anchor"], structure_parts(0)["whiten"]
    (0.3, 0.0)
    """
    amount = round(structure**_EVEN, 6)
    return {"whiten": 0.6 * amount, "anchor": 0.6 * amount, "anchor_edges": 0.3 * amount}


def _changed(base: StyleOptions, changes: Mapping[str, Any]) -> StyleOptions:
    """Return `base` with these changes and the options that `structure` stands for; those that are given themselves win."""
    if base.method == "patches":
        new = replace(base, **changes)
        _check_unused(changes)
        return new
    structure = changes.get("structure")
    if structure is None:
        return replace(base, **changes)
    StyleOptions(structure=structure)  # refuses a number that is out of range
    return replace(base, **(structure_parts(structure) | dict(changes)))


_EVEN_SKIES = 4.0  # a ripple of 2 in Lab
_SIZES: dict[str, Any] = {
    "maps": 64,
    "filters": ((3, 1), (7, 1)),
    "scattered": (15, 37),
    "colors": "centred",
    "even": _EVEN_SKIES,
}
PRESETS: dict[str, StyleOptions] = {
    "patches": StyleOptions(preset="patches", method="patches", structure=0.5, coarsest=64),
    "painterly": StyleOptions(
        preset="painterly",
        balance="gradient",
        iterations=120,
        ease=0.8,
        tv=0.001,
        structure=0.7,
        **_SIZES,
        **structure_parts(0.7),
    ),
    "brush": StyleOptions(preset="brush", balance="gradient", tv=3e-4, ease=0.6, **_SIZES),
    "bold": StyleOptions(preset="bold", balance="gradient", tv=3e-4, ease=0.8, colors="centred", even=_EVEN_SKIES),
    "paper": StyleOptions(preset="paper", size=256),
}
DEFAULT_PRESET = "patches"


def style_options(preset: str, changes: Mapping[str, Any]) -> StyleOptions:
    """Return the options of a preset with some changes. Changes that are None keep the preset's value.

    >>> style_options("paper", {"tv": 0.002, "size": None}).tv
    0.002
    """
    if preset not in PRESETS:
        message = f"stylize: `preset` (={preset!r}) is unknown. Choose one of {', '.join(PRESETS)}."
        raise ArgumentError(message)
    known = {field.name for field in fields(StyleOptions)}
    unknown = sorted(set(changes) - known)
    if unknown:
        message = f"stylize: there is no option {unknown[0]!r}. Choose from {', '.join(sorted(known))}."
        raise ArgumentError(message)
    return _changed(PRESETS[preset], {name: value for name, value in changes.items() if value is not None})


def _check_unused(given: Mapping[str, Any]) -> None:
    """Refuse options of the networks for the preset `patches`, which has none."""
    for name in ("iterations", "anchor", "tv", "networks"):
        if given.get(name, getattr(PRESETS["patches"], name)) != getattr(PRESETS["patches"], name):
            others = ", ".join(other for other, options in PRESETS.items() if options.method == "networks")
            message = (
                f"stylize: `{name}` (={given[name]!r}) is an option of the networks, and the preset patches has none. "
                f"Leave it out, or choose one of the presets {others}."
            )
            raise ArgumentError(message)


@dataclass(frozen=True)
class StyleFiles:
    """Further files of a style transfer."""

    painting: tuple[str, ...] = option((), "The painting, when many photos are given; may be given several times.")
    weights: tuple[float, ...] | None = option(
        None, "How much each painting counts, such as 2,1.", parse=parse_numbers, metavar="<list>"
    )
    mask: str | None = option(None, "Stylise only where this picture is white; gray is soft.")
    regions: tuple[str, ...] = option(
        (),
        "PHOTO_MASK=PAINTING_MASK: this part of the photo takes that part of the painting; may be given several times.",
    )
    init: str = option(
        "noise", "Start from noise, photo, or a picture file. Not for patches.", known=("noise", "photo")
    )
    preview: str | None = option(None, "A picture that is rewritten during the work.", writes="picture")
    compare: str | None = option(None, "Also write photo, painting and result side by side.", writes="picture")
    resume: bool = option(False, "Continue from the checkpoint that an interrupted run left.")
    checkpoints: bool = option(True, "Keep a checkpoint next to the output during the work.")
    recipe: str | None = option(None, "Also write the recipe to this JSON file.", writes="file")
