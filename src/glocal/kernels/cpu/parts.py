"""What the launches of the CPU kernels share: tensors as flat arrays, work cut into parts, sums of parts.

The number of parts depends on the sizes, never on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.kernels.cpu import convolve
from glocal.kernels.cpu.threads import share
from glocal.kernels.known import ChangedError, known

PARTS = 16  # enough for 16 threads, few enough to add up their copies
LEAST = 16  # blocks of a part: what a thread does must take longer than waking it
COPIES, SMALL = 4, 2**22  # copies of a gradient may hold so many times its numbers, or so many numbers
_ALONE = 2**18  # numbers that one thread adds up faster than it wakes another
_NUMBERS = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


def flat(tensor: Tensor) -> Any:
    """View a tensor as a flat array, or copy it if its numbers do not lie in order."""
    return tensor.detach().numpy().ravel()


def flat_or_none(tensor: Tensor | None, like: Tensor) -> Any:
    """View a tensor as a flat array; None is an empty array of the numbers of `like`."""
    return np.empty(0, _NUMBERS[like.dtype]) if tensor is None else flat(tensor)


def empty(like: Tensor, *shape: int) -> Tensor:
    """Make a tensor on memory by NumPy, which asks the system for large pages: fresh ones come several times faster."""
    return torch.from_numpy(np.empty(shape, _NUMBERS[like.dtype]))


def cut(count: int, parts: int = PARTS, least: int = 1) -> list[int]:
    """Cut 0 ... count into at most `parts` parts of nearly equal length, each of `least` or more where there are two.

    >>> cut(10, 3)
    [0, 3, 6, 10]
    """
    parts = max(1, min(parts, count // least))
    return [count * part // parts for part in range(parts + 1)]


def total(parts: Any) -> Any:
    """Add the parts in their order. Infinity is a result like any other: a line search may step that far."""
    if len(parts) == 1:
        return parts[0]
    with np.errstate(over="ignore", invalid="ignore"):
        return parts.sum(axis=0)


def spans(neighbors: Tensor, sources: int, c: int, block: int, cuts: list[int]) -> tuple[Any, Any]:
    """Find for each part of the vertices its first target, and where its copy of the targets' rows starts."""
    n, d = neighbors.shape
    columns, pieces = flat(neighbors), len(cuts) - 1

    def find() -> tuple[Any, Any]:
        lows, highs = np.zeros(pieces, np.int64), np.zeros(pieces, np.int64)

        def work(part: int) -> None:
            lows[part], highs[part] = convolve.span(columns, cuts[part] * block * d, min(n, cuts[part + 1] * block) * d)

        share(pieces, work)
        if lows.min() < 0 or highs.max() >= sources:
            raise ChangedError
        return lows, np.append(0, (highs + 1 - lows).cumsum())

    lows, ends = known(neighbors, ("spans", block, pieces), find)
    return lows, ends * c


def promised(neighbors: Any, low: int, sources: int, first: int, last: int, n: int, d: int) -> None:
    """Raise ChangedError unless the edges of a part point to the `sources` from `low` on.

    A part is the vertices `first` to `last - 1`, counted over batches of n.
    """
    begin = first % n
    end = begin + last - first
    for i0, i1 in ((begin, min(end, n)), (0, min(end - n, n))):
        if i0 < i1 and convolve.outside(neighbors, i0 * d, i1 * d, low, sources):
            raise ChangedError


def add_spans(parts: Any, lows: Any, offsets: Any, out: Any, c: int, *, planes: bool = False) -> None:
    """Add up the copies of all parts, (b, offsets[-1]), into out (b, n c); `planes`: the copies have channels first."""
    cuts = cut(out.shape[1] // c, PARTS, 4096)

    def work(part: int) -> None:
        batch, piece = divmod(part, len(cuts) - 1)
        convolve.add_spans(parts[batch], offsets, lows, cuts[piece], cuts[piece + 1], c, int(planes), out[batch])

    if out.size < _ALONE:
        for part in range(len(out) * (len(cuts) - 1)):
            work(part)
    else:
        share(len(out) * (len(cuts) - 1), work)
