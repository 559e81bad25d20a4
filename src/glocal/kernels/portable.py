"""Neighbour search in vectorised torch, for every device: candidates by matrix products, ranks by the definition.

The expanded square `|a|^2 - 2 a.b + |b|^2` is fast but mis-ranks near ties. So a few more candidates than `k` are
taken by it, their distances are computed again as `reference` defines them, and a row counts only when a bound on the
rounding shows that nothing outside its candidates can belong to it. Rows that fail the bound are searched in full.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal.kernels import reference

_SPARE = 8  # candidates beyond k: enough that few rows of natural signals are searched again
_BLOCK_ELEMENTS = {"cuda": 1 << 28}  # 1 GiB of float32 distances at a time: a GPU wants few, large launches
_BLOCK_ELEMENTS_ELSEWHERE = 1 << 26
_CHUNK = 64  # distances of which only the least is looked at first

Progress = Callable[[float], None] | None


def patch_neighbors(
    planes: Tensor, k: int, patch: tuple[int, int], coords: float, radius: int | None, progress: Progress = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest patches; the contract is `reference.patch_neighbors`, bit for bit.

    Cost: O(n^2 c patch) time and O(n c patch) memory over the whole image; with `radius`, O(n radius^2 (c + k)) time
    and O(n k) memory.
    """
    if radius is not None:
        return _by_shifts(planes, k, patch, coords, radius, progress)
    ph, pw = patch
    h, w = planes.shape[1] - ph + 1, planes.shape[2] - pw + 1
    cells = planes.unfold(1, ph, 1).unfold(2, pw, 1).permute(1, 2, 0, 3, 4).reshape(h * w, -1)
    j = torch.arange(h * w, device=planes.device)
    place = torch.stack([j // w, j % w], 1).to(planes.dtype)
    features = torch.cat([cells, place * coords], 1) if coords else cells
    factor = torch.tensor(coords * coords, dtype=torch.float32, device=planes.device)

    def exact(i: Tensor, found: Tensor) -> Tensor:
        shape = (*found.shape, planes.shape[0], ph, pw)
        squares = (cells[found].view(shape) - cells[i].view(shape[0], 1, *shape[2:])).square()
        total = squares[:, :, 0]
        for channel in range(1, planes.shape[0]):
            total = total + squares[:, :, channel]
        d2 = reference.window_sum(reference.window_sum(total, ph, 2), pw, 3)[:, :, 0, 0]
        steps = found // w - (i // w).unsqueeze(1), found % w - (i % w).unsqueeze(1)
        return d2 + factor * (steps[0] * steps[0] + steps[1] * steps[1]).to(torch.float32)

    def row(i: int) -> Tensor:
        return reference.patch_distances(planes, i, patch, coords, None)

    return _search(features, k, exact, row, torch.float32, progress)


def knn(features: Tensor, k: int, progress: Progress = None) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest rows; the contract is `reference.knn`. Cost: O(n^2 f) time, O(n (f + k)) memory."""
    wide = features.to(torch.float64)

    def exact(i: Tensor, found: Tensor) -> Tensor:
        d2 = torch.zeros(found.shape, dtype=torch.float64, device=found.device)
        for column in range(features.shape[1]):
            d2 = d2 + (wide[:, column][found] - wide[i, column].unsqueeze(1)).square()
        return d2

    def row(i: int) -> Tensor:
        return exact(torch.tensor([i], device=wide.device), torch.arange(len(wide), device=wide.device)[None])[0]

    return _search(features, k, exact, row, torch.float64, progress)


def _search(
    features: Tensor,
    k: int,
    exact: Callable[[Tensor, Tensor], Tensor],
    row: Callable[[int], Tensor],
    kind: torch.dtype,
    progress: Progress,
) -> tuple[Tensor, Tensor]:
    n, f = features.shape
    centred = features - features.mean(0)  # smaller numbers, smaller rounding errors
    norms = centred.square().sum(1)
    spare = min(n, k + _SPARE)
    epsilon = torch.finfo(features.dtype).eps
    error = 4 * (f + 8) * epsilon * (norms + norms.max())  # of both the product form and the defined one
    neighbors = torch.empty(n, k, dtype=torch.int32, device=features.device)
    distances = torch.empty(n, k, dtype=kind, device=features.device)
    block = max(1, min(n, _BLOCK_ELEMENTS.get(features.device.type, _BLOCK_ELEMENTS_ELSEWHERE) // n))
    wide = torch.nn.functional.pad(centred, (0, 0, 0, -n % _CHUNK)).T
    wide_norms = torch.nn.functional.pad(norms, (0, -n % _CHUNK), value=torch.inf).unsqueeze(0)
    for start in range(0, n, block):
        i = torch.arange(start, min(n, start + block), device=features.device)
        rough = torch.addmm(wide_norms, centred[i], wide, alpha=-2)  # without |a|^2: the same ranks
        rough[i - start, i] = -torch.inf
        kept, found = _smallest(rough, spare)
        del rough
        neighbors[i], distances[i] = _rank(exact(i, found), found, i, k)
        if spare < n:
            unsure = kept[:, -1] + norms[i] - error[i] <= distances[i, -1]
            for again in i[unsure].tolist():
                every = torch.arange(n, device=features.device)[None]
                own = torch.tensor([again], device=features.device)
                neighbors[again], distances[again] = (part[0] for part in _rank(row(again)[None], every, own, k))
        if progress is not None:
            progress(min(1.0, (start + block) / n))
    return neighbors, distances


def _smallest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` smallest entries of each row and their places, smallest first.

    They lie in the `count` chunks with the smallest minima, so all but one reading of the row is spared.
    """
    rows, n = values.shape
    if n < 4 * count * _CHUNK:
        return values.topk(count, dim=1, largest=False, sorted=True)
    chunks = values.view(rows, -1, _CHUNK)
    near = chunks.amin(2).topk(count, dim=1, largest=False, sorted=False).indices
    inside = chunks.gather(1, near.unsqueeze(2).expand(-1, -1, _CHUNK)).view(rows, -1)
    kept, place = inside.topk(count, dim=1, largest=False, sorted=True)
    return kept, near.gather(1, place // _CHUNK) * _CHUNK + place % _CHUNK


def _rank(d2: Tensor, found: Tensor, own: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Order candidates by (itself, distance, index) and keep `k`."""
    d2 = d2.masked_fill(found == own.unsqueeze(1), -1)
    by_index = found.argsort(1)
    found, d2 = found.gather(1, by_index), d2.gather(1, by_index)
    d2, order = d2.sort(dim=1, stable=True)
    return found.gather(1, order)[:, :k].to(torch.int32), d2[:, :k].clamp(min=0)


def _by_shifts(
    planes: Tensor, k: int, patch: tuple[int, int], coords: float, radius: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """For a fixed shift the distances of all patches are window sums of one squared difference."""
    ph, pw = patch
    h, w = planes.shape[1] - ph + 1, planes.shape[2] - pw + 1
    best = torch.full((h, w, k), torch.iinfo(torch.int64).max, dtype=torch.int64, device=planes.device)
    vertex = torch.arange(h * w, device=planes.device).view(h, w)
    best[..., 0] = -vertex - 1  # itself: before every key
    factor = torch.tensor(coords * coords, dtype=torch.float32, device=planes.device)
    spans = [range(-min(radius, size - 1), min(radius, size - 1) + 1) for size in (h, w)]
    for dy in spans[0]:
        for dx in spans[1]:
            if (dy, dx) == (0, 0):
                continue
            y, x = slice(max(0, -dy), h - max(0, dy)), slice(max(0, -dx), w - max(0, dx))
            here = planes[:, y.start : y.stop + ph - 1, x.start : x.stop + pw - 1]
            there = planes[:, y.start + dy : y.stop + dy + ph - 1, x.start + dx : x.stop + dx + pw - 1]
            squares = (here[0] - there[0]).square()
            for channel in range(1, len(planes)):
                squares = squares + (here[channel] - there[channel]).square()
            d2 = reference.window_sum(reference.window_sum(squares, ph, 0), pw, 1) + factor * float(dy * dy + dx * dx)
            # Non-negative floats order like their bits: the distance above, the vertex index below.
            keys = (d2.contiguous().view(torch.int32).long() << 32) | (vertex[y, x] + dy * w + dx)
            best[y, x] = torch.cat([best[y, x], keys.unsqueeze(-1)], -1).sort(-1).values[..., :k]
        if progress is not None:
            progress((dy - spans[0].start + 1) / len(spans[0]))
    best = best.view(h * w, k)
    best[:, 0] = torch.arange(h * w, device=planes.device)
    return (best & 0xFFFFFFFF).to(torch.int32), (best >> 32).to(torch.int32).view(torch.float32)
