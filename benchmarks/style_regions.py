"""Variants of the preset `patches` that use the graph of the photo, for `style_quality.py`.

`alike` joins places whose patches in the photo are similar, and lets a place prefer the parts of the painting from which the
places that it is joined to take their pieces. `regions` finds regions of photo and painting on the graph of each picture, and
pairs them by the mean and spread of their colours. Each is a `with` that gives further arguments for `stylize`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from glocal import patch_graph
from glocal.apps.style import patches, pieces
from glocal.apps.style.levels import resized
from glocal.color_space import lab_from_rgb
from glocal.kernels import select
from glocal.nn.functional import shared_conv

Pixels = np.ndarray[Any, Any]
_PART = 3  # sides of a part of the painting, in patches
_SWEEPS = 4
_SMALL = 160  # longer side of the pictures on which regions are found
_SPREAD = 30  # steps over the graph


@contextmanager
def alike(weight: float, photo: Pixels, painting: Pixels) -> Iterator[dict[str, Any]]:
    """Let similar places of the photo take their pieces from the same parts of the painting.

    A piece gets a bonus of `weight` times the median of the costs, times the share of the similar places that take their
    pieces from the same part.
    """
    set_up, choose, held = patches._set_up, pieces.choose, {}

    def remember(run: Any, shape: Any, small: Tensor, *rest: Any) -> Any:
        level = set_up(run, shape, small, *rest)
        step = level.stride
        held["graph"] = patch_graph(small, source=small, k=9, patch=5, coords=0.2, stride=step, source_stride=step)
        return level

    def chosen(rows: Tensor, source: Any, candidates: Tensor, places: Any, stride: int, price: Tensor, region: Tensor,
               *, coherence: float = 0.0, sweeps: int = 0) -> tuple[Tensor, Tensor]:  # fmt: skip
        match, found = choose(
            rows, source, candidates, places, stride, price, region, coherence=coherence, sweeps=sweeps
        )
        if not sweeps:
            return match, found
        h, w = source.shape
        size, across = _PART * source.patch, -(-w // (_PART * source.patch))
        at = torch.arange(h * w)
        part = at // w // size * across + at % w // size
        compare, taps = select.pick("squared_differences", "cpu"), torch.full((9,), 1 / 9)
        flat, kind, median = price.flatten(1), region.unsqueeze(1), float(found.median())
        cells = torch.arange(len(rows))
        black = (cells // places[1] + cells % places[1]) % 2 == 0
        for turn in [cells[black], cells[~black]] * _SWEEPS:
            shares = shared_conv(one_hot(part[match], int(part.max()) + 1).float(), held["graph"], taps)
            others = pieces._continued(match, places, source.shape, stride)[turn]
            offered = torch.cat([candidates[turn], match[turn].unsqueeze(1), others], 1)
            away = compare(rows[turn], source.rows, offered)
            fits = (offered.unsqueeze(2) == others.unsqueeze(1)).sum(2) * (coherence / 4 * median)
            liked = shares[turn].gather(1, part[offered]) * (weight * median)
            best = (away + flat[kind[turn], offered] - fits - liked).argmin(1, keepdim=True)
            match[turn], found[turn] = (table.gather(1, best).squeeze(1) for table in (offered, away))
        return match, found

    patches._set_up, pieces.choose = remember, chosen
    try:
        yield {}
    finally:
        patches._set_up, pieces.choose = set_up, choose


@contextmanager
def regions(count: int, photo: Pixels, painting: Pixels) -> Iterator[dict[str, Any]]:
    """Let each region of the photo take from its partner in the painting."""
    mine, theirs = (_regions(picture, count) for picture in (photo, painting))
    about = [
        torch.stack([torch.cat([lab[mask].mean(0), lab[mask].std(0)]) for mask in masks])
        for lab, masks in (mine, theirs)
    ]
    about = [(table - table.mean(0)) / (table.std(0) + 1) for table in about]
    partner = min(
        permutations(range(count)), key=lambda order: float((about[0] - about[1][list(order)]).square().sum())
    )
    pairs = [
        tuple(
            _mask(masks[number], picture)
            for masks, number, picture in ((mine[1], one, photo), (theirs[1], two, painting))
        )
        for one, two in list(enumerate(partner))[:-1]  # the last one is what the others leave
    ]
    yield {"regions": pairs}


def _regions(picture: Pixels, count: int) -> tuple[Tensor, Tensor]:
    """Return a small copy in Lab (n, 3) and the masks (count, n) of its regions: colours in groups, spread over the graph."""
    rgb = torch.from_numpy(np.ascontiguousarray(picture)).float() / 255
    factor = _SMALL / max(rgb.shape[:2])
    shape = round(rgb.shape[0] * factor), round(rgb.shape[1] * factor)
    small = lab_from_rgb(resized(rgb, shape)).float()
    lab = small.reshape(-1, 3)
    order = lab[:, 0].argsort()
    centers = torch.stack([lab[part].mean(0) for part in order.chunk(count)])
    for _ in range(20):
        group = torch.cdist(lab, centers).argmin(1)
        centers = torch.stack([lab[group == k].mean(0) if (group == k).any() else centers[k] for k in range(count)])
    graph = patch_graph(small, k=25, patch=3, coords=0.5)
    shares, taps = one_hot(group, count).float(), torch.full((25,), 1 / 25)
    for _ in range(_SPREAD):
        shares = shared_conv(shares, graph, taps)
    group = shares.argmax(1)
    return lab, torch.stack([group == k for k in range(count)])


def _mask(region: Tensor, picture: Pixels) -> Pixels:
    """Return a region as a mask of the picture's size."""
    factor = _SMALL / max(picture.shape[:2])
    shape = round(picture.shape[0] * factor), round(picture.shape[1] * factor)
    mask: Pixels = (resized(region.view(*shape, 1).float(), picture.shape[:2])[..., 0].clamp(0, 1) * 255).byte().numpy()
    return mask
