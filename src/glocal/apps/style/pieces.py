"""Pieces of a painting: which piece each place of the picture takes, and the picture that the pieces make together.

Places are a lattice over the picture, `stride` pixels apart, with a square patch around each. A match is the index of the
pixel of the painting at the centre of the piece that a place takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, fold, pad, unfold

from glocal.graphs.knn import knn_graph
from glocal.graphs.patch import patch_graph
from glocal.kernels import select

_CANDIDATES = 8  # pieces that the exact search offers to each place
_ROBUST = 0.8  # votes minimise |difference|^0.8, so pieces that do not fit count little
FORBIDDEN = 1e6  # a price above any squared difference of patches in Lab
_STEPS = ((0, -1), (0, 1), (-1, 0), (1, 0))


@dataclass(frozen=True, eq=False)
class Source:
    """Paintings next to each other as one image `lab` (h, w, 3), cut into overlapping pieces of `patch` pixels.

    Attributes
    ----------
    boxes
        Left side, height and width of each painting in the image. Below a shorter painting there are no pieces.
    channels : (3,)
        Weights of luminance and colours when patches are compared.
    rows : (h w, 3 patch^2)
        The patch around each pixel, in these weights.
    price : (h, w)
        0 for pieces inside a painting; high for those that would reach over its border.
    quota : (h, w)
        How often each pixel should be used, with mean 1.
    """

    lab: Tensor
    patch: int
    boxes: tuple[tuple[int, int, int], ...]
    channels: Tensor
    rows: Tensor
    price: Tensor
    quota: Tensor

    @classmethod
    def cut(cls, paintings: list[Tensor], weights: tuple[float, ...], patch: int, chroma: float) -> Source:
        """Cut paintings (h, w, 3) into pieces. Colours count `chroma` times as much as luminance."""
        height = max(p.shape[0] for p in paintings)
        lab = beside(paintings, height)
        price, quota = torch.full(lab.shape[:2], FORBIDDEN).to(lab), torch.zeros(lab.shape[:2]).to(lab)
        left, boxes = 0, []
        for painting, weight in zip(paintings, weights, strict=True):
            h, w = painting.shape[0], painting.shape[1]
            boxes.append((left, h, w))
            if weight > 0:
                reach = min(patch // 2, (min(h, w) - 1) // 2)
                price[reach : h - reach, left + reach : left + w - reach] = 0
                quota[:h, left : left + w] = weight / (h * w)
            left += w
        channels = lab.new_tensor([1.0, chroma, chroma])
        return cls(lab, patch, tuple(boxes), channels, patches(lab * channels, patch, 1), price, quota / quota.mean())

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.lab.shape[0], self.lab.shape[1]


def beside(images: list[Tensor], height: int) -> Tensor:
    """Put images (h, w, c) next to each other. Below a shorter one there are zeros."""
    return torch.cat([pad(image, (0, 0, 0, 0, 0, height - image.shape[0])) for image in images], 1)


def patches(image: Tensor, patch: int, stride: int) -> Tensor:
    """Return the patch around every `stride`-th pixel of (h, w, c), reflected at the borders: (n, c patch^2)."""
    return unfold(_reflected(image, patch // 2), patch, stride=stride)[0].T.contiguous()


def _reflected(image: Tensor, reach: int) -> Tensor:
    """Return (h, w, c) as (1, c, h + 2 reach, w + 2 reach)."""
    planes = image.permute(2, 0, 1).unsqueeze(0)
    while reach > 0:  # a reflection is at most as wide as the image
        part = min(reach, min(planes.shape[2:]) - 1)
        planes, reach = pad(planes, (part,) * 4, mode="reflect"), reach - part
    return planes


def lattice(shape: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return the number of places down and across.

    >>> lattice((10, 12), 3)
    (4, 4)
    """
    return -(-shape[0] // stride), -(-shape[1] // stride)


def search(wanted: Tensor, source: Source, stride: int, price: Tensor) -> Tensor:
    """Return the candidates of each place, (n, k): the pieces nearest to the patches of `wanted` (h, w, 3). Exact.

    `price` (h, w), averaged over the patch, is added to the squared difference: it is one more channel of the painting,
    which is 0 in the picture. On a GPU the patches are rows of a matrix, because the rows of large patches are compared
    by matrix products there.
    """
    k = min(_CANDIDATES, len(source.rows))
    if wanted.is_cuda:
        mine, theirs = priced_rows(wanted, source, stride, price)
        return knn_graph(mine, source=theirs, k=k).neighbors.long()
    extra = price.sqrt().unsqueeze(-1) / source.patch
    pictures = [torch.cat([wanted * source.channels, torch.zeros_like(wanted[..., :1])], -1)]
    pictures.append(torch.cat([source.lab * source.channels, extra], -1))
    graph = patch_graph(pictures[0], source=pictures[1], k=k, patch=source.patch, stride=stride)
    return graph.neighbors.long()


def priced_rows(wanted: Tensor, source: Source, stride: int, price: Tensor) -> tuple[Tensor, Tensor]:
    """Return the patches of the picture and of the painting as rows, with the root of the price as one more column."""
    mine = patches(wanted * source.channels, source.patch, stride)
    mean = avg_pool2d(_reflected(price.unsqueeze(-1), source.patch // 2), source.patch, 1).reshape(-1, 1)
    return torch.cat([mine, torch.zeros_like(mine[:, :1])], 1), torch.cat([source.rows, mean.sqrt()], 1)


def around(match: Tensor, source: Source, reach: int, step: int) -> Tensor:
    """Return the pieces at most `reach` pixels from each match, every `step` pixels: (n, k)."""
    h, w = source.shape
    shifts = torch.arange(-reach, reach + 1, step, device=match.device)
    y = ((match // w).unsqueeze(1) + shifts).clamp(0, h - 1)
    x = ((match % w).unsqueeze(1) + shifts).clamp(0, w - 1)
    return (y.unsqueeze(2) * w + x.unsqueeze(1)).flatten(1)


def choose(
    wanted: Tensor,
    source: Source,
    candidates: Tensor,
    places: tuple[int, int],
    stride: int,
    price: Tensor,
    region: Tensor,
    *,
    coherence: float = 0.0,
    sweeps: int = 0,
) -> tuple[Tensor, Tensor]:
    """Choose one piece for each place. Return the matches (n,) and the squared differences to `wanted` (n, p).

    The cost of a piece is its squared difference plus its price (regions, h, w) for the `region` (n,) of the place, minus
    a bonus for each of the four neighbouring places whose piece it continues: `coherence` / 4 times the median of the
    best costs. In every sweep each place may also take the continuation of a neighbour's piece. The black and white
    places of a chessboard take turns.
    """
    price, region = price.flatten(1), region.unsqueeze(1)
    compare = select.pick("squared_differences", wanted.device)
    squares = compare(wanted, source.rows, candidates)
    costs = squares + price[region, candidates]
    best = costs.min(1, keepdim=True)
    match, found = (table.gather(1, best.indices).squeeze(1) for table in (candidates, squares))
    bonus = coherence / 4 * float(best.values.median())
    cells = torch.arange(places[0] * places[1], device=match.device)
    black = (cells // places[1] + cells % places[1]) % 2 == 0
    for turn in [cells[black], cells[~black]] * sweeps:
        others = _continued(match, places, source.shape, stride)[turn]
        new = torch.cat([match[turn].unsqueeze(1), others], 1)
        offered = torch.cat([candidates[turn], new], 1)
        away = torch.cat([squares[turn], compare(wanted[turn], source.rows, new)], 1)
        fits = (offered.unsqueeze(2) == others.unsqueeze(1)).sum(2)
        taken = (away + price[region[turn], offered] - bonus * fits).argmin(1, keepdim=True)
        match[turn], found[turn] = (table.gather(1, taken).squeeze(1) for table in (offered, away))
    return match, found


def _continued(match: Tensor, places: tuple[int, int], shape: tuple[int, int], stride: int) -> Tensor:
    """Return for each place the pieces that continue those of its four neighbours, (n, 4). The outermost repeat."""
    h, w = shape
    grid, found = match.view(places), []
    for down, right in _STEPS:
        rows, columns = (
            (torch.arange(count, device=match.device) + step).clamp(0, count - 1)
            for count, step in zip(places, (down, right), strict=True)
        )
        moved = grid[rows][:, columns]
        y, x = (moved // w - down * stride).clamp(0, h - 1), (moved % w - right * stride).clamp(0, w - 1)
        found.append((y * w + x).reshape(-1))
    return torch.stack(found, 1)


def votes(match: Tensor, found: Tensor | None, source: Source, shape: tuple[int, int], stride: int) -> Tensor:
    """Average the pieces where they overlap: (h, w, 3).

    A piece at squared difference s has the weight `s^((0.8 - 2) / 2)`, up to ten times that of the median. So the average
    minimises the sum of |difference|^0.8 instead of squares, and strokes stay sharp. Cost: O(n patch^2).
    """
    patch, reach = source.patch, source.patch // 2
    planes = _reflected(source.lab, reach)[0]
    width, w = planes.shape[2], source.shape[1]
    steps = torch.arange(patch, device=match.device)
    cells = (match // w * width + match % w).unsqueeze(1) + (steps.unsqueeze(1) * width + steps).reshape(-1)
    line = torch.hann_window(patch + 2, periodic=False)[1:-1].to(planes)
    weights = line.outer(line).reshape(1, -1)  # a smooth window: without it the lattice of places would show
    if found is not None:
        near = (found / found.median().clamp(min=1e-6)).clamp(min=0.02).pow((_ROBUST - 2) / 2)
        weights = near.unsqueeze(1) * weights
    weights = weights.expand(len(match), -1)
    columns = torch.cat([plane.reshape(-1)[cells] * weights for plane in planes] + [weights], 1)
    added = fold(columns.T.unsqueeze(0), shape, patch, padding=reach, stride=stride)[0]
    return (added[:3] / added[3:]).permute(1, 2, 0)


def overuse(match: Tensor, source: Source) -> Tensor:
    """Return how much more often than its quota each part of the painting is used, (h, w), averaged over two patches."""
    h, w = source.shape
    counts = torch.bincount(match, minlength=h * w).view(1, 1, h, w).to(source.lab)
    size = 2 * source.patch + 1
    used, due = (
        avg_pool2d(table, size, 1, source.patch, count_include_pad=False)[0, 0]
        for table in (counts, source.quota[None, None])
    )
    return used / (due.clamp(min=0.05) * counts.mean())


def handed_down(
    match: Tensor, before: tuple[Source, tuple[int, int], int], now: tuple[Source, tuple[int, int], int]
) -> Tensor:
    """Return the matches of one level for the places of the next: each continues the piece of the nearest place.

    `before` and `now` are the paintings, the shape of the picture and the stride of the two levels.
    """
    (old, small, wide), (new, large, narrow) = before, now
    nearest, steps = [], []
    for count, axis in zip(lattice(small, wide), (0, 1), strict=True):
        at = torch.arange(lattice(large, narrow)[axis], device=match.device) * narrow
        ratio = large[axis] / small[axis]
        nearest.append((at / (ratio * wide)).round().long().clamp(max=count - 1))
        steps.append(at - nearest[-1] * wide * ratio)
    grid = match.view(lattice(small, wide))[nearest[0]][:, nearest[1]]
    y, x = grid // old.shape[1], grid % old.shape[1]
    moved = torch.zeros_like(grid)
    for (left, h, w), (new_left, new_h, new_w) in zip(old.boxes, new.boxes, strict=True):
        row = (y * (new_h / h) + steps[0].unsqueeze(1)).round().long().clamp(0, new_h - 1)
        column = ((x - left) * (new_w / w) + steps[1]).round().long().clamp(0, new_w - 1) + new_left
        here = (x >= left) & (x < left + w)
        moved = torch.where(here, row * new.shape[1] + column, moved)
    return moved.reshape(-1)
