"""Random numbers of a training that can be stopped and resumed.

Everything random in a step follows from `(seed, stream, step)`, never from what was drawn before. So a run that continues
from a checkpoint sees the same examples and the same noise as one that was never stopped.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """Random examples and noise that depend on `(seed, stream, step)` alone, the same on every device.

    >>> Draws(0, "noise").normal(3, (2,)).equal(Draws(0, "noise").normal(3, (2,)))
    True
    >>> sorted(Draws(0, "order").example(step, 4) for step in range(4, 8))
    [0, 1, 2, 3]
    """

    seed: int
    stream: str

    def generator(self, step: int) -> torch.Generator:
        """Return a generator for one step."""
        key = np.random.SeedSequence([self.seed, zlib.crc32(self.stream.encode()), step])
        return torch.Generator().manual_seed(int(key.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def normal(self, step: int, shape: tuple[int, ...]) -> Tensor:
        """Return standard normal float32 numbers for one step, on the CPU."""
        return torch.randn(shape, generator=self.generator(step))

    def example(self, step: int, count: int) -> int:
        """Which of `count` examples a step uses: every epoch is a new permutation."""
        return _permutation(self, step // count, count)[step % count]


@lru_cache(maxsize=8)
def _permutation(draws: Draws, epoch: int, count: int) -> list[int]:
    shuffled: list[int] = torch.randperm(count, generator=draws.generator(-1 - epoch & 0xFFFFFFFF)).tolist()
    return shuffled
