"""Exact optimal transport between two small sets: the network simplex method on a complete bipartite graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glocal.kernels.cpu.compiled import njit

Array = NDArray[np.float64]
Tree = NDArray[np.int64]


@njit(cache=True, nogil=True)
def balanced_plan(cost: Array, rows: Array, columns: Array) -> Array:
    """Solve `min <C, P>` subject to `P >= 0`, `P 1 = rows`, `1' P = columns`.

    The plan is a spanning tree of rows `0..n-1`, columns `n..n+k-1` and a root, which starts with all arcs at a high
    cost. An arc between a row and a column leads from the row to the column; its flow is stored at the child. Rows are
    visited in turn, and the arc with the most negative reduced cost `C_ij + y_i - y_j` enters the tree. The arc that
    leaves is chosen so that the tree stays strongly feasible, which rules out endless cycles.

    Parameters
    ----------
    cost : (n, k) float64
        `C_ij`, finite.
    rows, columns : (n,) and (k,) float64
        Positive, with the same sum.

    Returns
    -------
    (n, k) float64
        A vertex solution: at most `n + k - 1` entries are not 0. Cost of a step: O(n + k), rarely O(n k).

    Examples
    --------
    >>> balanced_plan(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.75, 0.25]), np.array([0.5, 0.5]))
    array([[0.5 , 0.25],
           [0.  , 0.25]])
    """
    n, k = cost.shape
    high = (1 + np.abs(cost).max()) * (n + k)
    rounding = 1e-15 * high
    parent = np.full(n + k + 1, n + k)
    flow = np.concatenate((rows, columns, np.zeros(1)))
    y = np.concatenate((np.full(n, -high), np.full(k, high), np.zeros(1)))
    seen = np.zeros(n + k + 1, np.int64)
    idle, i = 0, 0
    while idle < n:
        best, gain = -1, -rounding
        for j in range(k):
            reduced = cost[i, j] + y[i] - y[n + j]
            if reduced < gain:
                best, gain = n + j, reduced
        if best < 0:
            idle += 1
        else:
            idle = 0
            _pivot(i, best, gain, n, parent, flow, y, seen)
        i = (i + 1) % n
    plan = np.zeros((n, k))
    for x in range(n + k):
        if x < n <= parent[x] < n + k:
            plan[x, parent[x] - n] = flow[x]
        if parent[x] < n <= x:
            plan[parent[x], x - n] = flow[x]
    return plan


@njit(cache=True, nogil=True)
def _pivot(i: int, j: int, reduced: float, n: int, parent: Tree, flow: Array, y: Array, seen: Tree) -> None:
    """Let the arc from row `i` to column `j` enter the tree, and the arc that blocks it leave."""
    root = len(parent) - 1
    seen[:] = 0
    x = i
    while x != root:
        seen[x] = 1
        x = parent[x]
    seen[root] = 1
    join = j
    while seen[join] == 0:
        join = parent[join]
    # More flow from i to j, up to the join and down again to i: less on arcs against that direction. Of several
    # arcs that block, the last one in this direction from the join leaves.
    amount, out, below_row = np.inf, i, True
    x = i
    while x != join:
        if x < n and flow[x] < amount:
            amount, out = flow[x], x
        x = parent[x]
    x = j
    while x != join:
        if x >= n and flow[x] <= amount:
            amount, out, below_row = flow[x], x, False
        x = parent[x]
    x = i
    while x != join:
        flow[x] += -amount if x < n else amount
        x = parent[x]
    x = j
    while x != join:
        flow[x] += -amount if x >= n else amount
        x = parent[x]
    # The part of the tree that was cut off hangs on the new arc now: turn its arcs around on the way up.
    top, above, shift = (i, j, -reduced) if below_row else (j, i, reduced)
    x, carried = top, amount
    while True:
        old_parent, old_flow = parent[x], flow[x]
        parent[x], flow[x] = above, carried
        if x == out:
            break
        above, carried, x = x, old_flow, old_parent
    seen[:] = 0
    seen[root], seen[top] = 2, 1
    for node in range(root):
        x = node
        while seen[x] == 0:
            x = parent[x]
        side, x = seen[x], node
        while seen[x] == 0:
            seen[x] = side
            x = parent[x]
        if seen[node] == 1:
            y[node] += shift
