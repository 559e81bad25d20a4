"""The k nearest so far of every pixel: sorted lists of 64-bit keys, and what a picture looks like to the search.

A key holds the bits of a squared distance in its high half and the index of the candidate in its low half: keys sort
by distance, and ties resolve to the smaller index by themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.reuse import room
from glocal.kernels.cpu.simd import bits_float, constant, insert_key

EMPTY = 0x7F800000_7FFFFFFF  # an infinite distance and the last index: comes after every key
LAST = 0x7FFFFFFF
UNROLLED = 32  # longest lists whose insertion is compiled for their length

Array = np.ndarray[Any, Any]


class Picture(NamedTuple):
    """Padded planes one after another in `flat`: pixel (y, x) of channel c at `origin + c plane + y row + x`.

    `h` and `w` count the patches. `channels`, `ph` and `pw` are compile-time constants.
    """

    flat: Array
    origin: int
    row: int
    plane: int
    h: int
    w: int
    channels: tuple[bool, ...]
    ph: tuple[bool, ...]
    pw: tuple[bool, ...]


class Lists(NamedTuple):
    """For each pixel, `size` sorted keys, of which the first `k - 1` count; the last of these is also kept apart."""

    k: int
    size: int
    keys: Array
    worst: Array  # its squared distance, float32; -1 where there is no pixel
    last: Array  # its index, int32
    groups: tuple[bool, ...]  # compile-time constant: size / 8, or 0 where it is large


def lay_out(planes: Tensor, patch: tuple[int, int], row: int, margin: int) -> Picture:
    """Copy padded planes (c, h + ph - 1, w + pw - 1) to rows of length `row`, with zeros around."""
    c, height, width = planes.shape
    plane = height * row
    flat = np.zeros(c * plane + 2 * margin, np.float32)
    flat[margin : margin + c * plane].reshape(c, height, row)[:, :, :width] = planes.numpy()
    h, w = height - patch[0] + 1, width - patch[1] + 1
    return Picture(flat, margin, row, plane, h, w, constant(c), constant(patch[0]), constant(patch[1]))


def empty_lists(pixels: int, k: int, keys: Array | None = None) -> Lists:
    """Make lists for `pixels` pixels, in `keys` if given, with no pixel in use yet."""
    size = -(-(k - 1) // 8) * 8
    if keys is None:
        keys = room(pixels * size, np.int64)
    keys[:] = EMPTY
    groups = constant(size // 8 if size <= UNROLLED else 0)
    return Lists(k, size, keys, np.full(pixels, -1, np.float32), np.full(pixels, LAST, np.int32), groups)


def rounding(c: int, patch: tuple[int, int]) -> float:
    """Bound the relative error of a float32 squared distance, with a margin for a few more operations."""
    return float((c + 2 * patch[0].bit_length() + 2 * patch[1].bit_length() + 8) * 2.0**-23)


@njit(nogil=True, cache=True, forceinline=True)
def insert(
    keys: Array, worst: Array, last: Array, k: int, size: int, groups: tuple[bool, ...], pixel: int, key: int
) -> None:
    """Put `key` in its place in the list of `pixel`, if it comes before the last.

    It takes the fields of `Lists` one by one, so that callers take them out of the tuple before their loops.
    """
    base = pixel * size
    insert_key(keys, base, size, key, groups)
    final = keys[base + k - 2]
    d2 = bits_float(final >> 32)
    if d2 <= worst[pixel]:
        worst[pixel] = d2
        last[pixel] = final & LAST
