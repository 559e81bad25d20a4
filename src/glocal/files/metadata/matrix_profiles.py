"""RGB profiles that are three curves and a matrix (nearly all are), as tables, which apply faster than Little CMS in float.

For such a profile, linear light is `M f(v)`: a curve `f` for each channel of the pixel value `v`, then a 3 x 3 matrix `M`.
Both are measured on Little CMS itself, which maps `(v, 0, 0)`, `(0, v, 0)` and `(0, 0, v)` to XYZ, and the model is then
compared with it on a grid of colours; a profile that does not follow the model (one with a colour table) is left to
Little CMS.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_STEPS = 65536  # of a decoding table: one for each 16-bit value
_ROOT_STEPS = 16384  # of an encoding table, which is even in the square root of the light, where curves are smooth
_TOLERANCE = 1e-3
_BLOCK = 1 << 16  # pixels worked on at a time, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class Curves:
    """Tables of one RGB space: value to light for 65,536 values, and light to value over the square root of light."""

    decode: Array  # (3, _STEPS)
    encode: Array  # (3, _ROOT_STEPS + 2)


@dataclass(frozen=True, eq=False)
class MatrixProfile:
    """Curves of the profile and the matrix from its linear light to that of sRGB."""

    own: Curves
    srgb: Curves
    matrix: Array

    def to_srgb(self, pixels: Array) -> Array:
        """sRGB values in [0, 1], float32, for pixels `(h, w, 3)` of any of our types. Cost: O(h w)."""
        return _through(pixels, self.own.decode, self.matrix, self.srgb.encode)

    def from_srgb(self, image: Array) -> Array:
        """Convert sRGB values `(h, w, 3)` to the profile's own values in [0, 1], float32. Cost: O(h w)."""
        return _through(image, self.srgb.decode, np.linalg.inv(self.matrix), self.own.encode)


@functools.lru_cache(maxsize=8)
def matrix_profile(icc: bytes) -> MatrixProfile | None:
    """Return the tables of an RGB profile, or None if it is not a matrix profile."""
    import imagecodecs

    srgb = bytes(imagecodecs.cms_profile("srgb"))
    try:
        own_curves, own_matrix = _measured(icc)
        srgb_curves, srgb_matrix = _measured(srgb)
        model = MatrixProfile(own_curves, srgb_curves, np.linalg.solve(srgb_matrix, own_matrix))
        steps = np.linspace(0, 1, 12, dtype=np.float32)
        grid = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 1, 3)
        expected = imagecodecs.cms_transform(
            grid, icc, srgb, colorspace="rgb", outcolorspace="rgb", outdtype="float32"
        ).reshape(grid.shape)
    except (imagecodecs.CmsError, ValueError, np.linalg.LinAlgError):
        return None
    worst = np.abs(model.to_srgb(grid) - np.clip(expected, 0, 1)).max()
    return model if worst < _TOLERANCE else None


def _measured(icc: bytes) -> tuple[Curves, Array]:
    """Curves of a profile and its matrix to XYZ, from the colours that Little CMS gives for each channel alone."""
    import imagecodecs

    values = np.linspace(0, 1, _STEPS)
    alone = np.zeros((3, _STEPS, 3))
    for channel in range(3):
        alone[channel, :, channel] = values
    xyz_profile = bytes(imagecodecs.cms_profile("xyz"))
    xyz = imagecodecs.cms_transform(
        alone, icc, xyz_profile, colorspace="rgb", outcolorspace="xyz", outdtype="float64"
    ).reshape(alone.shape)
    ends = xyz[:, -1]  # row c is what channel c gives at its full value
    lengths = (ends**2).sum(axis=1)
    if not np.isfinite(xyz).all() or (lengths < 1e-9).any():
        raise ValueError("a channel of the profile gives no light")
    decode = np.einsum("cnk,ck->cn", xyz, ends) / lengths[:, None]
    decode = np.maximum.accumulate(np.clip(decode, 0, 1), axis=1)
    light = (np.arange(_ROOT_STEPS + 2) / _ROOT_STEPS) ** 2
    encode = np.stack([np.interp(light, curve, values) for curve in decode])
    return Curves(decode.astype(np.float32), encode.astype(np.float32)), ends.T


def _through(image: Array, decode: Array, matrix: Array, encode: Array) -> Array:
    """Decode each channel, mix them, encode each channel; a block of pixels at a time, on a few threads."""
    flat = image.reshape(-1, 3)
    out = np.empty(flat.shape, np.float32)
    mix = np.ascontiguousarray(matrix.T, dtype=np.float32)

    def work(start: int) -> None:
        part = flat[start : start + _BLOCK]
        light = np.empty(part.shape, np.float32)
        for channel in range(3):
            light[:, channel] = _decoded(part[:, channel], decode[channel])
        light = light @ mix
        for channel in range(3):
            out[start : start + _BLOCK, channel] = _encoded(light[:, channel], encode[channel])

    _share(work, range(0, len(flat), _BLOCK))
    return out.reshape(image.shape)


def _decoded(values: Array, table: Array) -> Array:
    """Light of one channel: looked up for integers, interpolated for floats."""
    if values.dtype == np.uint8:
        return table[::257].take(values)
    if values.dtype == np.uint16:
        return table.take(values)
    place = np.clip(values, 0, 1).astype(np.float32) * np.float32(_STEPS - 1)
    return _interpolated(place, table)


def _encoded(light: Array, table: Array) -> Array:
    """Value of one channel for its light."""
    return _interpolated(np.sqrt(np.clip(light, 0, 1)) * np.float32(_ROOT_STEPS), table)


def _interpolated(place: Array, table: Array) -> Array:
    """Interpolate a table between its entries."""
    below = place.astype(np.int32)
    np.minimum(below, len(table) - 2, out=below)
    low = table.take(below)
    high = table.take(below + 1)
    return low + (place - below) * (high - low)


def _share(work: Callable[[int], None], starts: range) -> None:
    """Call `work` for every start, on as many threads as the process may use."""
    threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    if len(starts) == 1 or threads == 1:
        for start in starts:
            work(start)
        return
    with ThreadPoolExecutor(min(threads, 8)) as pool:
        list(pool.map(work, starts))
