"""The searches that rank products of feature vectors on a GPU, in Triton: windows of a lattice, and nearest rows.

A tile of products is made by the matrix unit and stays in registers. Each row keeps a list of the best so far; a tile
changes a list only where it holds something better than the list's worst. So products are never stored.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from glocal.kernels.cuda.search_kernels import patch_distance


@triton.jit
def _key(value, index):
    """Return a number that sorts like (value, -index): of equal values, the smaller index wins."""
    bits = (value + 0.0).to(tl.int32, bitcast=True)  # + 0.0: no negative zeros
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers that sort as the floats do
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def window(
    features, neighbors, h, w, tiles_y, tiles_x, radius, exclude, F, K: tl.constexpr, SLOTS: tl.constexpr,
    TILE_H: tl.constexpr, TILE_W: tl.constexpr, CHUNK: tl.constexpr, BLOCK_F: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Find the K most similar vertices for one tile of queries; the definition is `reference_search.window_neighbors`.

    The windows of a tile are in one rectangle, whose vertices are compared with all queries, `CHUNK` at a time.
    A key holds the similarity above and the index below, counted backwards: ties go to the smaller index.
    """
    pid = tl.program_id(0)
    tx, ty, picture = pid % tiles_x, pid // tiles_x % tiles_y, pid // (tiles_x * tiles_y)
    base = picture.to(tl.int64) * h * w
    q = tl.arange(0, TILE_H * TILE_W)
    y, x = ty * TILE_H + q // TILE_W, tx * TILE_W + q % TILE_W
    inside = (y < h) & (x < w)
    side_y, side_x = tl.minimum(2 * radius + 1, h), tl.minimum(2 * radius + 1, w)
    top = tl.minimum(tl.maximum(y - radius, 0), h - side_y)
    left = tl.minimum(tl.maximum(x - radius, 0), w - side_x)
    span_y, span_x = tl.minimum(2 * radius + TILE_H, h), tl.minimum(2 * radius + TILE_W, w)
    first_y = tl.minimum(tl.maximum(ty * TILE_H - radius, 0), h - span_y)
    first_x = tl.minimum(tl.maximum(tx * TILE_W - radius, 0), w - span_x)

    lowest: tl.constexpr = -0x7FFFFFFFFFFFFFFF
    highest: tl.constexpr = 0x7FFFFFFFFFFFFFFF
    slot = tl.arange(0, SLOTS).to(tl.int64)
    row = tl.where(slot < K, lowest + 1 + slot, highest - slot)  # places beyond the list are never the least
    keys = tl.zeros([TILE_H * TILE_W, SLOTS], tl.int64) + row[None, :]
    feature = tl.arange(0, BLOCK_F)
    here = features + (base + y * w + x)[:, None] * F + feature[None, :]
    for start in range(0, span_y * span_x, CHUNK):
        candidate = start + tl.arange(0, CHUNK)
        cy, cx = first_y + candidate // span_x, first_x + candidate % span_x
        known = candidate < span_y * span_x
        there = features + (base + cy * w + cx)[:, None] * F + feature[None, :]
        similarity = tl.zeros([TILE_H * TILE_W, CHUNK], tl.float32)
        for f in range(0, F, BLOCK_F):
            a = tl.load(here + f, mask=inside[:, None] & (feature + f < F)[None, :], other=0.0)
            b = tl.load(there + f, mask=known[:, None] & (feature + f < F)[None, :], other=0.0)
            similarity = tl.dot(a, tl.trans(b), similarity, input_precision=PRECISION)
        dy, dx = cy[None, :] - y[:, None], cx[None, :] - x[:, None]
        near = (tl.abs(dy) <= exclude) & (tl.abs(dx) <= exclude)
        good = (cy[None, :] >= top[:, None]) & (cy[None, :] < (top + side_y)[:, None])
        good = good & (cx[None, :] >= left[:, None]) & (cx[None, :] < (left + side_x)[:, None])
        good = good & (known[None, :] & inside[:, None]) & (near == 0)
        similarity = tl.where(good, similarity, float("-inf"))
        column = tl.arange(0, CHUNK)[None, :]
        worst, best = tl.min(keys, 1), tl.max(similarity, 1)
        better = best > float("-inf")
        while tl.max(better.to(tl.int32), 0) > 0:
            at = tl.min(tl.where(similarity == best[:, None], column, CHUNK), 1)
            similarity = tl.where(column == at[:, None], float("-inf"), similarity)
            index = base.to(tl.int32) + (first_y + (start + at) // span_x) * w + first_x + (start + at) % span_x
            key = _key(best, index)
            better = better & (key > worst)
            keys = tl.where((keys == worst[:, None]) & better[:, None], key[:, None], keys)
            worst, best = tl.min(keys, 1), tl.max(similarity, 1)
            better = better & (best > float("-inf"))
    keys = tl.sort(keys, dim=1)
    at = (base + y * w + x)[:, None] * K + (K - 1 - slot)[None, :]
    found = 0x7FFFFFFF - (keys & 0x7FFFFFFF).to(tl.int32)
    found = tl.minimum(found, base.to(tl.int32) + h * w - 1)  # features that are NaN fill no list
    tl.store(neighbors + at, found, mask=inside[:, None] & (slot < K)[None, :])


@triton.jit
def nearest(
    query, source, norms, values, indices, n, m, F, SELF: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_F: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Find SLOTS rows of `source` with the smallest `|b|^2 - 2 <a, b>` for each row a of `query`, in any order.

    With SELF, row i of the source is row i of the query, and always found. Places that stay empty hold -1.
    """
    row = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    feature, slot, column = tl.arange(0, BLOCK_F), tl.arange(0, SLOTS)[None, :], tl.arange(0, BLOCK_S)[None, :]
    best = tl.full([BLOCK_Q, SLOTS], float("inf"), tl.float32)
    found = tl.full([BLOCK_Q, SLOTS], -1, tl.int32)
    worst = tl.max(best, 1)
    here = query + row.to(tl.int64)[:, None] * F + feature[None, :]
    for start in range(0, m, BLOCK_S):
        j = start + tl.arange(0, BLOCK_S)
        there = source + j.to(tl.int64)[:, None] * F + feature[None, :]
        products = tl.zeros([BLOCK_Q, BLOCK_S], tl.float32)
        for f in range(0, F, BLOCK_F):
            a = tl.load(here + f, mask=(row < n)[:, None] & (feature + f < F)[None, :], other=0.0)
            b = tl.load(there + f, mask=(j < m)[:, None] & (feature + f < F)[None, :], other=0.0)
            products = tl.dot(a, tl.trans(b), products, input_precision=PRECISION)
        d = tl.load(norms + j, mask=j < m, other=float("inf"))[None, :] - 2 * products
        if SELF:
            d = tl.where(row[:, None] == j[None, :], float("-inf"), d)
        least = tl.min(d, 1)
        while tl.max((least < worst).to(tl.int32), 0) > 0:
            at = tl.min(tl.where(d == least[:, None], column, BLOCK_S), 1)
            out = tl.min(tl.where(best == worst[:, None], slot, SLOTS), 1)
            replaced = (slot == out[:, None]) & (least < worst)[:, None]
            best = tl.where(replaced, least[:, None], best)
            found = tl.where(replaced, (start + at)[:, None], found)
            d = tl.where(column == at[:, None], float("inf"), d)
            least, worst = tl.min(d, 1), tl.max(best, 1)
    at = row.to(tl.int64)[:, None] * SLOTS + slot
    tl.store(values + at, best, mask=(row < n)[:, None])
    tl.store(indices + at, found, mask=(row < n)[:, None])


@triton.jit
def _squared(query, source, i, j, mask, F):
    """`|source_j - query_i|^2` in float64, added in the order of the features, as the definition says."""
    d2 = tl.zeros(j.shape, tl.float64)
    for f in range(0, F):
        step = tl.load(source + j.to(tl.int64) * F + f, mask=mask, other=0.0).to(tl.float64)
        step = step - tl.load(query + i.to(tl.int64) * F + f).to(tl.float64)
        d2 = d2 + step * step
    return d2


@triton.jit
def _definition(query, source, here, there, i, j, mask, F, factor, C: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr):
    """Compute the distances between row i and rows j as `reference_search` defines them, in float64.

    Rows are cells (C, PH, PW) of patches at the places `here` and `there` (t, y, x), or plain vectors where PH is 0.
    """
    if PH == 0:
        d2 = _squared(query, source, i, j, mask, F)
    else:
        row, rows = i.to(tl.int64), j.to(tl.int64)
        cells = patch_distance(query, source, row * F, rows * F, PH * PW, PW, mask, C, PH, PW)
        steps = tl.zeros(j.shape, tl.int64)
        for axis in tl.static_range(3):
            step = tl.load(there + rows * 3 + axis, mask=mask, other=0) - tl.load(here + row * 3 + axis)
            steps += step * step
        d2 = (cells + factor * steps.to(tl.float32)).to(tl.float64)
    return d2


@triton.jit
def _store_ranked(neighbors, squared, at, d2, j, K: tl.constexpr):
    """Write the K first of a list by (d2, j)."""
    before = (d2[None, :] < d2[:, None]) | ((d2[None, :] == d2[:, None]) & (j[None, :] < j[:, None]))
    rank = tl.sum(before.to(tl.int32), 1)
    tl.store(neighbors + at * K + rank, j, mask=rank < K)
    tl.store(squared + at * K + rank, tl.maximum(d2, 0.0), mask=rank < K)
    return rank


@triton.jit
def rerank(
    query, source, here, there, values, indices, norms, shifts, bounds, neighbors, squared, unsure, m, F, factor,
    C: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, SLACK: tl.constexpr,
    SELF: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Order the candidates of one row by their defined distances, and say if others may belong to the K first.

    `norms` are the squares |a|^2 of the rounded rows, `shifts` how far rounding moved a row, both float64, and `bounds`
    the largest of both and the relative error of the products. Everything that was not found is at least as far as
    the last candidate, less these errors. SLACK is the relative rounding error of the definition itself.
    """
    i = tl.program_id(0)
    slot = tl.arange(0, SLOTS)
    j = tl.load(indices + i.to(tl.int64) * SLOTS + slot)
    missing = m - tl.sum((j >= 0).to(tl.int32), 0)
    d2 = _definition(query, source, here, there, i, tl.maximum(j, 0), j >= 0, F, factor, C, PH, PW)
    d2 = tl.where(j >= 0, d2, float("inf"))
    j = tl.where(j >= 0, j, 0x7FFFFFFF - slot)
    if SELF:
        d2 = tl.where(j == i, -1.0, d2)
    rank = _store_ranked(neighbors, squared, i.to(tl.int64), d2, j, K)
    last = tl.max(tl.where(rank == K - 1, d2, -1.0), 0)
    norm = tl.load(norms + i)
    farthest = tl.max(tl.load(values + i.to(tl.int64) * SLOTS + slot), 0).to(tl.float64)
    lower = farthest + norm - tl.load(bounds + 2) * (norm + tl.load(bounds))
    lower = tl.sqrt(tl.maximum(lower, 0.0)) - tl.load(shifts + i) - tl.load(bounds + 1)
    sure = (lower > tl.sqrt(tl.maximum(last, 0.0)) * (1 + SLACK)) & (lower < float("inf"))
    tl.store(unsure + i, ((missing > 0) & (sure == 0)).to(tl.int8))


@triton.jit
def exact(
    query, source, here, there, rows, neighbors, squared, m, F, factor,
    C: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    SELF: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the K nearest rows of `source` for one row of `query` by the definition alone: for rows that `rerank` leaves open."""
    i = tl.load(rows + tl.program_id(0))
    slot = tl.arange(0, SLOTS)
    nobody: tl.constexpr = 0x7FFFFFFF
    best = tl.where(slot < K, float("inf"), float("-inf")).to(tl.float64)
    found = tl.where(slot < K, nobody - slot, slot)
    worst = tl.max(best, 0)
    for start in range(0, m, BLOCK):
        j = start + tl.arange(0, BLOCK)
        d2 = _definition(query, source, here, there, i, j, j < m, F, factor, C, PH, PW)
        d2 = tl.where(j < m, d2, float("inf"))
        if SELF:
            d2 = tl.where(j == i, -1.0, d2)
        j = tl.where(j < m, j, nobody)
        least = tl.min(d2, 0)
        at = tl.min(tl.where(d2 == least, j, nobody), 0)
        last = tl.max(tl.where(best == worst, found, -1), 0)
        while (least < worst) | ((least == worst) & (at < last)):
            replaced = (best == worst) & (found == last)
            best = tl.where(replaced, least, best)
            found = tl.where(replaced, at, found)
            d2 = tl.where(j == at, float("inf"), d2)
            j = tl.where(j == at, nobody, j)
            least, worst = tl.min(d2, 0), tl.max(best, 0)
            at = tl.min(tl.where(d2 == least, j, nobody), 0)
            last = tl.max(tl.where(best == worst, found, -1), 0)
    best = tl.where(slot < K, best, float("inf"))
    found = tl.where(slot < K, found, nobody - slot)
    _store_ranked(neighbors, squared, i.to(tl.int64), best, found, K)
