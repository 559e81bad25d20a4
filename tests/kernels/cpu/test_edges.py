"""The loops over edges in vectors equal plain loops, and touch nothing beyond a row."""

import numpy as np
import pytest
from numba import njit

from glocal.kernels.cpu.edges import edge_dots, edge_gradients, gather_rows, row_vectors, scatter_rows
from glocal.kernels.cpu.tiles import MAX_VECTORS, lanes

COUNT, VERTICES, GUARD = 23, 9, 16


@njit
def gathered(x, neighbors, weights, step, c, out):
    vectors = row_vectors(c, x.itemsize)
    count = neighbors.size
    gather_rows(x, vectors, x.ctypes.data, neighbors.ctypes.data, weights.ctypes.data, step, c, out.ctypes.data, count)


@njit
def scattered(q, neighbors, weights, step, c, out):
    vectors = row_vectors(c, q.itemsize)
    count = neighbors.size
    scatter_rows(q, vectors, q.ctypes.data, neighbors.ctypes.data, weights.ctypes.data, step, c, out.ctypes.data, count)


@njit
def multiplied(x, neighbors, q, c, out):
    vectors = row_vectors(c, x.itemsize)
    edge_dots(x, vectors, x.ctypes.data, neighbors.ctypes.data, q.ctypes.data, c, out.ctypes.data, neighbors.size)


@njit
def differentiated(x, q, stride, neighbors, weights, step, c, patches, signal, dots, dotted, d):
    edge_gradients(
        x, row_vectors(c, x.itemsize), x.ctypes.data, q.ctypes.data, stride, neighbors.ctypes.data,
        weights.ctypes.data, step, c, patches.ctypes.data, signal.ctypes.data, dots.ctypes.data, dotted,
        neighbors.size // d, d,
    )  # fmt: skip


def sizes(dtype):
    width = lanes(np.dtype(dtype).itemsize)
    return [width, width + 1, 2 * width - 1, 2 * width, 3 * width + 2, MAX_VECTORS * width]


CASES = [(dtype, c) for dtype in (np.float32, np.float64) for c in sizes(dtype)]


@pytest.mark.parametrize(("dtype", "c"), CASES, ids=str)
@pytest.mark.parametrize("step", [0, 1])
def test_equal_plain_loops(dtype, c, step):
    make = np.random.default_rng(c)
    x, q = (make.standard_normal((rows, c)).astype(dtype) for rows in (VERTICES, COUNT))
    neighbors = make.integers(0, VERTICES, COUNT).astype(np.int32)
    neighbors[3:6] = 4  # one target several times in a row
    weights = make.random(COUNT).astype(dtype)
    scales = (weights if step else np.repeat(weights[:1], COUNT))[:, None]
    guard = np.full(GUARD, 7, dtype)

    patches = np.concatenate([np.zeros(COUNT * c, dtype), guard])
    gathered(x.ravel(), neighbors, weights, step, c, patches)
    np.testing.assert_array_equal(patches[: COUNT * c].reshape(COUNT, c), scales * x[neighbors])
    np.testing.assert_array_equal(patches[COUNT * c :], guard)

    sums = np.concatenate([x.ravel(), guard])
    scattered(q.ravel(), neighbors, weights, step, c, sums)
    expected = x.astype(np.float64)
    np.add.at(expected, neighbors, scales.astype(np.float64) * q)
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(sums[: VERTICES * c].reshape(VERTICES, c), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(sums[VERTICES * c :], guard)

    products = np.concatenate([np.zeros(COUNT, dtype), guard])
    multiplied(x.ravel(), neighbors, q.ravel(), c, products)
    expected = (x[neighbors].astype(np.float64) * q).sum(1)
    np.testing.assert_allclose(products[:COUNT], expected, rtol=tolerance, atol=10 * tolerance)
    np.testing.assert_array_equal(products[COUNT:], guard)


@pytest.mark.parametrize(("dtype", "c"), CASES, ids=str)
@pytest.mark.parametrize("dotted", [0, 1])
@pytest.mark.parametrize("step", [0, 1])
def test_one_pass_equals_three(dtype, c, step, dotted):
    make, vertices, d, guard = np.random.default_rng(c), 7, 3, np.full(GUARD, 7, dtype)
    x, count, stride = make.standard_normal((VERTICES, c)).astype(dtype), vertices * d, d * c + 5
    q = make.standard_normal((vertices, stride)).astype(dtype)
    neighbors = make.integers(0, VERTICES, count).astype(np.int32)
    neighbors[4:9] = 4  # one target several times in a row
    weights = make.random(count).astype(dtype)
    whole = q[:, : d * c].reshape(count, c).copy().ravel()
    one, three = (
        [np.concatenate([start, guard]) for start in (np.zeros(count * c, dtype), x.ravel(), np.full(count, 3, dtype))]
        for _ in range(2)
    )
    differentiated(x.ravel(), q.ravel(), stride, neighbors, weights, step, c, *one, dotted, d)
    gathered(x.ravel(), neighbors, weights, step, c, three[0])
    scattered(whole, neighbors, weights, step, c, three[1])
    if dotted:
        multiplied(x.ravel(), neighbors, whole, c, three[2])
    for found, expected in zip(one, three):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_no_number_stays_in_its_row(value):
    x, neighbors = np.zeros((2, 10), np.float32), np.array([0, 1], np.int32)
    x[0] = value
    products = np.zeros(2, np.float32)
    multiplied(x.ravel(), neighbors, np.ones(20, np.float32), 10, products)
    assert not np.isfinite(products[0])
    assert products[1] == 0
    x[0] = np.zeros(10)
    x[0, 1] = value  # only in a lane that the last vector has once more
    multiplied(x.ravel(), neighbors, np.ones(20, np.float32), 10, products)
    assert not np.isfinite(products[0])


def test_rows_too_short_or_too_long_are_left_to_plain_loops():
    for dtype in (np.float32, np.float64):
        size = np.dtype(dtype).itemsize
        assert row_vectors(lanes(size) - 1, size) == 0
        assert row_vectors(MAX_VECTORS * lanes(size) + 1, size) == 0
        assert row_vectors(lanes(size) + 1, size) == 2
