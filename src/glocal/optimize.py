"""The old name of `glocal.optim`, kept for one release. Import from `glocal.optim` instead."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

from torch import Tensor

from glocal.optim.coarse_to_fine import coarse_to_fine as coarse_to_fine
from glocal.optim.history import History as History
from glocal.optim.lbfgs import Minimum as Minimum
from glocal.optim.lbfgs import lbfgs as _lbfgs
from glocal.optim.objectives import Objective as Objective
from glocal.optim.objectives import WeightedSum as WeightedSum
from glocal.optim.objectives import balance as balance
from glocal.optim.objectives import value_and_gradient as value_and_gradient
from glocal.progress import Progress as Progress


def _callers() -> int:
    """Count the frames up to the one that asked for this module: it may come through `import` or `glocal.optimize`."""
    frame, level = sys._getframe(1), 1
    while frame.f_globals.get("__name__", "").partition(".")[0] in ("glocal", "importlib") and frame.f_back is not None:
        frame = frame.f_back
        level += not frame.f_code.co_filename.startswith("<frozen importlib")  # `warnings` does not count these
    return level


warnings.warn("glocal.optimize is now glocal.optim; the old name goes in 0.3.", DeprecationWarning, _callers())


def lbfgs(
    objective: Objective,
    x: Tensor,
    *,
    iterations: int,
    history: int = 10,
    memory: History | None = None,
    first: float | None = None,
    tolerance: float = 0.0,
    callback: Callable[[int, float, Tensor], bool | None] | None = None,
) -> Minimum:
    """Call `glocal.optim.lbfgs.lbfgs`, whose argument `history` now also takes what was `memory`."""
    return _lbfgs(
        objective,
        x,
        iterations=iterations,
        history=history if memory is None else memory,
        first=first,
        tolerance=tolerance,
        callback=callback,
    )
