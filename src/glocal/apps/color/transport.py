"""Optimal transport between palettes: the relaxed problem of appendix A.2 and its barycentric mapping."""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.errors import ArgumentError

_ROUNDING = 1e-12


def transport_plan(cost: Tensor, row_caps: Tensor, column_caps: Tensor) -> Tensor:
    """Solve `min <C, P>` subject to `P >= 0`, `P 1 <= row_caps`, `1' P <= column_caps`, `1' P 1 = 1`.

    If the caps of a side sum to 1, its inequalities are equalities, because their sum is the total mass. So with
    `row_caps = column_caps = 1/n`, as in A.2, this is the balanced problem. If caps sum to more than 1, a dummy row and
    a dummy column of cost 0 take the rest, and the entry where they meet is forbidden.

    Parameters
    ----------
    cost : Tensor, (n, k)
        `C_ij`, here the Euclidean distance between palette entries.
    row_caps, column_caps : Tensor, (n,) and (k,)
        Positive, each with a sum of at least 1.

    Returns
    -------
    Tensor, (n, k) float64
        An exact vertex solution (network simplex). Cost: about O(n k) for each of some `n + k` steps.

    Examples
    --------
    >>> transport_plan(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.full((2,), 0.5), torch.full((2,), 0.5))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]], dtype=torch.float64)
    """
    cost, rows, columns = cost.double(), row_caps.double(), column_caps.double()
    if cost.ndim != 2 or cost.shape != (len(rows), len(columns)):
        message = (
            f"transport_plan: `cost` (shape {tuple(cost.shape)}) must be (n={len(rows)}, k={len(columns)}), "
            "with one row per row cap. Check the palettes."
        )
        raise ArgumentError(message)
    for name, caps in (("row_caps", rows), ("column_caps", columns)):
        if not float(caps.sum()) >= 1 - 1e-9 or not bool((caps > 0).all()):
            message = (
                f"transport_plan: `{name}` (sum {float(caps.sum()):g}) must be positive with a sum of at least 1, "
                "or there is no solution. Enlarge them."
            )
            raise ArgumentError(message)
    from glocal.kernels.cpu.transport import balanced_plan

    spare_rows, spare_columns = (max(float(caps.sum()) - 1, 0.0) for caps in (rows, columns))
    if max(spare_rows, spare_columns) > 1e-9:
        # the dummy column takes what rows do not send, the dummy row what columns do not get
        forbidden = 2 * float(cost.max()) + 1
        cost = torch.nn.functional.pad(cost, (0, 1, 0, 1))
        cost[-1, -1] = forbidden
        rows = torch.cat([rows, rows.new_tensor([spare_columns])])
        columns = torch.cat([columns, columns.new_tensor([spare_rows])])
    rows, columns = rows / rows.sum(), columns / columns.sum()
    total = 1 + spare_rows + spare_columns
    plan = torch.from_numpy(balanced_plan(cost.numpy(), rows.numpy(), columns.numpy())) * total
    return plan[: len(row_caps), : len(column_caps)].contiguous()


def barycentric(plan: Tensor, reference: Tensor, photo: Tensor) -> Tensor:
    """Compute `(X_ot)_i = sum_j P_ij (X_s)_j / sum_j P_ij`. An entry that sends no mass keeps its colour. Cost: O(n k).

    >>> barycentric(torch.tensor([[0.2, 0.2], [0.0, 0.0]]), torch.tensor([[0.0], [1.0]]), torch.tensor([[7.0], [9.0]]))
    tensor([[0.5000],
            [9.0000]])
    """
    mass = plan.sum(1, keepdim=True)
    return torch.where(mass > _ROUNDING, plan @ reference / mass.clamp(min=_ROUNDING), photo)


def transported(
    photo: Tensor, reference: Tensor, *, slack: float = 1.0, shares: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the palette `X_ot` (n, 2) and the plan (n, k) from a photo's palette (n, 2) to a reference's (k, 2).

    Every photo entry sends `1/n`; every reference entry takes at most `slack / k`. The sizes may differ. `shares` of the
    entries (n,) and (k,), each with the sum 1, replace `1/n` and `1/k` (not in the paper).
    """
    n, k = len(photo), len(reference)
    cost = torch.cdist(photo.double(), reference.double(), compute_mode="donot_use_mm_for_euclid_dist")
    rows, columns = shares or (cost.new_full((n,), 1 / n), cost.new_full((k,), 1 / k))
    plan = transport_plan(cost, rows, slack * columns)
    return barycentric(plan, reference.double(), photo.double()), plan
