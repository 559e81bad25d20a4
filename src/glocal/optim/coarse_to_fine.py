"""A sequence of problems from coarse to fine, each started from the result of the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from glocal.optim.lbfgs import Minimum
from glocal.optim.objectives import Objective


def coarse_to_fine(
    problems: Iterable[Callable[[Tensor | None], tuple[Objective, Tensor]]],
    solve: Callable[[int, Objective, Tensor], Minimum],
) -> list[Minimum]:
    """Minimise a sequence of problems, each started from the result of the one before.

    Parameters
    ----------
    problems : iterable of callables
        Problem `k` is called with the result of problem `k - 1` (None for the first). It returns its objective and its
        start, for example the result scaled up. It is built only when its turn comes: one level is in memory at a time.
    solve : callable(k, objective, start) -> Minimum
        For example `lambda k, f, x: lbfgs(f, x, iterations=300)`. A minimum with the reason "stopped" ends the run.

    Returns
    -------
    list of Minimum
        One for each problem that was solved.

    Examples
    --------
    >>> import torch
    >>> from glocal.optim.lbfgs import lbfgs
    >>> finer = lambda x: (lambda y: (y - 1).square().sum(), torch.zeros(1) if x is None else x.repeat(2))
    >>> [m.x.tolist() for m in coarse_to_fine([finer, finer], lambda k, f, x: lbfgs(f, x, iterations=9))]
    [[1.0], [1.0, 1.0]]
    """
    found: list[Minimum] = []
    for k, problem in enumerate(problems):
        objective, start = problem(found[-1].x if found else None)
        found.append(solve(k, objective, start))
        if found[-1].reason == "stopped":
            break
    return found
