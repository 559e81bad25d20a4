"""The Haar baseline: perfect reconstruction, orthonormality, shifts, odd lengths, and its tuning."""

import numpy as np
import pytest

from glocal.errors import ArgumentError
from glocal.training.haar import haar_denoise, tune

PLAIN = [0.83743347782, 0.83743347782, 1.382443398262, 1.382443398262]
SHIFTS = [1.355351415061, 1.41125761253, 1.612177243063, 1.660967481511]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(
    ("shape", "stationary"), [((16, 24), False), ((16, 24), True), ((16,), True), ((16,), False), ((1,), False)]
)
def test_it_is_the_identity_without_a_threshold(shape, stationary):
    y = noise(*shape)
    np.testing.assert_allclose(haar_denoise(y, threshold=0.0, levels=2, stationary=stationary), y, atol=1e-12)


@pytest.mark.parametrize("stationary", [False, True])
def test_a_high_threshold_leaves_the_mean_of_each_block(stationary):
    y = noise(8, 8)
    smooth = haar_denoise(y, threshold=1e9, levels=3, stationary=stationary)
    np.testing.assert_allclose(smooth, np.full((8, 8), y.mean()), atol=1e-12)
    assert haar_denoise(y, threshold=1.0, levels=2, stationary=stationary).var() < 0.5 * y.var()


def test_details_are_shrunk_by_the_threshold():
    # One level of (a, b): the detail (a - b) / sqrt(2) loses the threshold, the sum stays.
    found = haar_denoise(np.array([5.0, 1.0]), threshold=2**0.5, levels=1)
    np.testing.assert_allclose(found, [4.0, 2.0])


def test_an_odd_signal_repeats_its_last_value():
    y = noise(7)
    longer = haar_denoise(np.append(y, y[-1]), threshold=0.5, levels=1)
    np.testing.assert_allclose(haar_denoise(y, threshold=0.5, levels=1), longer[:-1])
    assert haar_denoise(y.astype(np.float32), threshold=0.5, levels=9).dtype == np.float32


def test_the_stationary_transform_is_the_mean_over_all_shifts():
    y = noise(8, 8)
    shifted = [
        np.roll(haar_denoise(np.roll(y, (a, b), (0, 1)), threshold=0.7, levels=2), (-a, -b), (0, 1))
        for a in range(4)
        for b in range(4)
    ]
    found = haar_denoise(y, threshold=0.7, levels=2, stationary=True)
    np.testing.assert_allclose(found, np.mean(shifted, 0), atol=1e-12)


def test_values_of_an_independent_library():
    """From PyWavelets 1.9: wavedec2 and swt2 with mode "periodization", soft thresholds, and back."""
    y = np.arange(16.0).reshape(4, 4) ** 1.5 / 10
    plain = haar_denoise(y, threshold=0.8, levels=2)
    shifts = haar_denoise(y, threshold=0.8, levels=2, stationary=True)
    np.testing.assert_allclose(plain[1], PLAIN, atol=1e-9)
    np.testing.assert_allclose(shifts[1], SHIFTS, atol=1e-9)


def test_sides_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match=r"the sides \(6, 8\) must be multiples of 2\^levels \(=4\)"):
        haar_denoise(np.zeros((6, 8)), threshold=1.0, levels=2)


def test_tuning_finds_a_threshold_near_the_best():
    truth = np.kron(np.random.default_rng(2).random((4, 4)), np.ones((8, 8)))
    y = truth + np.random.default_rng(3).normal(0, 0.1, truth.shape)
    choice = tune([truth], [y], sigma=0.1, factors=[0.1 * k for k in range(5, 36)], levels=(1, 2, 3, 4))
    best = max(
        -10 * np.log10(np.mean((haar_denoise(y, threshold=t, levels=3) - truth) ** 2))
        for t in np.linspace(0.05, 0.35, 61)
    )
    assert choice.validation >= best - 0.05
    assert choice.levels >= 2


def test_tuning_on_a_signal():
    clean = np.repeat(np.array([0.5, -0.5, 0.25, 0.0], np.float32), 256)
    noisy = clean + 0.1 * noise(1024).astype(np.float32)
    threshold = tune([clean], [noisy], sigma=0.1, factors=[0.05 * k for k in range(1, 61)], levels=[5]).threshold
    assert 0.1 < threshold < 0.5
    better = haar_denoise(noisy, threshold=threshold, levels=5)
    assert np.square(better - clean).sum() < 0.3 * np.square(noisy - clean).sum()
