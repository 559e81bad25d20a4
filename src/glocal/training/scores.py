"""Scores on test data: a mean with its standard errors, and the PSNR."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


@dataclass(frozen=True)
class Score:
    """A mean over test items and over trainings (seeds), with standard errors.

    Parameters
    ----------
    mean : float
        Over all items and seeds.
    error : float
        Standard error over the items, of their means over the seeds.
    error_seeds : float or None
        Standard error over the seeds, of their means over the items. None for one seed.
    by_seed : tuple of float
        The mean over the items for each seed, rounded to four digits.
    """

    mean: float
    error: float
    error_seeds: float | None = None
    by_seed: tuple[float, ...] = ()


def standard_error(values: ArrayLike) -> float:
    """Return `s / sqrt(m)` for m values with the sample deviation s; 0 for one value.

    Examples
    --------
    >>> standard_error([1.0, 3.0])
    1.0
    """
    found = np.asarray(values, dtype=np.float64)
    return float(found.std(ddof=1) / math.sqrt(len(found))) if len(found) > 1 else 0.0


def summarize(by_seed: Sequence[ArrayLike]) -> Score:
    """Summarise `by_seed[seed][item]`. Items that have no finite value for some seed are left out.

    Examples
    --------
    >>> summarize([[20.0, 22.0], [21.0, 23.0]])
    Score(mean=21.5, error=1.0, error_seeds=0.5, by_seed=(21.0, 22.0))
    """
    table = np.stack([np.asarray(items, dtype=np.float64) for items in by_seed])
    table = table[:, np.isfinite(table).all(0)]
    if table.size == 0:
        return Score(math.nan, math.nan)
    items, seeds = table.mean(0), table.mean(1)
    spread = standard_error(seeds) if len(seeds) > 1 else None
    return Score(float(table.mean()), standard_error(items), spread, tuple(round(float(m), 4) for m in seeds))


def with_gain(by_seed: Mapping[str, Sequence[ArrayLike]]) -> dict[str, Score]:
    """Summarise `by_seed[method][seed][item]`, and add "gain": "nonlocal" minus "local", item by item.

    The error of the gain is that of the differences. It is smaller than the two errors suggest, since both networks see
    the same noise.

    Examples
    --------
    >>> with_gain({"local": [[1.0, 3.0]], "nonlocal": [[2.0, 4.0]]})["gain"]
    Score(mean=1.0, error=0.0, error_seeds=None, by_seed=(1.0,))
    """
    table = dict(by_seed)
    if "local" in table and "nonlocal" in table:
        pairs = zip(table["local"], table["nonlocal"], strict=True)
        table["gain"] = [np.subtract(high, low) for low, high in pairs]
    return {method: summarize(seeds) for method, seeds in table.items()}


def psnr(found: Tensor | np.ndarray[Any, Any], truth: Tensor | np.ndarray[Any, Any]) -> float:
    """Return `10 log10(1 / mean squared difference)` in dB, for signals in [0, 1]; infinite if they are equal.

    Examples
    --------
    >>> round(psnr(torch.full((4, 4), 0.6), torch.full((4, 4), 0.5)), 2)
    20.0
    """
    a, b = (torch.as_tensor(x).double() for x in (found, truth))
    error = float((a - b).square().mean())
    return math.inf if error == 0 else -10 * math.log10(error)
