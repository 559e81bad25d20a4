"""The coarse distances at 32 shifts equal a plain loop, and are never more than the exact ones."""

import numba
import numpy as np
import pytest

from glocal.kernels.cpu.reuse import room
from glocal.kernels.cpu.simd import constant
from glocal.kernels.cpu.simd_shifts import SHIFTS, any_set, shift_row

RNG = np.random.default_rng(0)


@numba.njit
def scan(flat, start, shift, row, plane, rows, columns, cap, cells, sums, limits, masks, channels, ph, pw):
    height, size = len(ph), columns * SHIFTS
    out = np.zeros((rows, columns), np.uint32)
    for y in range(rows + height - 1):
        above, here, t = (y + height - 1) % height * size, y % height * size, start + (y - height + 1) * row
        at = start + y * row
        shift_row(flat, at, shift, plane, columns, cap, cells, sums, above, here, limits, t, masks, channels, ph, pw)
        if y >= height - 1:
            out[y - height + 1] = masks[:columns]
    return out


def bound(flat, t, other, row, plane, cap, c, patch):
    """The plain loop: squares of differences cut to 16 bits, rounded down, at most `cap` each."""
    total = 0
    for channel in range(c):
        for v in range(patch[0]):
            for u in range(patch[1]):
                step = channel * plane + v * row + u
                e = min(max(int(flat[t + step]) - int(flat[other + step]), -32768), 32767)
                total += min(e * e >> 16, cap)
    return total


@pytest.mark.parametrize(("c", "patch"), [(1, (7, 7)), (1, (1, 25)), (3, (3, 5)), (2, (1, 1))])
@pytest.mark.parametrize("size", [32767, 4000])
def test_masks_are_those_of_a_plain_loop(c, patch, size):
    row, plane, rows, columns, start, shift = 60, 1500, 5, 19, 100, 77
    flat = RNG.integers(-size, size, c * plane + 600).astype(np.int16)
    cap = 65535 // (c * patch[0] * patch[1])
    cells, sums = room((columns + patch[1]) * SHIFTS, np.uint16), room(patch[0] * columns * SHIFTS, np.uint16)
    sums[:] = 0
    d2 = np.array([
        [[bound(flat, t, t + shift + l, row, plane, cap, c, patch) for l in range(SHIFTS)]
         for t in range(start + y * row, start + y * row + columns)] for y in range(rows)
    ])  # fmt: skip
    assert d2.max() < 2**16
    limits = RNG.permutation(np.resize(np.quantile(d2, [0.0, 0.1, 0.4]), 900)).astype(np.uint16)
    sizes = constant(c), constant(patch[0]), constant(patch[1])
    masks = np.zeros(columns + 16, np.uint32)
    found = scan(flat, start, shift, row, plane, rows, columns, cap, cells, sums, limits, masks, *sizes)
    for y in range(rows):
        for x in range(columns):
            t = start + y * row + x
            near = d2[y, x] <= np.maximum(limits[t], limits[t + shift : t + shift + SHIFTS])
            assert found[y, x] == sum(int(flag) << lane for lane, flag in enumerate(near))
    assert np.count_nonzero(found) > 0


def test_any_set():
    @numba.njit
    def run(masks, x):
        return any_set(masks, x)

    masks = np.zeros(40, np.uint32)
    masks[[3, 5, 20]] = 1, 2**31, 7
    assert run(masks, 0) == 1 << 3 | 1 << 5
    assert run(masks, 5) == 1 | 1 << 15
    assert run(masks, 22) == 0
