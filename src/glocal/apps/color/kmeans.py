"""k-means of weighted points: greedy k-means++ starts, then Lloyd's iterations. The same seed gives the same bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]

_STARTS = 2  # the better of two runs is kept
_ROUNDS = 300
_BLOCK = 2048  # points at a time: their distances fit into the cache
_TOLERANCE = 1e-4  # stop when the squared shift of all centres is below this share of the mean variance


def kmeans(points: Points, weights: NDArray[np.float64], *, count: int, seed: int) -> Points:
    """Return `count` centres (count, c) that make `sum_i w_i |x_i - nearest centre|^2` small.

    Parameters
    ----------
    points : (m, c) float64
        More points than centres.
    weights : (m,) float64
        Positive.
    count : int
        The number of centres.
    seed : int
        Decides the two starts.

    Returns
    -------
    (count, c) float64
        Cost: O(m count c) for each of some tens of rounds; memory O(m count).

    Examples
    --------
    >>> kmeans(np.array([[0.0], [1.0], [9.0], [11.0]]), np.ones(4), count=2, seed=0)[:, 0].tolist()
    [10.0, 0.5]
    """
    random = np.random.RandomState(seed)  # its draws are the same in every version of NumPy
    middle = points.mean(0)
    points = points - middle  # small numbers: the squares below lose less to rounding
    runs = [_lloyd(points, weights, _start(points, weights, count, random)) for _ in range(_STARTS)]
    best = min(runs, key=lambda run: run[0])
    return best[1] + middle


def _start(points: Points, weights: NDArray[np.float64], count: int, random: np.random.RandomState) -> Points:
    """Draw centres one by one, far from the earlier ones (k-means++). The best of several candidates is used."""
    trials = 2 + int(np.log(count))
    chosen = [int(random.choice(len(points), p=weights / weights.sum()))]
    nearest = _squared(points, points[chosen])[:, 0]
    for _ in range(1, count):
        cumulated = np.cumsum(weights * nearest)
        places = np.searchsorted(cumulated, random.uniform(size=trials) * (weights * nearest).sum())
        places = np.minimum(places, len(points) - 1)
        candidates = np.minimum(nearest[:, None], _squared(points, points[places]))
        best = int(np.argmin((weights[:, None] * candidates).sum(0)))
        chosen.append(int(places[best]))
        nearest = candidates[:, best]
    return points[chosen]


def _lloyd(points: Points, weights: NDArray[np.float64], centers: Points) -> tuple[float, Points]:
    """Move every centre to the mean of its points until nothing changes. Return the inertia and the centres."""
    limit = _TOLERANCE * float(points.var(0).mean())
    extended = np.concatenate([points, np.ones((len(points), 1))], 1)
    labels = np.full(len(points), -1)
    for _ in range(_ROUNDS):
        before, labels = labels, _nearest(extended, centers)
        if np.array_equal(labels, before):
            break
        moved = _means(points, weights, labels, centers)
        shift = float(((moved - centers) ** 2).sum())
        centers = moved
        if shift <= limit:
            labels = _nearest(extended, centers)
            break
    return float((weights * ((points - centers[labels]) ** 2).sum(1)).sum()), centers


def _nearest(extended: Points, centers: Points) -> NDArray[np.intp]:
    """Return the nearest centre of each point. The rows of `extended` are (x, 1): `|c|^2 - 2 x'c` is one product."""
    matrix = np.concatenate([-2 * centers.T, (centers**2).sum(1)[None]])
    labels = [(extended[top : top + _BLOCK] @ matrix).argmin(1) for top in range(0, len(extended), _BLOCK)]
    return np.concatenate(labels)


def _means(points: Points, weights: NDArray[np.float64], labels: NDArray[np.intp], centers: Points) -> Points:
    """Return the mean of each cluster. An empty cluster gets the point that is farthest from its centre."""
    count = len(centers)
    empty = np.flatnonzero(np.bincount(labels, minlength=count) == 0)
    if len(empty):
        own = ((points - centers[labels]) ** 2).sum(1)
        labels = labels.copy()
        labels[np.argsort(own, kind="stable")[::-1][: len(empty)]] = empty
    mass = np.bincount(labels, weights, count)
    sums = [np.bincount(labels, weights * column, count) for column in points.T]
    return np.stack(sums, 1) / mass[:, None]


def _squared(points: Points, centers: Points) -> Points:
    """Return the squared distances (m, k)."""
    found = np.zeros((len(points), len(centers)))
    for column, center in zip(points.T, centers.T, strict=True):
        found += (column[:, None] - center) ** 2
    return found
