"""The options of a denoising network, its training and its use. Does not import torch, for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.options import Options, device_option, fraction_option, option, parse_level, unused_seed

PAPER_SIGMA = 0.07
Device = Literal["cpu", "cuda"]
Wanted = Literal["auto", "cpu", "cuda"]
MIDDLES = ("none", "local", "nonlocal")


_LARGEST = {"size": 31, "maps": 4096, "patch": 63, "neighbors": 4096}  # a larger size means a damaged file


@dataclass(frozen=True)
class Architecture:
    """The sizes of `f2 . f_middle . f1`.

    Attributes
    ----------
    middle
        "none", "local" (one shared filter on the grid) or "nonlocal" (one shared filter on the graph of patches).
    size, maps
        Side of the analysis and synthesis filters, and their number.
    patch, neighbors
        Side of the patches that the non-local graph compares, and the degree of that graph.
    """

    middle: str = "nonlocal"
    size: int = 3
    maps: int = 18
    patch: int = 7
    neighbors: int = 9

    def __post_init__(self) -> None:
        if self.middle not in MIDDLES:
            message = f"Architecture: `middle` (={self.middle!r}) is unknown. Choose one of {', '.join(MIDDLES)}."
            raise ArgumentError(message)
        for name, largest in _LARGEST.items():
            value = getattr(self, name)
            odd = name in ("size", "patch")
            if not isinstance(value, int) or not 1 <= value <= largest or (odd and value % 2 == 0):
                message = (
                    f"Architecture: `{name}` (={value!r}) must be {'an odd' if odd else 'a'} whole number from 1 to "
                    f"{largest}. The paper uses {getattr(Architecture, name)}."
                )
                raise ArgumentError(message)


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: the recipe whose parameters it starts from, the number of epochs and the step size."""

    architecture: Architecture
    start: str | None
    epochs: int
    rate: float


# The paper's four trainings, and the larger network that photos get by default.
RECIPES: dict[str, Recipe] = {
    "pretrain": Recipe(Architecture("none"), None, 1, 1e-3),
    "local": Recipe(Architecture("none"), "pretrain", 10, 1e-4),
    "local-middle": Recipe(Architecture("local"), "pretrain", 10, 1e-4),
    "nonlocal": Recipe(Architecture("nonlocal"), "pretrain", 2, 1e-4),
    "wide-pretrain": Recipe(Architecture("none", size=5, maps=32), None, 4, 1e-3),
    "wide-start": Recipe(Architecture("nonlocal", size=5, maps=32, neighbors=16), "wide-pretrain", 1, 5e-4),
    "wide": Recipe(Architecture("nonlocal", size=5, maps=32, neighbors=16), "wide-start", 1, 1e-4),
}
PAPER_NETWORKS = ("local", "local-middle", "nonlocal")


DEEP_MODELS = ("small", "large", "photo")
MODELS = ("local", "nonlocal", "wide", *DEEP_MODELS)


def _parse_level(text: str) -> float:
    level = parse_level(text)
    if level is None:
        message = "`auto` cannot be used here. Write 0.07 or 25/255."
        raise ArgumentError(message)
    return level


def _sigma_option() -> Any:
    return option(
        PAPER_SIGMA,
        "Noise in units of [0, 1], such as 25/255.",
        above=0,
        max=10,
        must="be above 0 and at most 10, in units of [0, 1]",
        remedy="The paper uses 0.07.",
        parse=_parse_level,
    )


@dataclass(frozen=True)
class TrainOptions(Options):
    """One training: its recipe, noise level, seed and the interval of validation."""

    call: ClassVar[str] = "train image"

    recipe: str = option(
        "nonlocal",
        f"One of {', '.join(RECIPES)}.",
        words=tuple(RECIPES),
        must=f"be one of {', '.join(RECIPES)}",
        remedy="The paper's network is nonlocal.",
    )
    sigma: float = _sigma_option()
    seed: int = option(0, "Seed of the initial parameters, the order and the noise.", min=0)
    epochs: int | None = option(
        None, "Replaces the recipe's number, for trials.", min=1, remedy="Leave it out for the paper's number."
    )
    batch: int = option(1, "Photos of a step.", min=1, remedy="The paper uses 1.", no_flag=True)
    every: int = option(100, "Steps between validations, log lines and checkpoints.", min=1, remedy="Use 100 steps.")
    device: Wanted = option("auto", "auto uses CUDA if it is available.")


@dataclass(frozen=True)
class DeepTrainOptions(Options):
    """The training of a deep network. The defaults are those of the networks in the package, which took a GPU."""

    call: ClassVar[str] = "train image"

    model: str | None = option(
        None,
        "Train a deep network instead of a recipe: small or large for white noise, photo for the noise of cameras.",
        words=DEEP_MODELS,
        must=f"be one of {', '.join(DEEP_MODELS)}",
        remedy="Leave it out for a recipe of the paper.",
    )
    colors: Literal["gray", "color"] = option("gray", "Photos in gray or in colour; photo always has colours.")
    steps: int = option(30000, "Steps of a deep network.", min=1, remedy="Use 30000.")
    batch: int | None = option(
        None,
        "Photos or crops of a step, shared by all processes. Default: 1 for a recipe, 32 for a deep network.",
        min=1,
        remedy="Use 32.",
    )
    side: int = option(128, "Side of a crop, a multiple of 4.", min=16, max=1024, remedy="Use 128.")
    pairs: int = option(32768, "Pairs of photos of synthetic cameras, for photo.", min=8, remedy="Use 32768.")
    every: int = option(1000, "Steps between checkpoints.", min=1, remedy="Use 1000.", no_flag=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side % 4:
            message = f"train image: `side` (={self.side}) must be a multiple of 4. Use 128."
            raise ArgumentError(message)


@dataclass(frozen=True)
class DataOptions(Options):
    """The photos that a training or an evaluation uses."""

    call: ClassVar[str] = "photos"

    test: int = option(150, "Photos for testing, drawn at random from a folder.", min=1)
    validation: int = option(15, "Photos for validation, drawn from the rest.", min=1)
    split_seed: int = option(0, "Seed of that draw.")
    crops: tuple[str, ...] = option((), "Folder whose pictures are added for training as 128 x 128 corners, unscaled.")
    prepared: str | None = option(None, "Keep the prepared photos in this .npz file.")


@dataclass(frozen=True)
class EvalOptions(Options):
    """The networks to evaluate and the noise level."""

    call: ClassVar[str] = "eval"

    sigma: float = _sigma_option()
    runs: tuple[str, ...] = option((), "A folder that `glocal train image` wrote; once for each seed.")


@dataclass(frozen=True)
class DenoiseOptions(Options):
    """The options of denoising a picture."""

    call: ClassVar[str] = "denoise"

    sigma: float | None = option(
        None,
        "Standard deviation of the noise in units of [0, 1], such as 0.1 or 25/255; auto (None in Python) estimates it.",
        above=0,
        max=10,
        must="be above 0 and at most 10, in units of [0, 1]",
        remedy="Write 25/255 for 25 of 255, or leave it out to estimate it.",
        parse=parse_level,
        metavar="<auto|number>",
    )
    model: str = option(
        "auto",
        f"auto, {', '.join(MODELS)}, or a .safetensors file of your own training. auto chooses photo for the "
        "noise of cameras, and small or large for white noise.",
        known=("auto", *MODELS),
        suffix=".safetensors",
    )
    strength: float = fraction_option("Fraction of the noise to remove.")
    luma: float = fraction_option("Fraction of the brightness noise to remove.")
    chroma: float = fraction_option("Fraction of the colour noise to remove.")
    grain: float | None = fraction_option(
        "Fraction of the finest brightness noise to leave. Default: 0.1 with the model photo, otherwise 0.",
        default=None,
        remedy="Use 0 for none.",
    )
    search_radius: int | None = option(
        None,
        "How far local, nonlocal and wide search for similar patches, in pixels. Default: everywhere if small, else 10.",
        min=3,
        remedy="Use 10.",
    )
    device: str = device_option()
    seed: int = unused_seed()


@dataclass(frozen=True)
class DenoiseFiles:
    """Further files of a denoised picture."""

    mask: str | None = option(
        None, "Denoise only where this picture is white; gray is soft.", keyword=True, in_tiles=True
    )
    noise_profile: str | None = option(
        None,
        "Measure the noise on this photo of a flat area, taken with the same camera and settings.",
        keyword=True,
        in_tiles=True,
    )
    residual: str | None = option(
        None, "Also write what was removed, magnified around middle gray, to this picture.", writes="picture",
        in_tiles="what was removed is a second picture of the same size",
    )  # fmt: skip


def chain(recipe: str) -> tuple[str, ...]:
    """Return the recipes that lead to `recipe`, first to last.

    >>> chain("nonlocal")
    ('pretrain', 'nonlocal')
    """
    start = RECIPES[recipe].start
    return (*(chain(start) if start else ()), recipe)
