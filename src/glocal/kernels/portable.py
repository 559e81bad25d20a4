"""Neighbour search in vectorised torch, for every device: candidates by matrix products, ranks by the definition.

The expanded square `|a|^2 - 2 a.b + |b|^2` is fast but mis-ranks near ties. So a few more candidates than `k` are
taken by it, their distances are computed again as `reference_search` defines them, and a row counts only when a bound
on the rounding shows that nothing outside its candidates can belong to it. Rows that fail the bound are searched in
full. Inside a search window every shift gives the distances of all patches at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from glocal.kernels import reference, reference_search
from glocal.kernels.matching import Matching

_SPARE = 8  # candidates beyond k: enough that few rows of natural signals are searched again
_BLOCK_ELEMENTS = {"cuda": 1 << 28}  # 1 GiB of float32 distances at a time: a GPU wants few, large launches
_BLOCK_ELEMENTS_ELSEWHERE = 1 << 26
_CHUNK = 64  # distances of which only the least is looked at first
_GATHERED = 1 << 24  # numbers of candidates that are gathered at once

Progress = Callable[[float], None] | None


def patch_neighbors(
    planes: Tensor, k: int, patch: tuple[int, int], coords: float, radius: int | None, progress: Progress = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches of one image; the contract is `reference_search.patch_neighbors`, bit for bit."""
    matching = reference_search.one_image_matching(patch, coords, radius)
    return match_patches(*reference_search.one_image(planes), k, matching, progress)


def knn(features: Tensor, k: int, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows of one matrix; the contract is `reference_search.knn`."""
    return match_rows(features, features, k, True, progress)


def match_patches(
    query: Tensor, source: Tensor, k: int, matching: Matching, progress: Progress = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches; the contract is `reference_search.match_patches`, bit for bit.

    Cost: O(n m c patch) time and O((n + m) c patch) memory over the whole source; with a search window of s places
    O(n s (c + k)) time and O(n k) memory, both counted before the strides.
    """
    if matching.radius is not None:
        return _by_shifts(query, source, k, matching, progress)
    here, there = (
        reference_search.cells(frames, matching, stride).transpose(0, 1).flatten(1)
        for frames, stride in ((query, matching.stride), (source, matching.source_stride))
    )
    places, source_places = matching.query_places(query), matching.source_places(source)
    shape = (-1, query.shape[1] * matching.patch[0], *matching.patch[1:])
    coords = matching.coords

    def exact(i: Tensor, found: Tensor) -> Tensor:
        squares = (there[found].unflatten(2, shape[1:]) - here[i].view(-1, 1, *shape[1:])).square()
        total = squares[:, :, 0]
        for channel in range(1, shape[1]):
            total = total + squares[:, :, channel]
        d2 = reference_search.window_sum(reference_search.window_sum(total, shape[2], 2), shape[3], 3)[:, :, 0, 0]
        steps = (source_places[found] - places[i].unsqueeze(1)).square().sum(2)
        return d2 + torch.tensor(coords * coords, dtype=torch.float32, device=d2.device) * steps.to(torch.float32)

    def row(i: int) -> Tensor:
        cells = there.view(shape).transpose(0, 1)
        return reference_search.patch_distances(here[i].view(shape[1:]), cells, source_places - places[i], matching)

    features = [here, there]
    if coords:
        features = [torch.cat([cells, at * coords], 1) for cells, at in ((here, places), (there, source_places))]
    return _search(features[0], features[1], k, matching.own, exact, row, torch.float32, progress)


def match_rows(query: Tensor, source: Tensor, k: int, own: bool, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows; the contract is `reference_search.match_rows`.

    Cost: O(n m f) time, O((n + m) f + n k) memory.
    """
    here, there = query.to(torch.float64), source.to(torch.float64)

    def exact(i: Tensor, found: Tensor) -> Tensor:
        d2 = torch.zeros(found.shape, dtype=torch.float64, device=found.device)
        for column in range(query.shape[1]):
            d2 = d2 + (there[:, column][found] - here[i, column].unsqueeze(1)).square()
        return d2

    def row(i: int) -> Tensor:
        return exact(torch.tensor([i], device=here.device), torch.arange(len(there), device=here.device)[None])[0]

    return _search(query, source, k, own, exact, row, torch.float64, progress)


def _search(
    query: Tensor,
    source: Tensor,
    k: int,
    own: bool,
    exact: Callable[[Tensor, Tensor], Tensor],
    row: Callable[[int], Tensor],
    dtype: torch.dtype,
    progress: Progress,
) -> tuple[Tensor, Tensor]:
    """Search among feature vectors (n, f) and (m, f); `exact` and `row` compute distances by the definition."""
    (n, f), m, device = query.shape, len(source), query.device
    middle = source.mean(0)  # smaller numbers, smaller rounding errors
    here, there = query - middle, source - middle
    lengths, source_lengths = here.square().sum(1), there.square().sum(1)
    spare = min(m, k + _SPARE)
    # The error of both the product form and the defined one.
    error = 4 * (f + 8) * torch.finfo(query.dtype).eps * (lengths + source_lengths.max())
    neighbors = torch.empty(n, k, dtype=torch.int32, device=device)
    distances = torch.empty(n, k, dtype=dtype, device=device)
    block = max(1, min(n, _BLOCK_ELEMENTS.get(device.type, _BLOCK_ELEMENTS_ELSEWHERE) // m))
    wide = torch.nn.functional.pad(there, (0, 0, 0, -m % _CHUNK)).T
    wide_lengths = torch.nn.functional.pad(source_lengths, (0, -m % _CHUNK), value=torch.inf).unsqueeze(0)
    every = torch.arange(m, device=device)[None]
    for start in range(0, n, block):
        i = torch.arange(start, min(n, start + block), device=device)
        rough = torch.addmm(wide_lengths, here[i], wide, alpha=-2)  # without |a|^2: the same ranks
        if own:
            rough[i - start, i] = -torch.inf
        kept, found = smallest(rough, spare)
        del rough
        neighbors[i], distances[i] = _rank(exact(i, found), found, i if own else None, k)
        if spare < m:
            unsure = kept[:, -1] + lengths[i] - error[i] <= distances[i, -1]
            for again in i[unsure].tolist():
                vertex = torch.tensor([again], device=device) if own else None
                best = _rank(row(again)[None], every, vertex, k)
                neighbors[again], distances[again] = best[0][0], best[1][0]
        if progress is not None:
            progress(min(1.0, (start + block) / n))
    return neighbors, distances


def smallest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` smallest entries of each row and their columns, smallest first.

    They are in the `count` chunks with the smallest minima, so the row is read only once.
    """
    rows, n = values.shape
    if n < 4 * count * _CHUNK:
        return values.topk(count, dim=1, largest=False, sorted=True)
    chunks = values.view(rows, -1, _CHUNK)
    near = chunks.amin(2).topk(count, dim=1, largest=False, sorted=False).indices
    inside = chunks.gather(1, near.unsqueeze(2).expand(-1, -1, _CHUNK)).view(rows, -1)
    kept, place = inside.topk(count, dim=1, largest=False, sorted=True)
    return kept, near.gather(1, place // _CHUNK) * _CHUNK + place % _CHUNK


def _rank(d2: Tensor, found: Tensor, own: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """Order candidates by (itself, distance, index) and keep `k`."""
    if own is not None:
        d2 = d2.masked_fill(found == own.unsqueeze(1), -1)
    by_index = found.argsort(1)
    found, d2 = found.gather(1, by_index), d2.gather(1, by_index)
    d2, order = d2.sort(dim=1, stable=True)
    return found.gather(1, order)[:, :k].to(torch.int32), d2[:, :k].clamp(min=0)


def _by_shifts(query: Tensor, source: Tensor, k: int, matching: Matching, progress: Progress) -> tuple[Tensor, Tensor]:
    """For a fixed shift the distances of all patches are window sums of one squared difference."""
    assert matching.radius is not None
    shape, (pt, ph, pw) = matching.shape(query), matching.patch
    sizes, source_sizes = (
        [-(-length // step) for length, step in zip(shape, stride, strict=True)]
        for stride in (matching.stride, matching.source_stride)
    )
    best = torch.full((*sizes, k), torch.iinfo(torch.int64).max, dtype=torch.int64, device=query.device)
    if matching.own:
        best[..., 0] = -1  # itself: before every key
    vertex = torch.arange(math.prod(source_sizes), device=query.device).view(source_sizes)
    factor = torch.tensor(matching.coords * matching.coords, dtype=torch.float32, device=query.device)
    spans = [range(-min(r, n - 1), min(r, n - 1) + 1) for r, n in zip(matching.radius, shape, strict=True)]
    shifts = [(dt, dy, dx) for dt in spans[0] for dy in spans[1] for dx in spans[2]]
    for number, shift in enumerate(shifts):
        axes = [_meet(*sides) for sides in zip(shape, shift, matching.stride, matching.source_stride, strict=True)]
        if all(axes) and not (matching.own and not any(shift)):
            (t, y, x), (dt, dy, dx) = axes, shift
            squares: Tensor | None = None
            for frame in range(pt):
                for channel in range(query.shape[1]):
                    a, b = (
                        signal[
                            t.start + frame + at : t.stop + frame + at : t.step,
                            channel,
                            y.start + ay : y[-1] + ay + ph,
                            x.start + ax : x[-1] + ax + pw,
                        ]
                        for signal, at, ay, ax in ((query, 0, 0, 0), (source, dt, dy, dx))
                    )
                    square = (a - b).square()
                    squares = square if squares is None else squares + square
            assert squares is not None
            d2 = reference_search.window_sum(reference_search.window_sum(squares, ph, 1), pw, 2)[
                :, :: y.step, :: x.step
            ]
            d2 = d2 + factor * float(dt * dt + dy * dy + dx * dx)
            here, there = (
                tuple(
                    slice((axis.start + d) // step, (axis[-1] + d) // step + 1, axis.step // step)
                    for axis, d, step in zip(axes, move, stride, strict=True)
                )
                for move, stride in (((0, 0, 0), matching.stride), (shift, matching.source_stride))
            )
            # Non-negative floats order like their bits: the distance above, the vertex index below.
            keys = (d2.contiguous().view(torch.int32).long() << 32) | vertex[there]
            best[here] = torch.cat([best[here], keys.unsqueeze(-1)], -1).sort(-1).values[..., :k]
        if progress is not None:
            progress((number + 1) / len(shifts))
    best = best.view(-1, k)
    if matching.own:
        best[:, 0] = torch.arange(len(best), device=query.device)
    return (best & 0xFFFFFFFF).to(torch.int32), (best >> 32).to(torch.int32).view(torch.float32)


def _meet(length: int, shift: int, stride: int, source_stride: int) -> range:
    """List the places of query vertices along an axis that have a source vertex `shift` away.

    >>> _meet(10, -1, 3, 2)
    range(3, 10, 6)
    """
    low, high = max(0, -shift), length - max(0, shift)
    found = [at for at in range(low, high) if at % stride == 0 and (at + shift) % source_stride == 0]
    return range(found[0], high, math.lcm(stride, source_stride)) if found else range(0)


def squared_differences(x: Tensor, rows: Tensor, candidates: Tensor) -> Tensor:
    """Compute `reference.squared_differences` in parts, so that only some of the rows are gathered at once."""
    n, k = candidates.shape
    step = max(1, _GATHERED // (k * x.shape[1]))
    parts = [slice(i, i + step) for i in range(0, n, step)]
    return torch.cat([reference.squared_differences(x[i], rows, candidates[i]) for i in parts])
