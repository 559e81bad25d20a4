"""What can be chosen in style transfer, and the presets. Free of torch, so that `glocal style --help` is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any, Literal

from glocal.errors import ArgumentError

CHOICES: dict[str, tuple[str, ...]] = {
    "networks": ("both", "local", "nonlocal"),
    "keep_color": ("off", "luma", "match"),
    "colors": ("plain", "centred", "white"),
    "balance": ("gradient", "relative"),
}


@dataclass(frozen=True)
class StyleOptions:
    """The options of one style transfer; a preset is one of these with a name.

    What everybody may want to change:

    size : longer side of the result in pixels, or "keep" for the photo's own.
    iterations : L-BFGS steps at each level.
    tv : weight of the total variation; more gives flatter areas and fewer strokes.
    anchor : how firmly light stays light and dark stays dark; 0 leaves it to the graph, as the paper does.
    style_scale : size of the painting's strokes; 1 brings photo and painting to the same longer side.
    strength : 0 is the photo, 1 the full effect.
    keep_color : "luma" keeps the photo's colours and takes only the strokes, "match" first gives the painting the
        photo's colour statistics, "off" takes the painting's colours.
    networks : "nonlocal" alone is the paper's figure 2.
    seed : draws the filters and the noise.

    What makes up a preset:

    maps : maps of each network.
    filters : (side, dilation) of the filters of each local network.
    scattered : sides of further local networks, which have `degree` taps at random places of their square: large
        filters at the price of small ones.
    degree, patch : the non-local graph has `degree` neighbours by patches of side `patch`.
    whiten : 0 draws filters from N(0, 1); 1 draws them so that the painting's patches, seen by them, have equal
        variance in all directions.
    colors : the colours that the networks see: Lab / 100 ("plain"), less the painting's mean ("centred"), or also
        decorrelated ("white").
    balance : "gradient" is the paper's (the largest gradient entry of each network is 1 at the start of a level);
        "relative" divides each Gram distance by the painting's own norm.
    coarsest : longer side of the first level; each level doubles it.
    ease : each level has this fraction of the iterations of the level before.
    anchor_reach : the anchor compares averages over so many steps on the photo's graph.
    anchor_color : how firmly the anchor holds the colours a and b, as a fraction of how it holds the luminance.
    anchor_edges : how firmly the anchor also holds single pixels at the photo's edges, as a fraction of itself.
    anchor_ease : each level has this fraction of the anchor of the level before.
    """

    preset: str = ""
    size: int | str = 512
    iterations: int = 300
    tv: float = 0.01
    anchor: float = 0.0
    style_scale: float = 1.0
    strength: float = 1.0
    keep_color: str = "off"
    networks: str = "both"
    seed: int = 0
    maps: int = 50
    filters: tuple[tuple[int, int], ...] = ((5, 1),)
    scattered: tuple[int, ...] = ()
    degree: int = 25
    patch: int = 3
    whiten: float = 0.0
    colors: str = "plain"
    balance: str = "gradient"
    coarsest: int = 32
    ease: float = 1.0
    anchor_reach: int = 1
    anchor_color: float = 0.0
    anchor_edges: float = 0.0
    anchor_ease: float = 1.0

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                message = (
                    f"stylize: `{name}` (={getattr(self, name)!r}) is unknown. Choose one of {', '.join(allowed)}."
                )
                raise ArgumentError(message)
        if self.size != "keep":
            _check_number("size", self.size, 8, 65536, whole=True)
        for name, low, high, whole in _RANGES:
            _check_number(name, getattr(self, name), low, high, whole=whole)


_RANGES = (
    ("iterations", 0, 100_000, True),
    ("tv", 0, 1e6, False),
    ("anchor", 0, 1e6, False),
    ("style_scale", 0.05, 20, False),
    ("strength", 0, 1, False),
    ("seed", 0, 2**63 - 1, True),
    ("maps", 1, 4096, True),
    ("degree", 1, 1024, True),
    ("patch", 1, 31, True),
    ("whiten", 0, 1, False),
    ("coarsest", 8, 65536, True),
    ("ease", 0.01, 1, False),
    ("anchor_reach", 1, 100, True),
    ("anchor_color", 0, 100, False),
    ("anchor_edges", 0, 100, False),
    ("anchor_ease", 0, 1, False),
)


def _check_number(name: str, value: Any, low: float, high: float, *, whole: bool) -> None:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not isfinite(value) or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        message = (
            f"stylize: `{name}` (={value!r}) must be {kind} from {low:g} to {high:g}. Leave it out for the preset's."
        )
        raise ArgumentError(message)


PRESETS: dict[str, StyleOptions] = {
    "painterly": StyleOptions(
        preset="painterly",
        iterations=120,
        ease=0.8,
        tv=0.001,
        maps=64,
        filters=((3, 1), (7, 1)),
        scattered=(15, 37),
        colors="centred",
        whiten=0.3,
        anchor=0.3,
        anchor_reach=6,
        anchor_color=0.3,
        anchor_edges=0.15,
    ),
    "paper": StyleOptions(preset="paper", size=256),
}
DEFAULT_PRESET = "painterly"


def style_options(preset: str, changes: Mapping[str, Any]) -> StyleOptions:
    """The options of a preset, with some changed; changes that are None keep the preset's value.

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
    return replace(PRESETS[preset], **{name: value for name, value in changes.items() if value is not None})


def parse_size(text: str) -> int | str:
    """A number of pixels, or "keep".

    >>> parse_size("512"), parse_size("keep")
    (512, 'keep')
    """
    return "keep" if text == "keep" else int(text)


_KEPT = "Default: the preset's."


@dataclass(frozen=True)
class StyleChoices:
    """What the command line asks: a preset, and changes to it. None keeps the preset's value."""

    preset: Literal["painterly", "paper"] = field(
        default="painterly",
        metadata={"help": "painterly: strong strokes, light stays light. paper: the method of 2017, exactly."},
    )
    size: int | str | None = field(
        default=None,
        metadata={
            "help": "Longer side of the result in pixels, or keep. Default: 512 (paper: 256).",
            "parse": parse_size,
            "metavar": "<pixels>",
        },
    )
    iterations: int | None = field(default=None, metadata={"help": f"Steps at the first level. {_KEPT}", "min": 0})
    style_scale: float | None = field(default=None, metadata={"help": "Size of the strokes; 1 is the painting's own."})
    keep_color: Literal["off", "luma", "match"] | None = field(
        default=None, metadata={"help": "luma: only strokes, the photo's colours. match: the photo's palette."}
    )
    strength: float | None = field(default=None, metadata={"help": "0 is the photo, 1 the full effect."})
    anchor: float | None = field(default=None, metadata={"help": f"How firmly light stays light. {_KEPT}"})
    tv: float | None = field(default=None, metadata={"help": f"Flatness: total variation. {_KEPT}"})
    networks: Literal["both", "local", "nonlocal"] | None = field(
        default=None, metadata={"help": "nonlocal alone is figure 2 of the paper."}
    )
    seed: int | None = field(default=None, metadata={"help": "Draws filters and noise.", "min": 0})

    def options(self) -> StyleOptions:
        """The preset with the changes."""
        changes = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "preset"}
        return style_options(self.preset, changes)
