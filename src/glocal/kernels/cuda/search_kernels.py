"""The loops of the exact patch search on a GPU, in Triton. What they find is said in `reference_search.match_patches`.

A neighbour is a key: the bits of its squared distance above, its index below, so that keys compare like (distance,
index). The list of a pixel is a row of different keys without order; a new key replaces the largest. Places beyond the
list hold negative keys, those not taken yet keys above that of every distance.
Additions are in the order of the definition and are not fused with multiplications.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _square(query, source, here, there, plane, mask, C: tl.constexpr):
    """`sum_c (x_c[here] - z_c[there])^2`; `here` is one place."""
    a = tl.load(query + here) - tl.load(source + there, mask=mask, other=0.0)
    total = a * a
    for c in tl.static_range(1, C):
        a = tl.load(query + c * plane + here) - tl.load(source + c * plane + there, mask=mask, other=0.0)
        total = total + a * a
    return total


@triton.jit
def _column(query, source, here, there, plane, width, mask, C: tl.constexpr, SIZE: tl.constexpr):
    """Sum `SIZE` squares of a column in blocks of 4, 2 and 1; each block adds its halves first."""
    s = _square(query, source, here, there, plane, mask, C)
    if SIZE >= 2:
        s = s + _square(query, source, here + width, there + width, plane, mask, C)
    if SIZE >= 4:
        t = _square(query, source, here + 2 * width, there + 2 * width, plane, mask, C)
        s = s + (t + _square(query, source, here + 3 * width, there + 3 * width, plane, mask, C))
    if SIZE >= 6:
        t = _square(query, source, here + 4 * width, there + 4 * width, plane, mask, C)
        s = s + (t + _square(query, source, here + 5 * width, there + 5 * width, plane, mask, C))
    if SIZE % 2 == 1 and SIZE > 1:
        s = s + _square(query, source, here + (SIZE - 1) * width, there + (SIZE - 1) * width, plane, mask, C)
    return s


@triton.jit
def patch_distance(query, source, here, there, plane, width, mask, C: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr):
    """Compute the squared distances of patches from their first cells; columns are summed like cells."""
    s = _column(query, source, here, there, plane, width, mask, C, PH)
    if PW >= 2:
        s = s + _column(query, source, here + 1, there + 1, plane, width, mask, C, PH)
    if PW >= 4:
        t = _column(query, source, here + 2, there + 2, plane, width, mask, C, PH)
        s = s + (t + _column(query, source, here + 3, there + 3, plane, width, mask, C, PH))
    if PW >= 6:
        t = _column(query, source, here + 4, there + 4, plane, width, mask, C, PH)
        s = s + (t + _column(query, source, here + 5, there + 5, plane, width, mask, C, PH))
    if PW % 2 == 1 and PW > 1:
        s = s + _column(query, source, here + (PW - 1), there + (PW - 1), plane, width, mask, C, PH)
    return s


@triton.jit
def _key(d2, index):
    return (d2.to(tl.int32, bitcast=True).to(tl.int64) << 32) | index.to(tl.int64)


@triton.jit
def _first(slot, K: tl.constexpr):
    """Make an empty list of K keys."""
    most: tl.constexpr = 0x7FFFFFFFFFFFFFFF
    return tl.where(slot < K, most - slot.to(tl.int64), -1 - slot.to(tl.int64))


@triton.jit
def _insert(keys, worst, new):
    """Put those of the new keys into the list that belong there. Return the list and its largest key."""
    most: tl.constexpr = 0x7FFFFFFFFFFFFFFF
    least = tl.min(new, 0)
    while least < worst:
        keys = tl.where(keys == worst, least, keys)
        worst = tl.max(keys, 0)
        new = tl.where(new == least, most, new)
        least = tl.min(new, 0)
    return keys, worst


@triton.jit
def _store(neighbors, squared, i, keys, slot, K: tl.constexpr, OWN: tl.constexpr, SLOTS: tl.constexpr):
    """Write the K keys of a list in their order, behind the vertex itself if OWN."""
    keys = tl.sort(keys)
    first = i.to(tl.int64) * (K + OWN)
    at = first + OWN + slot - (SLOTS - K)
    inside = slot >= SLOTS - K
    tl.store(neighbors + at, keys.to(tl.int32), mask=inside)
    tl.store(squared + at, (keys >> 32).to(tl.int32).to(tl.float32, bitcast=True), mask=inside)
    if OWN:
        tl.store(neighbors + first, i)
        tl.store(squared + first, 0.0)


@triton.jit
def search(
    planes, neighbors, squared, h, w, plane, width, factor, radius, none,
    C: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the K nearest others of one pixel, row by row from its own outwards, `BLOCK` columns at a time.

    `radius` is how far rows and columns may be away. Where positions count (`factor` > 0), rows and columns end where
    the position alone is further than the last of the list. `none` is 0, and only known at run time: what is counted up
    from it may change in loops. `plane` is added to addresses as a 64-bit number.
    """
    i = tl.program_id(0)
    y, x = i // w, i % w
    here = y * width + x
    slot = tl.arange(0, SLOTS)
    most: tl.constexpr = 0x7FFFFFFFFFFFFFFF
    infinite: tl.constexpr = 0x7F80000000000000
    keys = _first(slot, K)
    worst = tl.max(keys, 0)
    plane = plane.to(tl.int64)
    reach = none + radius
    away = none + 0
    while away <= reach:
        for side in range(0, 2):
            dy = tl.where(side == 0, away, -away)
            row = y + dy
            if (row >= 0) & (row < h) & ((side == 0) | (away > 0)):
                last = tl.minimum(x + reach, w - 1)
                for begin in range(tl.maximum(x - reach, 0), last + 1, BLOCK):
                    xx = begin + tl.arange(0, BLOCK)
                    dx = (xx - x).to(tl.int64)
                    r2 = dx * dx + dy.to(tl.int64) * dy
                    mask = (xx <= last) & (r2 > 0)
                    d2 = patch_distance(planes, planes, here, row * width + xx, plane, width, mask, C, PH, PW)
                    new = tl.where(mask, _key(d2 + factor * r2.to(tl.float32), row * w + xx), most)
                    keys, worst = _insert(keys, worst, new)
                if (factor > 0) & (worst >= 0) & (worst < infinite):
                    distance = (worst >> 32).to(tl.int32).to(tl.float32, bitcast=True)
                    # More than the root, so that what is just as far, and what rounding brings there, is looked at.
                    root = tl.minimum(tl.sqrt(distance / factor * 1.00001), reach.to(tl.float32))
                    reach = tl.minimum(reach, root.to(tl.int32) + 1)
        away += 1
        reach = tl.where(away < h, reach, -1)
    _store(neighbors, squared, i, keys, slot, K, 1, SLOTS)


@triton.jit
def search_window(
    query, source, neighbors, squared, nt, nh, nw, plane, width, factor, rt, ry, rx, st, sy, sx, mt, my, mx,
    C: tl.constexpr, PT: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    K: tl.constexpr, OWN: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the K nearest patches of `source` inside the window of one vertex, besides the vertex itself if OWN.

    Both signals are frames (nt + PT - 1, C, height, width) with nt x nh x nw patches. The window reaches rt, ry and rx
    steps along the axes. Query vertices lie st, sy and sx apart, source vertices mt, my and mx.
    """
    i = tl.program_id(0)
    across, down = (nw + sx - 1) // sx, (nh + sy - 1) // sy
    t, y, x = i // (across * down) * st, i // across % down * sy, i % across * sx
    wide, tall = (nw + mx - 1) // mx, (nh + my - 1) // my  # vertices of the source
    plane = plane.to(tl.int64)
    here = t * C * plane + y * width + x
    slot = tl.arange(0, SLOTS)
    most: tl.constexpr = 0x7FFFFFFFFFFFFFFF
    keys = _first(slot, K)
    worst = tl.max(keys, 0)
    first, last = (tl.maximum(x - rx, 0) + mx - 1) // mx, tl.minimum(x + rx, nw - 1) // mx
    for frame in range((tl.maximum(t - rt, 0) + mt - 1) // mt, tl.minimum(t + rt, nt - 1) // mt + 1):
        for row in range((tl.maximum(y - ry, 0) + my - 1) // my, tl.minimum(y + ry, nh - 1) // my + 1):
            dt, dy = frame * mt - t, row * my - y
            for begin in range(first, last + 1, BLOCK):
                column = begin + tl.arange(0, BLOCK)
                dx = (column * mx - x).to(tl.int64)
                r2 = dx * dx + dy.to(tl.int64) * dy + dt.to(tl.int64) * dt
                index = (frame * tall + row) * wide + column
                mask = column <= last
                if OWN:
                    mask = mask & (index != i)
                there = frame * mt * C * plane + row * my * width + column * mx
                d2 = patch_distance(query, source, here, there, plane, width, mask, PT * C, PH, PW)
                new = tl.where(mask, _key(d2 + factor * r2.to(tl.float32), index), most)
                keys, worst = _insert(keys, worst, new)
    _store(neighbors, squared, i, keys, slot, K, OWN, SLOTS)
