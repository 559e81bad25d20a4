"""The options of a denoising network, its training and its use. Does not import torch, for the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from glocal.errors import ArgumentError
from glocal.options import DEVICE, Options, option

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


def parse_sigma(text: str) -> float | None:
    """Parse a noise level: "auto", "0.1" or "25/255".

    >>> parse_sigma("auto"), parse_sigma("51/255")
    (None, 0.2)
    """
    if text == "auto":
        return None
    top, _, bottom = text.partition("/")
    try:
        return float(top) / float(bottom or "1")
    except (ValueError, ZeroDivisionError) as error:
        message = f"`{text}` is not a noise level. Write auto, 0.1 or 25/255."
        raise ArgumentError(message) from error


def _parse_level(text: str) -> float:
    level = parse_sigma(text)
    if level is None:
        message = "`auto` cannot be used here. Write 0.07 or 25/255."
        raise ArgumentError(message)
    return level


@dataclass(frozen=True)
class TrainOptions:
    """One training: its recipe, noise level, seed and the interval of validation."""

    recipe: str = field(default="nonlocal", metadata={"help": f"One of {', '.join(RECIPES)}."})
    sigma: float = field(
        default=PAPER_SIGMA, metadata={"help": "Noise in units of [0, 1], such as 25/255.", "parse": _parse_level}
    )
    seed: int = field(default=0, metadata={"help": "Seed of the initial parameters, the order and the noise."})
    epochs: int | None = field(default=None, metadata={"help": "Replaces the recipe's number, for trials."})
    batch: int = field(default=1, metadata={"help": "Photos of a step.", "no_flag": True})
    every: int = field(default=100, metadata={"help": "Steps between validations, log lines and checkpoints."})
    device: Wanted = field(default="auto", metadata={"help": "auto uses CUDA if it is available."})

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            message = f"TrainOptions: `recipe` (={self.recipe!r}) is unknown. Choose one of {', '.join(RECIPES)}."
            raise ArgumentError(message)
        if not 0 < self.sigma < 10:
            message = (
                f"TrainOptions: `sigma` (={self.sigma}) must be positive, in units of [0, 1]. The paper uses 0.07."
            )
            raise ArgumentError(message)
        if self.epochs is not None and self.epochs < 1:
            message = (
                f"TrainOptions: `epochs` (={self.epochs}) must be at least 1. Leave it out for the paper's number."
            )
            raise ArgumentError(message)
        if self.batch < 1:
            message = f"TrainOptions: `batch` (={self.batch}) must be at least 1. The paper uses 1."
            raise ArgumentError(message)
        if self.every < 1:
            message = f"TrainOptions: `every` (={self.every}) must be at least 1. Use 100 steps."
            raise ArgumentError(message)


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
class DataOptions:
    """The photos that a training or an evaluation uses."""

    test: int = field(default=150, metadata={"help": "Photos for testing, drawn at random from a folder.", "min": 1})
    validation: int = field(default=15, metadata={"help": "Photos for validation, drawn from the rest.", "min": 1})
    split_seed: int = field(default=0, metadata={"help": "Seed of that draw."})
    crops: tuple[str, ...] = field(
        default=(), metadata={"help": "Folder whose pictures are added for training as 128 x 128 corners, unscaled."}
    )
    prepared: str | None = field(default=None, metadata={"help": "Keep the prepared photos in this .npz file."})


@dataclass(frozen=True)
class EvalOptions:
    """The networks to evaluate and the noise level."""

    sigma: float = field(
        default=PAPER_SIGMA, metadata={"help": "Noise in units of [0, 1], such as 25/255.", "parse": _parse_level}
    )
    runs: tuple[str, ...] = field(
        default=(), metadata={"help": "A folder that `glocal train image` wrote; once for each seed."}
    )

    def __post_init__(self) -> None:
        if not 0 < self.sigma < 10:
            message = f"eval: `sigma` (={self.sigma}) must be positive, in units of [0, 1]. The paper uses 0.07."
            raise ArgumentError(message)


@dataclass(frozen=True)
class DenoiseOptions(Options):
    """The options of denoising a picture."""

    call: ClassVar[str] = "denoise"

    sigma: float | None = option(
        None,
        "Standard deviation of the noise in units of [0, 1], such as 0.1 or 25/255; auto (None in Python) estimates it.",
        above=0,
        max=10,
        must="be positive, in units of [0, 1]",
        remedy="Write 25/255 for 25 of 255, or leave it out to estimate it.",
        parse=parse_sigma,
        metavar="<auto|number>",
    )
    model: str = option(
        "auto",
        f"auto, {', '.join(MODELS)}, or a .safetensors file of your own training. auto chooses photo for the "
        "noise of cameras, and small or large for white noise.",
        known=("auto", *MODELS),
        suffix=".safetensors",
    )
    strength: float = option(1.0, "Fraction of the noise to remove.", min=0, max=1, remedy="Use 1 for all of it.")
    luma: float = option(
        1.0, "Fraction of the brightness noise to remove.", min=0, max=1, remedy="Use 1 for all of it."
    )
    chroma: float = option(1.0, "Fraction of the colour noise to remove.", min=0, max=1, remedy="Use 1 for all of it.")
    grain: float | None = option(
        None,
        "Fraction of the finest brightness noise to leave. Default: 0.1 with the model photo, otherwise 0.",
        min=0,
        max=1,
        remedy="Use 0 for none.",
    )
    search_radius: int | None = option(
        None,
        "How far local, nonlocal and wide search for similar patches, in pixels. Default: everywhere if small, else 10.",
        min=3,
        remedy="Use 10.",
    )
    device: str = option(
        "cpu",
        "Where to compute.",
        known=("cpu", "cuda"),
        metavar="<cpu|cuda>",
        pattern=DEVICE,
        must="be cpu, cuda or cuda:N",
        remedy="Use cpu.",
    )
    seed: int = option(0, "Accepted as in the other jobs, but nothing is random here.", min=0, no_flag=True)


def chain(recipe: str) -> tuple[str, ...]:
    """Return the recipes that lead to `recipe`, first to last.

    >>> chain("nonlocal")
    ('pretrain', 'nonlocal')
    """
    start = RECIPES[recipe].start
    return (*(chain(start) if start else ()), recipe)
