"""The two-loop recursion of L-BFGS on inner products, for a GPU: one program, so that nothing waits for the host."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def recursion(dots, ring, factors, slope, SLOTS: tl.constexpr, LANES: tl.constexpr, ADD: tl.constexpr):
    """Write the factors of `-H g` and its slope `-g'Hg`.

    dots (2 SLOTS + 1, same) are the inner products of SLOTS steps, SLOTS gradient changes and the gradient; `ring` holds
    the slot that is written next and the number of pairs before it, at most SLOTS - 1. With ADD the next slot was just
    written; it becomes a pair if its curvature is positive. Everything is float64.
    """
    lane = tl.arange(0, LANES)
    wide: tl.constexpr = 2 * SLOTS + 1
    inside = lane < wide
    head, count = tl.load(ring), tl.load(ring + 1)
    if ADD:
        curvature, square = tl.load(dots + head * wide + SLOTS + head), tl.load(dots + (SLOTS + head) * (wide + 1))
        kept = curvature > 1e-10 * square
        count = tl.where(kept, tl.minimum(count + 1, SLOTS - 1), count)
        head = tl.where(kept, (head + 1) % SLOTS, head)
    c = tl.where(lane == wide - 1, -1.0, 0.0).to(tl.float64)
    alphas = tl.full([LANES], 0, tl.float64)
    for j in range(0, count):
        slot = (head + SLOTS - 1 - j) % SLOTS
        row = tl.load(dots + slot * wide + lane, mask=inside, other=0)
        alpha = tl.sum(row * c, 0) / tl.load(dots + slot * wide + SLOTS + slot)
        c = tl.where(lane == SLOTS + slot, c - alpha, c)
        alphas = tl.where(lane == slot, alpha, alphas)
    if count > 0:
        newest = (head + SLOTS - 1) % SLOTS
        square = tl.load(dots + (SLOTS + newest) * (wide + 1))
        c = c * (tl.load(dots + newest * wide + SLOTS + newest) / square)
    for j in range(0, count):
        slot = (head + SLOTS - count + j) % SLOTS
        row = tl.load(dots + (SLOTS + slot) * wide + lane, mask=inside, other=0)
        beta = tl.sum(row * c, 0) / tl.load(dots + slot * wide + SLOTS + slot)
        c = tl.where(lane == slot, c + alphas - beta, c)
    last = tl.load(dots + (wide - 1) * wide + lane, mask=inside, other=0)
    total = tl.sum(last * c, 0)
    falls = total < 0  # if rounding spoils that, the pairs are dropped
    c = tl.where(falls, c, tl.where(lane == wide - 1, -1.0, 0.0).to(tl.float64))
    total = tl.where(falls, total, -tl.load(dots + wide * wide - 1))
    tl.store(factors + lane, c, mask=inside)
    tl.store(slope, total)
    tl.store(ring, head)
    tl.store(ring + 1, tl.where(falls, count, 0))
