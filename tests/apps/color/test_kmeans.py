"""k-means: the palettes of 0.1, optimality of each step, empty clusters."""

import numpy as np
import pytest

from glocal.apps.color.kmeans import kmeans

# Centres and inertia of scikit-learn 1.9 (KMeans, 8 clusters, n_init=2, random_state=3), which 0.1 used, on these points.
CENTERS = [
    [-6.313749734, -31.570695771],
    [26.089086291, -22.537082633],
    [-14.161918364, -8.230123682],
    [-40.519006936, -7.727928418],
    [6.145695689, -4.340125269],
    [26.57291935, 7.615338822],
    [-18.068718826, 17.029724008],
    [4.623879177, 27.873398368],
]
INERTIA = 31390.741736686778


def cloud():
    random = np.random.RandomState(5)
    return random.normal(size=(400, 2)) * 20, random.uniform(0.1, 1, 400)


def inertia(points, weights, centers):
    return float((((points[:, None] - centers) ** 2).sum(2).min(1) * weights).sum())


def test_the_centres_of_version_0_1():
    points, weights = cloud()
    found = kmeans(points, weights, count=8, seed=3)
    np.testing.assert_allclose(found[np.lexsort(found.T)], CENTERS, atol=1e-8)
    assert inertia(points, weights, found) == pytest.approx(INERTIA, rel=1e-12)


def test_every_centre_is_the_weighted_mean_of_its_points():
    points, weights = cloud()
    found = kmeans(points, weights, count=5, seed=0)
    nearest = ((points[:, None] - found) ** 2).sum(2).argmin(1)
    for k, center in enumerate(found):
        own = nearest == k
        np.testing.assert_allclose(center, np.average(points[own], axis=0, weights=weights[own]), atol=0.3)


def test_the_seed_decides_and_repeats_to_the_bit():
    points, weights = cloud()
    assert np.array_equal(kmeans(points, weights, count=8, seed=1), kmeans(points, weights, count=8, seed=1))
    assert not np.array_equal(kmeans(points, weights, count=8, seed=1), kmeans(points, weights, count=8, seed=2))


def test_fewer_places_than_centres_leave_none_undefined():
    points = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 5, axis=0)
    found = kmeans(points, np.ones(15), count=6, seed=0)
    assert np.isfinite(found).all()
    assert inertia(points, np.ones(15), found) == 0
