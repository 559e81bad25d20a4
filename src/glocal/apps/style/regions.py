"""Masks: which part of the photo gets the style of which part of the painting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glocal.apps.style.levels import resized
from glocal.color_space import luma
from glocal.errors import ArgumentError, InputError
from glocal.files.images.colors import to_srgb
from glocal.files.images.picture import Picture

Shares = tuple[tuple[Tensor, tuple[Tensor, ...]], ...]

_LEAST = 0.005  # a region below this fraction of a picture is too small for statistics


def check_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return the weights of `count` paintings, scaled to the sum 1. None means equal weights.

    >>> check_weights([3, 1], 2)
    (0.75, 0.25)
    """
    if count == 0:
        message = "stylize: there is no painting. Give at least one."
        raise ArgumentError(message)
    if weights is None:
        return (1 / count,) * count
    if len(weights) != count:
        message = f"stylize: `weights` (={list(weights)}) has {len(weights)} numbers for {count} painting(s). Give one for each."
        raise ArgumentError(message)
    if not all(0 <= w < float("inf") for w in weights) or sum(weights) == 0:
        message = f"stylize: `weights` (={list(weights)}) must be positive numbers. Use 1 for each to mix equally."
        raise ArgumentError(message)
    return tuple(w / sum(weights) for w in weights)


def share_of(mask: Picture, like: Tensor) -> Tensor:
    """Return a mask as values in [0, 1], (h, w): the luma of a picture."""
    pixels = to_srgb(mask)
    return torch.from_numpy(np.ascontiguousarray(luma(pixels))).to(like)


def region_shares(
    regions: Sequence[tuple[Picture, Sequence[Picture]]],
    cover: Tensor | None,
    shape: tuple[int, int],
    painting_shapes: list[tuple[int, int]],
    like: Tensor,
) -> Shares:
    """Return shares (h, w) of the photo and of each painting for each region, at full size.

    The area outside all regions is one more region. It is paired with the area of the paintings outside all regions, or
    with the whole paintings if that is empty. `cover` (h, w, 1) is the mask: statistics are computed only inside it.
    Without regions and mask there are no shares.
    """
    pairs = [_pair(number, mine, theirs, shape, painting_shapes, like) for number, (mine, theirs) in enumerate(regions)]
    if not pairs and cover is None:
        return ()
    rest = (1 - sum((mine for mine, _ in pairs), torch.zeros(shape).to(like))).clamp(0, 1)
    if float(rest.mean()) >= _LEAST:
        left = []
        for p, size in enumerate(painting_shapes):
            other = (1 - sum((theirs[p] for _, theirs in pairs), torch.zeros(size).to(like))).clamp(0, 1)
            left.append(other if float(other.mean()) >= _LEAST else torch.ones(size).to(like))
        pairs.append((rest, tuple(left)))
    if cover is not None:
        pairs = [(mine * cover[..., 0], theirs) for mine, theirs in pairs]
        pairs = [(mine, theirs) for mine, theirs in pairs if float(mine.mean()) >= _LEAST]
        if not pairs:
            message = "stylize: `mask` is black (almost) everywhere, so nothing would change. Paint the part to stylise white."
            raise InputError(message)
    return tuple(pairs)


def _pair(
    number: int,
    mine: Picture,
    others: Sequence[Picture],
    shape: tuple[int, int],
    painting_shapes: list[tuple[int, int]],
    like: Tensor,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    if len(others) != len(painting_shapes):
        message = (
            f"stylize: region {number + 1} has {len(others)} painting masks for {len(painting_shapes)} painting(s). "
            "Give one for each."
        )
        raise ArgumentError(message)
    shares = [
        resized(share_of(m, like).unsqueeze(-1), s)[..., 0].clamp(0, 1)
        for m, s in zip([mine, *others], [shape, *painting_shapes], strict=True)
    ]
    for name, share in zip(["photo", *["painting"] * len(others)], shares, strict=True):
        if float(share.mean()) < _LEAST:
            message = (
                f"stylize: the {name} mask of region {number + 1} is black (almost) everywhere. Paint that part white."
            )
            raise InputError(message)
    return shares[0], tuple(shares[1:])
