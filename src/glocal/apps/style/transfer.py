"""Style transfer as one call: `stylize`. It takes images of any type and returns an image of the photo's type.

Deviations from the paper
-------------------------
- The total variation is 0.01 times the *sum* over pixels and channels of Lab / 100: the paper's `gamma_3 = 0.01 n` is
  read as the weight of a mean over the pixels. As the weight of a sum it flattens the image.
- `gamma_1` and `gamma_2` are computed once, at the first iteration of the whole run (32 x 32 pixels), and kept at all
  levels. The Gram matrices are sums over the pixels, so that style weighs 64 times more at 256 x 256 pixels than at the
  first level. The text allows this reading, and it shows what the paper describes: structure and strokes. When
  `gamma_1` and `gamma_2` are computed again at each level, the total variation is too strong and leaves flat blocks.
- The Gram matrix of the painting is scaled to the number of pixels of the photo, so that the two may differ in size and
  shape.
- The random initial image has the mean and deviation of the painting's colours; the paper does not say which it used.
- Every preset except "paper" has more deviations: see `docs/style.md`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from glocal import color_space as colors
from glocal.apps.style.estimate import cost, done_before
from glocal.apps.style.levels import resized
from glocal.apps.style.options import StyleOptions
from glocal.apps.style.patches import paint
from glocal.apps.style.regions import check_weights, region_shares, share_of
from glocal.apps.style.solve import Checkpoint, Task, solve
from glocal.color_match import matched
from glocal.errors import InputError
from glocal.files.images.colors import to_srgb
from glocal.files.images.image_like import ImageLike, Layout, as_picture, mask_notes
from glocal.files.images.picture import Picture
from glocal.files.provenance import build_recipe, with_options
from glocal.files.results import SrgbResult, image_inputs
from glocal.kernels.cpu.threads import undisturbed
from glocal.machine import computing_on
from glocal.options import takes_options
from glocal.progress import Callback, Meter
from glocal.progress_bar import shown

LEAST_SIDE = 8  # the smallest picture that contains a patch and its neighbours
Start = Literal["noise", "photo"]


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """What a result is mixed from: the solution and the photo in Lab, the photo in sRGB, and the mask (h, w, 1)."""

    solution: Tensor
    photo: Tensor
    original: Tensor
    cover: Tensor | None
    options: StyleOptions

    def rgb(self) -> np.ndarray[Any, Any]:
        """Restore what the options keep of the photo: its colours, a fraction of the whole, the area outside the mask."""
        lab = self.solution
        if self.options.keep_color == "luma":
            lab = torch.cat([lab[..., :1], self.photo[..., 1:]], -1)
        rgb = colors.rgb_from_lab(self.photo + self.options.strength * (lab - self.photo)).clamp(0, 1)
        if self.options.strength == 0:
            rgb = self.original
        if self.cover is not None:
            rgb = self.original + self.cover * (rgb - self.original)
        return rgb.to("cpu", torch.float32).numpy()

    def on_cpu(self) -> Parts:
        """Return the same parts in the computer's own memory."""
        cover = None if self.cover is None else self.cover.cpu()
        return replace(
            self, solution=self.solution.cpu(), photo=self.photo.cpu(), original=self.original.cpu(), cover=cover
        )


@dataclass(frozen=True, eq=False, repr=False)
class StyleResult(SrgbResult):
    """A stylised image and the losses of its levels. See `Result` for the fields of all results.

    Attributes
    ----------
    losses
        The loss at the start and after each iteration, for each level.
    rgb
        The image as float32 sRGB in [0, 1], (h, w, 3).
    parts
        What `at_strength` needs.
    """

    losses: tuple[tuple[float, ...], ...] = field(kw_only=True)
    parts: Parts = field(kw_only=True)

    def at_strength(self, strength: float) -> StyleResult:
        """Return the same run with another strength, without a new run. Cost: O(h w), some milliseconds.

        The picture and its recipe are those of `stylize` with this strength.

        Raises
        ------
        ArgumentError
            `strength` is not from 0 to 1.
        """
        options = replace(self.parts.options, strength=strength)
        parts = replace(self.parts, options=options)
        return replace(self, rgb=parts.rgb(), parts=parts, recipe=with_options(self.recipe, options))


@takes_options(StyleOptions)
def stylize(
    photo: ImageLike,
    painting: ImageLike | Sequence[ImageLike],
    *,
    options: StyleOptions,
    weights: Sequence[float] | None = None,
    mask: ImageLike | None = None,
    regions: Sequence[tuple[ImageLike, ImageLike | Sequence[ImageLike]]] = (),
    init: Start | ImageLike = "noise",
    layout: Layout | None = None,
    checkpoint: Checkpoint | None = None,
    dtype: torch.dtype = torch.float32,
    progress: Callback | bool | None = None,
    callback: Callback | None = None,
) -> StyleResult:
    """Give `photo` the strokes and colours of `painting`, and keep its structure (section 3).

    Minimises `gamma_1 |F1'F1 - G1|^2 + gamma_2 |F2'F2 - G2|^2 + gamma_3 TV(X)` (equation 10) from coarse to fine, where
    `F1` are maps of random local networks, `F2` maps of a random network on the *photo's* graph of similar patches, and
    `G1`, `G2` the painting's Gram matrices.

    Parameters
    ----------
    photo, painting : array (h, w, 3) of uint8, uint16 or float in [0, 1], tensor, `PIL.Image` or path
        `painting` may be a list; `weights` are then the weights of the paintings. Shapes and aspect ratios may differ.
    {options}
    options : StyleOptions
        All options at once. Single options change it.
    mask : array (h, w), image or path
        Stylise only where it is white, with a soft edge where it is gray. Scaled to the photo.
    regions : pairs of masks
        `(photo mask, painting mask)`: this part of the photo gets the style of that part of the painting. The rest of
        the photo gets the style of the rest of the painting. With several paintings the second mask is a list.
    init : "noise", "photo" or an image
        The initial image of the optimisation.
    layout : "HWC", "CHW" or None
        Order of the axes of arrays and tensors; a tensor (3, h, w) needs "CHW".
    checkpoint : Checkpoint
        Continue from here (see `Progress`): the level, the iteration and the image of an earlier run.
    progress : callable(Progress), True or None
        Called a few times a second. `progress.image` is the current image in Lab at the level's size. If it returns
        True, the run stops and returns the best result so far. True instead of a function draws a bar, in a terminal or
        a notebook. `callback` is the old name.

    Returns
    -------
    StyleResult
        Its `image` has the type of the photo and, with `size="keep"`, its shape. A gray photo (h, w) gives
        (h, w, 3), since the painting brings colour; a gray result stays (h, w). Cost of an iteration at n pixels:
        O(n m (d c + m)) for each network of m maps and degree d. Memory: about `4 n (m + 2 d)` bytes for each network.

    Raises
    ------
    ArgumentError, InputError
        If an option is out of range, or an image cannot be used.
    DeviceError, MemoryLimitError
        If there is no such device, or too little memory.

    Examples
    --------
    >>> import numpy as np
    >>> photo = np.random.default_rng(0).random((16, 24, 3))
    >>> stylize(photo, photo[::-1], preset="paper", size=16, iterations=2).image.shape
    (11, 16, 3)
    """
    began = time.perf_counter()
    if callback is not None:
        warnings.warn("stylize: `callback` is now `progress`.", DeprecationWarning, stacklevel=3)
    sources = StyleSources.read(photo, painting, mask, regions, init, layout)
    parts = check_weights(weights, len(sources.paintings))
    sizes = [p.size for p in sources.paintings]
    needs = cost(sources.photo.size, sizes, options)
    begun = 0.0 if checkpoint is None else done_before(options, needs.shape, checkpoint.level, checkpoint.iteration)
    expected = needs.seconds * (1 - begun)
    with (
        computing_on("stylize", options.device),
        undisturbed(),  # for the whole run: torch's sums depend on its number of threads, ours do not
        shown(progress or callback, "stylize") as tell,
        Meter(tell, expected=expected, begun=begun) as meter,
    ):
        like = torch.zeros(0, dtype=dtype, device=options.device)
        original = resized(_rgb(sources.photo, like), needs.shape)
        lab = colors.lab_from_rgb(original)
        paintings = tuple(colors.lab_from_rgb(_rgb(p, like)) for p in sources.paintings)
        cover = None
        if sources.mask is not None:
            cover = resized(share_of(sources.mask, like).unsqueeze(-1), needs.shape).clamp(0, 1)
        task = Task(
            photo=lab,
            paintings=_prepared(paintings, lab, options.keep_color),
            weights=parts,
            shares=region_shares(sources.regions, cover, needs.shape, sizes, like),
            start=_start(sources.init, lab, like),
            checkpoint=checkpoint,
        )
        method = paint if options.method == "patches" else solve
        solution = method(task, options, meter.relay if meter.callback else None)
        mixed = Parts(solution.lab, lab, original, cover, options)
        rgb = mixed.rgb()
    return StyleResult(
        seconds=time.perf_counter() - began,
        recipe=sources.recipe(options, weights),
        notes=(*sources.photo.notes, *mask_notes(sources.mask, sources.photo.size)),
        stopped=solution.stopped,
        phases=solution.phases,
        original=sources.photo,
        given=photo,
        layout=layout,
        rgb=rgb,
        losses=solution.losses,
        parts=mixed.on_cpu(),
    )


@dataclass(frozen=True, eq=False)
class StyleSources:
    """The pictures of a style transfer. Each is read once."""

    photo: Picture
    paintings: list[Picture]
    mask: Picture | None
    regions: list[tuple[Picture, list[Picture]]]
    init: Start | Picture

    @classmethod
    def read(
        cls,
        photo: ImageLike,
        painting: ImageLike | Sequence[ImageLike],
        mask: ImageLike | None = None,
        regions: Sequence[tuple[ImageLike, ImageLike | Sequence[ImageLike]]] = (),
        init: Start | ImageLike = "noise",
        layout: Layout | None = None,
    ) -> StyleSources:
        """Read every picture that a call names, and check the sizes."""

        def picture(value: Any, name: str) -> Picture:
            return as_picture(value, call="stylize", name=name, layout=layout)

        def several(value: Any, count: int = 1) -> list[Any]:
            return list(value) if isinstance(value, (list, tuple)) else [value] * count

        paintings = [picture(one, "painting") for one in several(painting)]
        found = cls(
            picture(photo, "photo"),
            paintings,
            None if mask is None else picture(mask, "mask"),
            [
                (picture(mine, "regions"), [picture(one, "regions") for one in several(theirs, len(paintings))])
                for mine, theirs in regions
            ],
            init if isinstance(init, str) and init in ("noise", "photo") else picture(init, "init"),  # type: ignore[arg-type]
        )
        _check_size("photo", found.photo)
        for one in found.paintings:
            _check_size("painting", one)
            _check_painting(one)
        return found

    def recipe(self, options: StyleOptions, weights: Sequence[float] | None) -> dict[str, Any]:
        """Return the recipe of a run. Inputs are in the order of the command line."""
        named = {"photo": self.photo} | {f"painting {k + 1}": p for k, p in enumerate(self.paintings)}
        more = {} if self.mask is None else {"mask": self.mask}
        for k, (mine, theirs) in enumerate(self.regions):
            more |= {f"region {k + 1}": mine} | {
                f"region {k + 1}, painting {p + 1}": one for p, one in enumerate(theirs)
            }
        if isinstance(self.init, Picture):
            more["init"] = self.init
        inputs, pixels = image_inputs(named | more)
        arguments: dict[str, Any] = {"positional": [path for path, _ in inputs[: len(named)]] if not pixels else []}
        arguments["weights"] = None if weights is None else ",".join(f"{weight:g}" for weight in weights)
        arguments["mask"] = None if self.mask is None else _name(self.mask)
        arguments["regions"] = [f"{_name(mine)}={_name(theirs[0])}" for mine, theirs in self.regions]
        arguments["init"] = _name(self.init) if isinstance(self.init, Picture) else self.init
        if pixels:
            arguments["pixels_sha256"] = pixels
        return build_recipe("style", options, inputs=inputs, arguments=arguments, seed=options.seed)


def _name(picture: Picture) -> str | None:
    return None if picture.path is None else str(picture.path)


def _check_painting(picture: Picture) -> None:
    if all(float(np.ptp(picture.pixels[..., c])) == 0 for c in range(picture.pixels.shape[2])):
        where = f" ({picture.path})" if picture.path else ""
        message = (
            f"stylize{where}: the painting has only one colour, so it has no style to transfer. "
            "Use a painting with strokes or texture."
        )
        raise InputError(message)


def _check_size(name: str, picture: Picture) -> None:
    h, w = picture.size
    if min(h, w) < LEAST_SIDE:
        where = f" ({picture.path})" if picture.path else ""
        message = (
            f"stylize{where}: the {name} has {w} x {h} pixels, but needs at least {LEAST_SIDE} x {LEAST_SIDE} "
            "for a patch and its neighbours. Use a larger picture."
        )
        raise InputError(message)


def _rgb(picture: Picture, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(to_srgb(picture))).to(like)


def _start(init: Start | Picture, lab: Tensor, like: Tensor) -> Tensor | None:
    if isinstance(init, Picture):
        return resized(colors.lab_from_rgb(_rgb(init, like)), (lab.shape[0], lab.shape[1]))
    return lab if init == "photo" else None


def _prepared(paintings: tuple[Tensor, ...], photo: Tensor, keep_color: str) -> tuple[Tensor, ...]:
    """Return the paintings in the colours of the result."""
    if keep_color == "match":
        return tuple(matched(p, [photo], [1.0]) for p in paintings)
    if keep_color == "luma":  # only the luminance is used at the end: give it the photo's range
        light = photo[..., :1]
        return tuple(torch.cat([matched(p[..., :1], [light], [1.0]), p[..., 1:]], -1) for p in paintings)
    return paintings
