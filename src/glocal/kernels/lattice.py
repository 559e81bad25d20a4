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


def lattice_conv(x: Tensor, filters: Tensor, lattice: Lattice, bias: Tensor | None = None) -> Tensor:
    """Convolve x (..., n, c) with filters (d, c, m), and add the bias (m,): (..., n, m). Differentiable.

    Cost: O(n d c m) time, O(n c) memory in addition to the result.
    """
    size = _axes(lattice)[1]
    weight = filters.reshape(*size, *filters.shape[1:]).permute(-1, -2, *range(len(size)))
    return _convolved(x, weight, lattice, bias, groups=1)


def lattice_shared(x: Tensor, taps: Tensor, lattice: Lattice) -> Tensor:
    """Convolve every channel of x (..., n, c) with the same taps (d,): (..., n, c). Differentiable. Cost: O(n d c)."""
    size, c = _axes(lattice)[1], x.shape[-1]
    return _convolved(x, taps.reshape(1, 1, *size).expand(c, 1, *size), lattice, None, groups=c)


def _convolved(x: Tensor, weight: Tensor, lattice: Lattice, bias: Tensor | None, *, groups: int) -> Tensor:
    # Each operation of torch costs the host some microseconds, in both directions: so there are few.
    shape, size = _axes(lattice)
    halo = [s // 2 * lattice.dilation for s in size]
    image = x.reshape(-1, *shape, x.shape[-1])  # (b, h, w, c) or (b, t, h, w, c)
    last_to_second, second_to_last = (0, -1, *range(1, len(shape) + 1)), (0, *range(2, len(shape) + 2), 1)
    channels_first = x.shape[-1] < _FEW or not x.is_cuda
    if channels_first:
        image = image.permute(last_to_second)
    if lattice.boundary != "zero":
        image, halo = _padded(image, halo, lattice.boundary, 2 if channels_first else 1), [0] * len(halo)
    if not channels_first:
        image = image.permute(last_to_second)
    elif not x.is_cuda:  # the CPU's plain convolutions insist on it
        image, weight = image.contiguous(), weight.contiguous()
    convolution = tf.conv2d if len(size) == 2 else tf.conv3d
    y = convolution(image, weight, bias, padding=halo, dilation=lattice.dilation, groups=groups)
    return y.permute(second_to_last).contiguous().view(*x.shape[:-1], weight.shape[0])


def _padded(image: Tensor, halo: list[int], boundary: str, first: int) -> Tensor:
    """Add the places outside that the patches reach. The axes of the picture start at axis `first`."""
    lengths = image.shape[first : first + len(halo)]
    most = [n - 1 if boundary == "reflect" else n for n in lengths]
    if len(lengths) == 2 and all(p <= limit for p, limit in zip(halo, most, strict=True)):
        pads = [halo[1], halo[1], halo[0], halo[0]]
        # With the channels last: a volume (b, h, w, c) whose last axis is not padded. Nothing is transposed.
        return tf.pad(image, pads if first == 2 else [0, 0, *pads], mode=boundary)
    for axis, (n, p) in enumerate(zip(lengths, halo, strict=True), start=first):
        if p > 0:
            places = torch.arange(-p, n + p, device=image.device)
            image = image.index_select(axis, BOUNDARIES[boundary](places, n))
    return image


def _axes(lattice: Lattice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and size with at least two axes: a line is an image one pixel high."""
    line = len(lattice.shape) == 1
    return ((1, *lattice.shape), (1, *lattice.size)) if line else (lattice.shape, lattice.size)
