"""What a long optimisation reports to its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Progress:
    """The state of a run, reported a few times a second. `image` is the current result, not a copy.

    `snapshot()`, if it is there, returns what the run needs to continue from here. Call it before the callback returns.
    """

    level: int
    levels: int
    iteration: int
    iterations: int
    loss: float
    seconds: float
    seconds_left: float
    image: Tensor | None = None
    snapshot: Callable[[], Any] | None = None
