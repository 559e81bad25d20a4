"""Each vector operation equals a plain loop, to the bit."""

import numba
import numpy as np
import pytest
import torch

from glocal.kernels import reference_search
from glocal.kernels.cpu import simd
from glocal.kernels.cpu.simd import constant

RNG = np.random.default_rng(0)


def window(values, size):
    """The definition's sum of one window, in the arithmetic of `values`."""
    return reference_search.window_sum(torch.from_numpy(values), size, 0).numpy()


def patch_distance(planes, a, b, patch):
    """Squared distance of the patches with top left corners a and b."""
    ph, pw = patch
    first, second = (planes[:, y : y + ph, x : x + pw] for y, x in (a, b))
    squares = (first[0] - second[0]) ** 2
    for one, two in zip(first[1:], second[1:]):
        squares = squares + (one - two) ** 2
    columns = np.array([window(np.ascontiguousarray(squares[:, u]), ph)[0] for u in range(pw)])
    return window(columns, pw)[0]


@pytest.mark.parametrize(("c", "patch"), [(1, (7, 7)), (3, (3, 5)), (2, (1, 1))])
def test_patch_distances(c, patch):
    rows, (h, w) = 6, (18, 70)
    planes = RNG.random((c, h, w)).astype(np.float32)
    flat, strips, points = planes.reshape(-1), np.zeros(rows * 32, np.float32), np.zeros(16, np.float32)
    a, b = (2, 1), (5, 30)
    offsets = a[0] * w + a[1], b[0] * w + b[1]

    @numba.njit
    def run(flat, i, j, strips, points, channels, ph, pw, inputs, vectors):
        simd.strip_distances(flat, i, flat, j, w, h * w, rows, strips, channels, ph, pw, inputs, vectors)
        simd.point_distances(flat, i, j, w, h * w, points, channels, ph, pw)
        return simd.pair_distance(flat, i, w, h * w, flat, j, w, h * w, channels, ph, pw)

    sizes = constant(c), constant(patch[0]), constant(patch[1]), constant(2), constant(2)
    pair = run(flat, *offsets, strips, points, *sizes)
    assert pair == patch_distance(planes, a, b, patch)
    for lane in range(16):
        assert points[lane] == patch_distance(planes, a, (b[0], b[1] + lane), patch)
    for r in range(rows):
        for lane in range(32 - patch[1] + 1):
            ends = (a[0] + r, a[1] + lane), (b[0] + r, b[1] + lane)
            assert strips[r * 32 + lane] == patch_distance(planes, *ends, patch)


def test_sums_of_floats():
    source, out = RNG.random(100).astype(np.float32), np.zeros(64, np.float32)
    flat, sums = RNG.random(600).astype(np.float32), np.zeros(4 * 20, np.float32)

    @numba.njit
    def run(source, out, flat, sums, channels, ph, pw, vectors):
        simd.row_sums(source, 3, out, pw, vectors)
        simd.column_sums(flat, 10, 25, 40, 200, 4, sums, 2, 20, channels, ph)

    run(source, out, flat, sums, constant(2), constant(5), constant(11), constant(4))
    assert np.array_equal(out, window(source, 11)[3:67])
    for r in range(4):
        for lane in range(16):
            at = lane + 40 * (r + np.arange(5))
            squares = (flat[10 + at] - flat[25 + at]) ** 2 + (flat[210 + at] - flat[225 + at]) ** 2
            assert sums[2 + 20 * r + lane] == window(squares, 5)[0]


def bits(flags):
    return sum(int(flag) << lane for lane, flag in enumerate(flags))


def test_masks():
    d2, worst = RNG.integers(0, 5, (2, 80)).astype(np.float32)
    last = RNG.integers(0, 80, 80).astype(np.int32)
    term = np.float32(1.0)

    @numba.njit
    def run(d2, worst, last, term, three):
        return (
            simd.at_most(d2, 1, worst, 2, three),
            simd.at_most_with(d2, 1, term, worst, 2, three),
            simd.comes_before(d2, 1, term, 30, worst, last, 2, three),
        )

    floats, with_term, before = run(d2, worst, last, term, constant(3))
    a, b = d2[1:49], worst[2:50]
    assert floats == bits(a <= b)
    assert with_term == bits(a + term <= b)
    assert before == bits((a + term < b) | ((a + term == b) & (30 + np.arange(48) < last[2:50])))


def test_bound_mask():
    projections, terms = RNG.integers(0, 4, 120).astype(np.float32), np.arange(40, dtype=np.float32)

    @numba.njit
    def run(projections, terms, channels):
        return simd.bound_mask(projections, 3, 11, 50, terms, 2, np.float32(9.0), channels)

    bound = (projections[3] - projections[11:27]) ** 2 + (projections[53] - projections[61:77]) ** 2 + terms[2:18]
    found = run(projections, terms, constant(2))
    assert found == bits(bound <= 9)
    assert 0 < found < 2**16 - 1


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_insert_key(groups):
    size = 8 * groups
    keys = np.concatenate([np.full(8, -7), np.sort(RNG.integers(0, 2**62, size)), np.full(8, -7)])

    @numba.njit
    def run(keys, key, groups):
        simd.insert_key(keys, 8, size, key, groups)

    for key in [*RNG.integers(0, 2**62, 50), 0, 2**62, keys[10]]:
        expected = np.sort(np.append(keys[8 : 8 + size], key))[:size]
        again = keys.copy()
        run(keys, key, constant(groups))
        run(again, key, constant(0))
        assert np.array_equal(keys, again)
        assert np.array_equal(keys[8 : 8 + size], expected)
        assert (keys[:8] == -7).all()
        assert (keys[8 + size :] == -7).all()


def test_bits():
    @numba.njit
    def run(x, mask):
        return simd.float_bits(x), simd.bits_float(simd.float_bits(x)), simd.lowest_bit(mask)

    for x in np.float32([0, 1e-40, 0.7, 3e38, np.inf]):
        assert run(x, 8)[:2] == (int(x.view(np.int32)), x)
    assert [run(np.float32(0), 1 << i)[2] for i in range(63)] == list(range(63))
