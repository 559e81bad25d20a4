"""The register tiles equal plain loops, for every compiled shape, and write nothing beyond their rows."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from glocal.kernels.cpu import tiles

TYPES = [np.float32, np.float64]


@njit
def _dot(x, outputs, vectors, rows, scales, f, taps, stride, last, out, count):
    tiles.dot_rows(
        x, outputs, vectors, x.ctypes.data, rows.ctypes.data, scales.ctypes.data, f.ctypes.data, taps.ctypes.data,
        stride, last, out.ctypes.data, count,
    )  # fmt: skip


@njit
def _sum(x, vectors, rows, scales, last, out, count):
    tiles.sum_rows(
        x, vectors, x.ctypes.data, rows.ctypes.data, scales.ctypes.data, last, out.ctypes.data, count
    )  # fmt: skip


def plain_product(a, b, c, add):
    """The definition: one entry at a time."""
    out = c.copy() if add else np.zeros_like(c)
    for r in range(a.shape[0]):
        for k in range(a.shape[1]):
            out[r] += a[r, k] * b[k]
    return out


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("vectors", range(1, tiles.MAX_VECTORS + 1))
@pytest.mark.parametrize("add", [0, 1])
def test_product(dtype, vectors, add):
    make = np.random.default_rng(vectors)
    height, width = tiles.ROWS[vectors - 1], vectors * tiles.lanes(np.dtype(dtype).itemsize, tiles.TILE_BYTES)
    rows, count = 2 * height, 7
    a, b = make.random((rows, count)).astype(dtype), make.random((count, width)).astype(dtype)
    c = make.random((rows + 1, width)).astype(dtype)
    before, expected = c.copy(), plain_product(a, b, c[:rows], add)
    for left, ar, ak in ((a, count, 1), (np.ascontiguousarray(a.T), 1, rows)):  # rows, and columns as rows
        c[:] = before
        place = c.ctypes.data
        tiles.product(
            a.reshape(-1), rows, vectors, left.ctypes.data, ar, ak, b.ctypes.data, width, place, width, count, add
        )
        np.testing.assert_allclose(c[:rows], expected, rtol=1e-5)
        assert np.array_equal(c[rows], before[rows])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("vectors", range(1, tiles.MAX_VECTORS + 1))
@pytest.mark.parametrize("outputs", range(1, tiles.MAX_OUTPUTS + 1))
def test_dot_rows(dtype, vectors, outputs):
    make = np.random.default_rng(vectors)
    size = tiles.lanes(np.dtype(dtype).itemsize)
    width, count, columns = vectors * size, 5, vectors * size - (vectors > 1)  # the last vector overlaps by one
    x, scales = make.random((9, columns)).astype(dtype), make.random(count).astype(dtype)
    filters = make.random((4, outputs, columns)).astype(dtype)
    packed = np.zeros((4, outputs, width), dtype)
    packed[..., : width - size] = filters[..., : width - size]
    packed[..., width - (columns - (width - size)) :] = filters[..., width - size :]
    chosen, taps = make.integers(0, 9, count), make.integers(0, 4, count)
    out = np.arange(outputs + 1).astype(dtype)
    expected = out.copy()
    for t in range(count):
        for o in range(outputs):
            expected[o] += scales[t] * (x[chosen[t]] * filters[taps[t], o]).sum()
    offsets, places = chosen * columns, taps * outputs * width
    _dot(
        x.reshape(-1), outputs, vectors, offsets, scales, packed.reshape(-1), places, width, columns - size, out, count
    )
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("vectors", range(1, tiles.MAX_VECTORS + 1))
def test_sum_rows(dtype, vectors):
    make = np.random.default_rng(vectors)
    size = tiles.lanes(np.dtype(dtype).itemsize)
    columns, count = vectors * size - (vectors > 1), 6
    x, scales = make.random((9, columns)).astype(dtype), make.random(count).astype(dtype)
    chosen, out = make.integers(0, 9, count), make.random(columns + 1).astype(dtype)
    expected = out.copy()
    for t in range(count):
        expected[:columns] += scales[t] * x[chosen[t]]
    _sum(x.reshape(-1), vectors, chosen * columns, scales, columns - size, out, count)
    np.testing.assert_allclose(out, expected, rtol=1e-5)
