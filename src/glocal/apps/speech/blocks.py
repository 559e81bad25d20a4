"""Process sound that arrives in pieces, in constant memory: ordered rows, resampling, overlapping blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """The sizes of blocks, in samples.

    Every block is processed together with `context` samples on both sides. The result of a block does not depend on
    samples farther away, so cutting changes only the rounding. Adjacent blocks are still cross-faded over `fade` samples.
    `block` and `context` are multiples of `grid`, on which the model works.
    """

    block: int
    context: int
    fade: int = 320
    grid: int = 1

    @property
    def latency(self) -> int:
        """How many samples at most have come in and not gone out."""
        return self.block + self.fade + self.context

    def with_block(self, samples: float) -> Plan:
        """Return the plan with blocks of about so many samples."""
        return replace(self, block=max(1, round(samples / self.grid)) * self.grid)


class Rows:
    """Rows (m, c) that wait in order."""

    def __init__(self) -> None:
        self.parts: deque[NDArray[Any]] = deque()
        self.count = 0

    def push(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        if len(rows):
            self.parts.append(rows)
            self.count += len(rows)

    def take(self, count: int) -> NDArray[Any]:
        """Remove the first `count` rows and return them; there are so many. `count` is at least 1."""
        taken, size = [], 0
        while size < count:
            taken.append(self.parts.popleft())
            size += len(taken[-1])
        if size > count:
            rest = len(taken[-1]) - (size - count)
            self.parts.appendleft(taken[-1][rest:])
            taken[-1] = taken[-1][:rest]
        self.count -= count
        return np.concatenate(taken)


# Takes samples (n, c) and the range of rows that is wanted; returns those rows.
Process = Callable[[Array, int, int], Array]


class Overlap:
    """Apply `process` block by block to rows (m, c) that arrive in pieces of any size. The number of rows is kept.

    At most `plan.latency` rows are buffered. Memory: O(block + 2 context + fade) rows and that of `process`.
    """

    def __init__(self, process: Process, plan: Plan) -> None:
        self.process, self.plan = process, plan
        self.held: list[Array] = []  # the rows from `first` on
        self.first = self.ready = self.start = 0
        self.tail: Array | None = None

    def push(self, rows: Array) -> list[Array]:
        """Take the next rows and return the blocks that became ready."""
        if len(rows):
            self.held.append(rows)
            self.ready += len(rows)
        done = []
        while self.ready > self.start + self.plan.latency:
            done.append(self._finished(self.start + self.plan.block))
        return done

    def finish(self) -> list[Array]:
        """Return the remaining rows."""
        return [self._finished(self.ready)] if self.ready > self.start else []

    def _finished(self, end: int) -> Array:
        """Return the rows from `start` to `end`, faded in from the last block."""
        plan, start, first = self.plan, self.start, self.first
        rows = np.concatenate(self.held)
        stop = min(end + plan.fade, self.ready)
        left = max(0, start - plan.context)
        right = min(self.ready, stop + plan.context)
        out = self.process(rows[left - first : right - first], start - left, stop - left)
        if self.tail is not None:
            rise = ((np.arange(len(self.tail), dtype=np.float32) + 0.5) / max(1, len(self.tail)))[:, None]
            out = out.copy()
            out[: len(self.tail)] = (1 - rise) * self.tail + rise * out[: len(self.tail)]
        self.tail = out[end - start :]
        keep = max(0, end - plan.context)
        self.held, self.first, self.start = [rows[keep - first :]], keep, end
        return out[: end - start]


class Resampler:
    """Changes the sampling rate of rows (m, c) that arrive in pieces; what comes out is not shifted in time."""

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        self.stream: Any = None

    def push(self, rows: Array) -> Array:
        """Take the next rows and return those that are ready."""
        if self.source == self.target:
            return rows
        if self.stream is None:
            import soxr

            self.stream = soxr.ResampleStream(self.source, self.target, rows.shape[1], dtype="float32")
            self.none = np.zeros((0, rows.shape[1]), np.float32)
        return np.asarray(self.stream.resample_chunk(np.ascontiguousarray(rows, dtype=np.float32)))

    def finish(self) -> list[Array]:
        """Return the remaining rows."""
        return [] if self.stream is None else [np.asarray(self.stream.resample_chunk(self.none, last=True))]
