"""Sound of any length in constant memory: overlapping blocks, each seen with its surroundings, cross-faded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """How a signal is cut, in samples.

    Every block is processed together with `context` samples on both sides; the result of a block depends on nothing
    farther away, so cutting changes nothing but rounding. Neighbouring blocks are cross-faded over `fade` samples all
    the same. `block` and `context` are multiples of the grid on which the model works.
    """

    block: int
    context: int
    fade: int = 320


# Takes samples (n, c) and the range of rows that is wanted; returns those rows.
Process = Callable[[Array, int, int], Array]


def overlapped(chunks: Iterable[Array], process: Process, plan: Plan) -> Iterator[Array]:
    """Apply `process` to a stream of chunks (m, c) of any sizes, block by block; yields as many rows as came in.

    Memory: O(block + 2 context + fade) rows beside what `process` takes.
    """
    held: list[Array] = []  # the rows from `first` on
    first = ready = start = 0
    tail: Array | None = None

    def finished(end: int) -> Array:
        """Return the rows from `start` to `end` and half a fade's worth more, faded in from the last block."""
        nonlocal tail, held, first
        rows = np.concatenate(held)
        stop = min(end + plan.fade, ready)
        left = max(0, start - plan.context)
        right = min(ready, stop + plan.context)
        out = process(rows[left - first : right - first], start - left, stop - left)
        if tail is not None:
            rise = ((np.arange(len(tail), dtype=np.float32) + 0.5) / max(1, len(tail)))[:, None]
            out = out.copy()
            out[: len(tail)] = (1 - rise) * tail + rise * out[: len(tail)]
        tail = out[end - start :]
        keep = max(0, end - plan.context)
        held, first = [rows[keep - first :]], keep
        return out[: end - start]

    for chunk in chunks:
        held.append(chunk)
        ready += len(chunk)
        while ready >= start + 2 * plan.block + plan.fade + plan.context:  # so that the last block is not a short one
            yield finished(start + plan.block)
            start += plan.block
    if ready > start:
        yield finished(ready)


def resampled(chunks: Iterable[Array], source: int, target: int) -> Iterator[Array]:
    """Change the sampling rate of a stream of chunks (m, c), without delay. Memory: O(chunk)."""
    if source == target:
        yield from chunks
        return
    import soxr

    stream = None
    for chunk in chunks:
        if stream is None:
            stream = soxr.ResampleStream(source, target, chunk.shape[1], dtype="float32")
        yield np.asarray(stream.resample_chunk(np.ascontiguousarray(chunk, dtype=np.float32)))
    if stream is not None:
        yield np.asarray(stream.resample_chunk(np.zeros((0, chunk.shape[1]), np.float32), last=True))
