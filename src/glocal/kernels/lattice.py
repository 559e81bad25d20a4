"""Layers on a lattice by torch's own convolution, on any device: cuDNN on CUDA.

The paper's "on a grid this is the ordinary convolution", taken literally: pad, then convolve. Torch differentiates,
compiles and casts this by itself. A signal (b, h w, c) already is an image in the memory format `channels_last`, so
only few channels are transposed, which cuDNN prefers. As for every convolution in torch, `torch.backends.cudnn.allow_tf32`
says whether float32 may be rounded to TF32 on the way.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as tf

from glocal.lattice import BOUNDARIES, Lattice

_FEW = 8  # channels below which cuDNN is faster with the channels first; measured on an H200


def lattice_conv(x: Tensor, filters: Tensor, lattice: Lattice) -> Tensor:
    """Convolve x (b, n, c) with filters (d, c, m): (b, n, m). Differentiable.

    Cost: O(b n d c m) time, O(b n c) memory in addition to the result.
    """
    size = _axes(lattice)[1]
    weight = filters.unflatten(0, size).movedim((-1, -2), (0, 1))
    return _convolved(x, weight, lattice, groups=1)


def lattice_shared(x: Tensor, taps: Tensor, lattice: Lattice) -> Tensor:
    """Convolve every channel of x (b, n, c) with the same taps (d,): (b, n, c). Differentiable. Cost: O(b n d c)."""
    size, c = _axes(lattice)[1], x.shape[2]
    return _convolved(x, taps.view(1, 1, *size).expand(c, 1, *size), lattice, groups=c)


def _convolved(x: Tensor, weight: Tensor, lattice: Lattice, *, groups: int) -> Tensor:
    shape, size = _axes(lattice)
    halo = [s // 2 * lattice.dilation for s in size]
    image = x.unflatten(1, shape)  # (b, h, w, c) or (b, t, h, w, c)
    if lattice.boundary != "zero":
        image, halo = _padded(image, halo, lattice.boundary), [0] * len(halo)
    image = image.movedim(-1, 1)
    if x.shape[2] < _FEW or not x.is_cuda:  # the CPU's plain convolutions insist on it
        image, weight = image.contiguous(), weight.contiguous()
    convolution = tf.conv2d if len(size) == 2 else tf.conv3d
    y = convolution(image, weight, padding=halo, dilation=lattice.dilation, groups=groups)
    return y.movedim(1, -1).flatten(1, -2).contiguous()


def _padded(image: Tensor, halo: list[int], boundary: str) -> Tensor:
    """Add the places outside that the patches reach, (b, h, w, c) -> (b, h + 2 halo, w + 2 halo, c)."""
    lengths = image.shape[1:-1]
    most = [n - 1 if boundary == "reflect" else n for n in lengths]
    if len(lengths) == 2 and all(p <= limit for p, limit in zip(halo, most, strict=True)):
        # A volume with one channel, whose last axis is not padded: nothing is transposed.
        pads = [0, 0, halo[1], halo[1], halo[0], halo[0]]
        return tf.pad(image.unsqueeze(0), pads, mode=boundary).squeeze(0)
    for axis, (n, p) in enumerate(zip(lengths, halo, strict=True), start=1):
        if p > 0:
            places = torch.arange(-p, n + p, device=image.device)
            image = image.index_select(axis, BOUNDARIES[boundary](places, n))
    return image


def _axes(lattice: Lattice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and size with at least two axes: a line is an image one pixel high."""
    line = len(lattice.shape) == 1
    return ((1, *lattice.shape), (1, *lattice.size)) if line else (lattice.shape, lattice.size)
