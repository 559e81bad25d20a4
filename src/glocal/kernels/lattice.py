"""Layers on a lattice as dense convolutions: the paper's "on a grid this is the ordinary convolution", taken literally.

These kernels of the operators in `lattice_ops` run on any device by torch's own convolution: cuDNN on CUDA. A signal
(b, h w, c) already is an image in the memory format `channels_last`, so nothing is transposed. As for every convolution
in torch, `torch.backends.cudnn.allow_tf32` says whether float32 may be rounded to TF32 on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glocal.lattice import BOUNDARIES, Lattice


def lattice_conv(x: Tensor, filters: Tensor, lattice: Lattice) -> Tensor:
    """Convolve x (b, n, c) with filters (d, c, m): (b, n, m). Cost: O(b n d c m) time, O(b n (c + m)) memory."""
    image, padding = _padded(x, lattice)
    y = _conv(image, _weight(filters, lattice), lattice, padding, groups=1)
    return y.movedim(1, -1).reshape(*x.shape[:2], filters.shape[2])


def lattice_conv_backward(
    g: Tensor, x: Tensor, filters: Tensor, lattice: Lattice, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and the filters that `mask` asks for, from that of the output, (b, n, m)."""
    image, padding = _padded(x, lattice)
    weight = _weight(filters, lattice)
    gx, gw = _conv_backward(_image(g, lattice), image, weight, lattice, padding, 1, mask)
    return (
        None if gx is None else _unpadded(gx, lattice).reshape(x.shape),
        None if gw is None else gw.flatten(2).permute(2, 1, 0),
    )


def lattice_shared(x: Tensor, taps: Tensor, lattice: Lattice) -> Tensor:
    """Convolve every channel of x (b, n, c) with the same taps (d,): (b, n, c). Cost: O(b n d c)."""
    image, padding = _padded(x, lattice)
    y = _conv(image, _same(taps, x, lattice), lattice, padding, groups=x.shape[2])
    return y.movedim(1, -1).reshape(x.shape)


def lattice_shared_backward(
    g: Tensor, x: Tensor, taps: Tensor, lattice: Lattice, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and the taps that `mask` asks for, from that of the output, (b, n, c)."""
    image, padding = _padded(x, lattice)
    weight = _same(taps, x, lattice)
    gx, gw = _conv_backward(_image(g, lattice), image, weight, lattice, padding, x.shape[2], mask)
    return (
        None if gx is None else _unpadded(gx, lattice).reshape(x.shape),
        None if gw is None else gw.flatten(1).sum(0),
    )


def _axes(lattice: Lattice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and size with at least two axes: a line is an image one pixel high."""
    line = len(lattice.shape) == 1
    return ((1, *lattice.shape), (1, *lattice.size)) if line else (lattice.shape, lattice.size)


def _image(x: Tensor, lattice: Lattice) -> Tensor:
    """View (b, n, c) as (b, c, h, w) or (b, c, t, h, w)."""
    return x.unflatten(1, _axes(lattice)[0]).movedim(-1, 1)


def _weight(filters: Tensor, lattice: Lattice) -> Tensor:
    """Lay (d, c, m) out as the weight of a convolution, (m, c, h, w)."""
    size = _axes(lattice)[1]
    layout = torch.contiguous_format  # which the CPU's plain convolutions insist on
    if filters.is_cuda:
        layout = torch.channels_last if len(size) == 2 else torch.channels_last_3d
    return filters.unflatten(0, size).movedim((-1, -2), (0, 1)).contiguous(memory_format=layout)


def _same(taps: Tensor, x: Tensor, lattice: Lattice) -> Tensor:
    """The weight (c, 1, h, w) of a convolution that treats every channel alike."""
    return taps.view(1, 1, *_axes(lattice)[1]).repeat(x.shape[2], 1, *[1] * len(_axes(lattice)[1]))


def _reach(lattice: Lattice) -> list[int]:
    """How many places outside of the lattice the patches reach, for each axis."""
    return [s // 2 * lattice.dilation for s in _axes(lattice)[1]]


def _padded(x: Tensor, lattice: Lattice) -> tuple[Tensor, list[int]]:
    """Return the image with what its boundary adds, and the zeros that the convolution itself has to add."""
    reach, image = _reach(lattice), x.unflatten(1, _axes(lattice)[0])
    if lattice.boundary == "zero":
        return image.movedim(-1, 1), reach
    for axis, (n, halo) in enumerate(zip(_axes(lattice)[0], reach, strict=True), start=1):
        if halo > 0:
            places = torch.arange(-halo, n + halo, device=x.device)
            image = image.index_select(axis, BOUNDARIES[lattice.boundary](places, n))
    return image.movedim(-1, 1), [0] * len(reach)


def _unpadded(image: Tensor, lattice: Lattice) -> Tensor:
    """Undo `_padded` for gradients: (b, c, h + 2 reach, ...) -> (b, h, ..., c); what is outside is added to its source."""
    image = image.movedim(1, -1)
    if lattice.boundary == "zero":
        return image
    for axis, (n, halo) in enumerate(zip(_axes(lattice)[0], _reach(lattice), strict=True), start=1):
        if halo > 0:
            image = _fold(image, axis, n, halo, lattice.boundary)
    return image


def _fold(image: Tensor, axis: int, n: int, halo: int, boundary: str) -> Tensor:
    """Add the `halo` first and last places of an axis to the vertices that stand there."""
    if halo >= n:  # a place outside may stand for one that was reflected twice
        places = BOUNDARIES[boundary](torch.arange(-halo, n + halo, device=image.device), n)
        table = torch.nn.functional.one_hot(places, n).to(image.dtype)
        return torch.tensordot(image, table, ([axis], [0])).movedim(-1, axis)
    inside = image.narrow(axis, halo, n).clone(memory_format=torch.contiguous_format)
    head, tail = image.narrow(axis, 0, halo), image.narrow(axis, halo + n, halo)
    if boundary == "circular":
        inside.narrow(axis, n - halo, halo).add_(head)
        inside.narrow(axis, 0, halo).add_(tail)
    elif boundary == "replicate":
        inside.narrow(axis, 0, 1).add_(head.sum(axis, keepdim=True))
        inside.narrow(axis, n - 1, 1).add_(tail.sum(axis, keepdim=True))
    else:
        inside.narrow(axis, 1, halo).add_(head.flip(axis))
        inside.narrow(axis, n - 1 - halo, halo).add_(tail.flip(axis))
    return inside


def _conv(image: Tensor, weight: Tensor, lattice: Lattice, padding: list[int], *, groups: int) -> Tensor:
    steps = [lattice.dilation] * len(padding)
    return torch.convolution(image, weight, None, [1] * len(padding), padding, steps, False, [0] * len(padding), groups)


def _conv_backward(
    g: Tensor, image: Tensor, weight: Tensor, lattice: Lattice, padding: list[int], groups: int, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    ones, steps, none = [1] * len(padding), [lattice.dilation] * len(padding), [0] * len(padding)
    found: Any = torch.ops.aten.convolution_backward(
        g, image, weight, None, ones, padding, steps, False, none, groups, [*mask, False]
    )
    return found[0] if mask[0] else None, found[1] if mask[1] else None
