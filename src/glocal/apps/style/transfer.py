"""Style transfer as one call: `stylize`. Images of any kind in, an image of the photo's kind out.

Deviations from the paper
-------------------------
- The total variation is `tv` times the *sum* over pixels and channels of Lab / 100. The paper's `0.01 n` fits a total
  variation that is a mean over the pixels; with a sum it flattens the image.
- Gram matrices are divided by the number of pixels, so that photo and painting may differ in size and shape. With equal
  sizes the gradient balance cancels the factor.
- The random start has the mean and deviation of the painting's colours; the paper does not say which it used.
- Every preset but "paper" goes further: see `docs/style.md`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal import color_space as colors
from glocal.apps.style.estimate import shape_of
from glocal.apps.style.levels import resized
from glocal.apps.style.options import DEFAULT_PRESET, StyleOptions, style_options
from glocal.apps.style.regions import check_weights, region_shares, share_of
from glocal.apps.style.solve import Checkpoint, Solution, Task, solve
from glocal.color_match import matched
from glocal.errors import ArgumentError, DeviceError, InputError, MemoryLimitError
from glocal.files.images.colors import to_srgb
from glocal.files.images.convert import like, picture_from
from glocal.files.images.picture import Picture
from glocal.files.provenance import build_recipe
from glocal.optim.progress import Progress

LEAST_SIDE = 8  # the smallest picture that has room for a patch and its neighbours


@dataclass(frozen=True, eq=False)
class StyleResult:
    """A stylised image and how it came about.

    image : of the photo's kind (array or `PIL.Image`; an array for a path).
    losses : the loss at the start and after each iteration, for each level.
    seconds : the whole time; `phases` says where it went.
    recipe : options, seed, versions and hashes of the inputs.
    stopped : whether the callback ended the run early; the image is then the best so far.
    rgb : the image as float32 sRGB in [0, 1], (h, w, 3).
    """

    image: Any
    losses: tuple[tuple[float, ...], ...]
    seconds: float
    phases: dict[str, float]
    recipe: dict[str, Any]
    stopped: bool
    rgb: np.ndarray[Any, Any]


def stylize(
    photo: Any,
    painting: Any,
    *,
    preset: str = DEFAULT_PRESET,
    size: int | str | None = None,
    iterations: int | None = None,
    seed: int | None = None,
    weights: Sequence[float] | None = None,
    style_scale: float | None = None,
    keep_color: str | None = None,
    strength: float | None = None,
    mask: Any = None,
    regions: Sequence[tuple[Any, Any]] = (),
    init: Any = "noise",
    networks: str | None = None,
    tv: float | None = None,
    anchor: float | None = None,
    options: StyleOptions | None = None,
    checkpoint: Checkpoint | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    callback: Callable[[Progress], bool | None] | None = None,
) -> StyleResult:
    """Give `photo` the strokes and colours of `painting`, and keep its structure (section 3).

    Minimises `gamma_1 |F1'F1 - G1|^2 + gamma_2 |F2'F2 - G2|^2 + gamma_3 TV(X)` (equation 10) from coarse to fine, where
    `F1` are maps of random local networks, `F2` maps of a random network on the *photo's* graph of similar patches, and
    `G1`, `G2` the painting's Gram matrices.

    Parameters
    ----------
    photo, painting : array (h, w, 3) of uint8, uint16 or float in [0, 1], `PIL.Image` or path
        `painting` may be a list; `weights` then says how much each counts. Shapes and aspect ratios are free.
    preset : str
        "paper" is the paper. The options below change what the preset says; `StyleOptions` explains all of them.
    mask : array (h, w), image or path
        Stylise only where it is white, with a soft edge where it is gray. Scaled to the photo.
    regions : pairs of masks
        `(photo mask, painting mask)`: this part of the photo takes that part of the painting. What no pair covers takes
        the rest of the painting. With several paintings the second is a list.
    init : "noise", "photo" or an image
        Where the optimisation starts.
    options : StyleOptions
        All options at once, instead of `preset` and the changes.
    device : "cpu" or "cuda"
        Where to compute. Another device rounds otherwise, so that its picture differs a little.
    checkpoint : Checkpoint
        Go on from here (see `Progress`): the level, the iteration and the image of an earlier run.
    callback : callable(Progress) or None
        Told a few times a second; `progress.image` is the current image in Lab at the level's size. Returning True
        stops the run and returns the best so far.

    Returns
    -------
    StyleResult. Cost of an iteration at n pixels: O(n m (d c + m)) for each network of m maps and degree d; memory
    about `4 n (m + 2 d)` bytes for each network.

    Raises
    ------
    ArgumentError, InputError
        An option that is out of range, or an image that cannot be used.
    DeviceError, MemoryLimitError
        There is no such device, or the GPU has too little memory.

    >>> import numpy as np
    >>> photo = np.random.default_rng(0).random((16, 24, 3))
    >>> stylize(photo, photo[::-1], preset="paper", size=16, iterations=2).image.shape
    (11, 16, 3)
    """
    began = time.perf_counter()
    changes = {
        "size": size, "iterations": iterations, "seed": seed, "style_scale": style_scale, "keep_color": keep_color,
        "strength": strength, "networks": networks, "tv": tv, "anchor": anchor,
    }  # fmt: skip
    if options is not None and any(value is not None for value in changes.values()):
        message = "stylize: `options` holds everything already. Give either `options` or single options, not both."
        raise ArgumentError(message)
    chosen = style_options(preset, changes) if options is None else options
    picture = picture_from(photo)
    paintings = [picture_from(p) for p in (painting if isinstance(painting, (list, tuple)) else [painting])]
    parts = check_weights(weights, len(paintings))
    for name, item in [("photo", picture), *(("painting", p) for p in paintings)]:
        _check_size(name, item)
    with _computing_on(device):
        kind = torch.zeros(0, dtype=dtype, device=device)
        shape = shape_of(picture.size, chosen.size)
        original = resized(_rgb(picture, kind), shape)
        lab = colors.lab_from_rgb(original)
        sources = tuple(colors.lab_from_rgb(_rgb(p, kind)) for p in paintings)
        cover = None if mask is None else resized(share_of(mask, kind).unsqueeze(-1), shape).clamp(0, 1)
        shares = region_shares(regions, cover, shape, [(p.size[0], p.size[1]) for p in paintings], kind)
        task = Task(
            photo=lab,
            paintings=_prepared(sources, lab, chosen.keep_color),
            weights=parts,
            shares=shares,
            start=_start(init, lab, kind),
            checkpoint=checkpoint,
        )
        try:
            solution = solve(task, chosen, callback)
        except torch.OutOfMemoryError as error:
            message = f"stylize: {device} has too little memory for {shape[1]} x {shape[0]} pixels. Use a smaller size, or cpu."
            raise MemoryLimitError(message) from error
        rgb = _finished(solution, lab, chosen, cover, original)
    return StyleResult(
        image=like(picture, rgb),
        losses=solution.losses,
        seconds=time.perf_counter() - began,
        phases=solution.phases,
        recipe=_recipe(picture, paintings, chosen, parts),
        stopped=solution.stopped,
        rgb=rgb,
    )


@contextmanager
def _computing_on(device: str) -> Iterator[None]:
    """Make a GPU the current one, and name what it lacks."""
    name, _, index = device.partition(":")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device != "cpu" and not (name == "cuda" and (index or "0").isdigit() and int(index or 0) < there):
        message = f"stylize: the device {device!r} is not available here. Use cpu."
        raise DeviceError(message)
    try:
        with nullcontext() if device == "cpu" else torch.cuda.device(device):
            yield
    except torch.OutOfMemoryError as error:
        message = f"stylize: {device} has too little memory. Use a smaller size, or cpu."
        raise MemoryLimitError(message) from error


def _check_size(name: str, picture: Picture) -> None:
    h, w = picture.size
    if min(h, w) < LEAST_SIDE:
        where = f" ({picture.path})" if picture.path else ""
        message = (
            f"stylize{where}: the {name} has {w} x {h} pixels, but needs at least {LEAST_SIDE} x {LEAST_SIDE} "
            "for a patch and its neighbours. Use a larger picture."
        )
        raise InputError(message)


def _rgb(picture: Picture, kind: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(to_srgb(picture))).to(kind)


def _start(init: Any, lab: Tensor, kind: Tensor) -> Tensor | None:
    if isinstance(init, str) and init == "noise":
        return None
    if isinstance(init, str) and init == "photo":
        return lab
    return resized(colors.lab_from_rgb(_rgb(picture_from(init), kind)), (lab.shape[0], lab.shape[1]))


def _prepared(paintings: tuple[Tensor, ...], photo: Tensor, keep_color: str) -> tuple[Tensor, ...]:
    """The paintings in the colours that the result shall have."""
    if keep_color == "match":
        return tuple(matched(p, [photo], [1.0]) for p in paintings)
    if keep_color == "luma":  # only the luminance is taken in the end: give it the photo's range
        light = photo[..., :1]
        return tuple(torch.cat([matched(p[..., :1], [light], [1.0]), p[..., 1:]], -1) for p in paintings)
    return paintings


def _finished(
    solution: Solution, photo: Tensor, options: StyleOptions, cover: Tensor | None, original: Tensor
) -> np.ndarray[Any, Any]:
    """Put back what the options keep of the photo: its colours, a part of everything, what the mask leaves out."""
    lab = solution.lab
    if options.keep_color == "luma":
        lab = torch.cat([lab[..., :1], photo[..., 1:]], -1)
    rgb = colors.rgb_from_lab(photo + options.strength * (lab - photo)).clamp(0, 1)
    if options.strength == 0:
        rgb = original
    if cover is not None:
        rgb = original + cover * (rgb - original)
    return rgb.to("cpu", torch.float32).numpy()


def _recipe(
    photo: Picture, paintings: list[Picture], options: StyleOptions, weights: tuple[float, ...]
) -> dict[str, Any]:
    pictures = [photo, *paintings]
    sums = [hashlib.sha256(p.pixels.tobytes()).hexdigest() for p in pictures]
    return build_recipe(
        "style",
        options,
        inputs=[p.path for p in pictures if p.path is not None],
        arguments={"weights": weights, "pixels_sha256": sums},
        seed=options.seed,
    )
