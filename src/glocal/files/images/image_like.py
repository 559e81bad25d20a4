"""What people call an image, and how a result takes the type and shape of the input."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from glocal.errors import ArgumentError, InputError
from glocal.files.images.colors import srgb_in, to_srgb
from glocal.files.images.picture import Array, Empty, Picture, check_finite, row_bands, split_alpha, with_alpha
from glocal.files.images.pillow_formats import picture_from_pil, to_pil
from glocal.files.images.read import MAX_PIXELS, read_image
from glocal.files.images.scratch import Scratch

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

ImageLike: TypeAlias = "Array | Tensor | Image | str | os.PathLike[str] | Picture"
"""An array (h, w) or (h, w, 1 to 4) of uint8, uint16 or float in [0, 1], a tensor, a `PIL.Image`, or a path."""
Layout: TypeAlias = Literal["HWC", "CHW"]


def as_picture(
    value: ImageLike, *, call: str, name: str, layout: Layout | None = None, scratch: Scratch | None = None
) -> Picture:
    """Return an image of any type as a `Picture`.

    Parameters
    ----------
    value : ImageLike
    call, name : str
        The function and its argument, for messages.
    layout : "HWC", "CHW" or None
        Order of the axes of arrays and tensors with three axes. None means channels last. A tensor whose first axis could
        be the channels is refused without it, because both orders are common and nothing is guessed.
    scratch : Scratch or None
        Where the pixels of a file go if they should not stay in memory.

    Raises
    ------
    ArgumentError
        `layout` is unknown, or has to be given.
    InputError
        The image cannot be read or used.

    Examples
    --------
    >>> as_picture(np.zeros((3, 8, 9), np.uint8), call="f", name="image", layout="CHW").size
    (8, 9)
    """
    if layout not in (None, "HWC", "CHW"):
        message = f"{call}: `layout` (={layout!r}) is unknown. Choose one of HWC, CHW."
        raise ArgumentError(message)
    if is_tensor(value):
        array = _from_tensor(value)
        if array.ndim == 3 and layout is None and array.shape[0] in (1, 3, 4):
            message = (
                f"{call}: `{name}` is a tensor of shape {array.shape}, whose first axis may be rows or channels. "
                'Add layout="CHW" or layout="HWC".'
            )
            raise ArgumentError(message)
        value = array
    if layout == "CHW" and isinstance(value, np.ndarray) and value.ndim == 3:
        if value.shape[0] > 4:
            message = (
                f"{call}: `{name}` (shape {value.shape}) is not (channels, h, w), and layout='CHW' holds for every array "
                "of a call. Move its channels to the front."
            )
            raise ArgumentError(message)
        value = np.ascontiguousarray(np.moveaxis(value, 0, 2))
    return picture_from(value, what=f"{call}: `{name}`", scratch=scratch)


def picture_from(
    value: object,
    *,
    max_pixels: int | None = None,
    what: str = "picture_from: `value`",
    scratch: Scratch | None = None,
) -> Picture:
    """Make a `Picture` from whatever a person would call an image.

    Parameters
    ----------
    value : object
        An array `(h, w)`, `(h, w, 1)`, `(h, w, 2)` (gray and alpha), `(h, w, 3)` or `(h, w, 4)` of type uint8, uint16 or
        float; a `PIL.Image`; a path; or a `Picture`, which is returned as it is.
    max_pixels : int or None
        Limit for files, see `glocal.files.images.read.read_image`.
    scratch : Scratch or None
        See `as_picture`.
    what : str
        The function and its argument, for messages.

    Raises
    ------
    InputError
        The array has another shape or type, holds values that are not finite, or the file cannot be read.

    >>> picture_from(np.zeros((4, 5, 3), np.uint8)).size
    (4, 5)
    """
    if isinstance(value, Picture):
        return value
    if isinstance(value, (str, os.PathLike)):
        return read_image(value, max_pixels=max_pixels or MAX_PIXELS, scratch=scratch)
    if hasattr(value, "getbands"):
        return picture_from_pil(value)
    if not hasattr(value, "__array__"):
        raise InputError(
            f"{what} is a {type(value).__name__}, not an image. Pass an array, a tensor, a PIL.Image or a path."
        )
    return _from_array(np.asarray(value), what)


def as_given(picture: Picture, given: ImageLike, layout: Layout | None = None) -> Any:
    """Return a picture in the type of the given image, and in its shape where the channels allow it.

    >>> as_given(picture_from(np.zeros((4, 5))), np.zeros((4, 5))).shape
    (4, 5)
    """
    if hasattr(given, "getbands"):
        return to_pil(picture)
    array = with_alpha(picture.pixels, picture.alpha)
    if getattr(given, "ndim", 3) == 2 and array.shape[2] == 1:
        array = array[:, :, 0]
    elif layout == "CHW" and not isinstance(given, (str, os.PathLike, Picture)):
        array = np.ascontiguousarray(np.moveaxis(array, 2, 0))
    if is_tensor(given):
        import torch

        tensor: Any = given
        found = torch.from_numpy(np.ascontiguousarray(array))
        half = tensor.dtype in (torch.float16, torch.bfloat16)
        return found.to(tensor.device, tensor.dtype if half else found.dtype)
    return array.astype(np.float16) if getattr(given, "dtype", None) == np.float16 else array


def mask_values(
    mask: ImageLike,
    size: tuple[int, int],
    *,
    call: str,
    layout: Layout | None = None,
    scratch: Scratch | None = None,
) -> Array:
    """Scale a mask of any size to float32 values in [0, 1] of shape `size` (h, w); 1 is white.

    A mask of another size is scaled: averaged when it is larger, interpolated when it is smaller. Cost: O(h w).

    >>> mask_values(np.full((2, 2), 255, np.uint8), (3, 4), call="f").min()
    np.float32(1.0)
    """
    picture = as_picture(mask, call=call, name="mask", layout=layout, scratch=scratch)
    values = np.empty(picture.size, np.float32) if scratch is None else scratch.empty(picture.size, np.float32)
    rgb = to_srgb(picture) if scratch is None else srgb_in(scratch, picture)
    np.mean(rgb, axis=2, out=values)
    return values if values.shape == size else _scaled(values, size, np.empty if scratch is None else scratch.empty)


def mask_notes(mask: Picture | None, size: tuple[int, int]) -> tuple[str, ...]:
    """Return a note for the user if a mask has another size (h, w) than the photo."""
    if mask is None or mask.size == size:
        return ()
    (h, w), (height, width) = mask.size, size
    return (f"the mask is scaled from {w} x {h} to {width} x {height}, the photo's size",)


def _scaled(values: Array, size: tuple[int, int], empty: Empty) -> Array:
    """Scale values (h, w) to another size, a band of rows at a time."""
    from PIL import Image

    source, out = Image.fromarray(values), empty(size, np.float32)
    (height, width), (rows, columns) = values.shape, size
    for band in row_bands(rows):
        box = (0, band.start * height / rows, width, band.stop * height / rows)
        out[band] = source.resize((columns, band.stop - band.start), Image.Resampling.BILINEAR, box)
    return np.clip(out, 0, 1, out=out)


@dataclass(frozen=True)
class LargeMask:
    """A mask that is read by windows: `mask[top:bottom, left:right]` gives what `mask_values` gives there. It can be pickled.

    >>> LargeMask(np.full((4, 4, 1), 255, np.uint8))[1:3, 0:4].shape
    (2, 4)
    """

    pixels: Any
    icc: bytes | None = None

    def __getitem__(self, place: tuple[slice, slice]) -> Array:
        window = np.asarray(self.pixels[place])
        return mask_values(Picture(window, icc=self.icc), window.shape[:2], call="mask")


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor; asks without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _from_tensor(tensor: Any) -> Array:
    """Return the values of a tensor as an array; NumPy has no bfloat16, so half precision becomes float32."""
    half = tensor.is_floating_point() and tensor.element_size() < 4
    array: Array = (tensor.float() if half else tensor).detach().cpu().numpy()
    return array


def _from_array(array: Array, what: str) -> Picture:
    """Check a bare array and wrap it."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4)) or 0 in array.shape:
        raise InputError(
            f"{what} has the shape {array.shape}, not (h, w) or (h, w, 1 to 4). "
            "Put the channels last and leave out batch axes."
        )
    if array.dtype == np.float16 or array.dtype == bool:
        array = array.astype(np.float32)
    if array.dtype not in (np.uint8, np.uint16, np.float32, np.float64):
        raise InputError(f"{what} has the type {array.dtype}. Convert it to uint8, uint16 or float in [0, 1].")
    if array.dtype.kind == "f":
        check_finite(array, what)
    pixels, alpha = split_alpha(array)
    return Picture(pixels=pixels, alpha=alpha)
