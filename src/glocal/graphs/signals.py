"""What builders share: the check of a signal, and distances from their squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.errors import ArgumentError, InputError


def as_signal(value: Any, *, caller: str, name: str, ndim: tuple[int, ...]) -> Tensor:
    """Return `value` as a finite floating-point tensor. Arrays are not copied.

    Integers become float32, or float64 where float32 cannot hold them.

    `ndim` lists the allowed numbers of axes. Cost: O(size), for the check of NaN and infinity.

    >>> as_signal([[1, 2]], caller="f", name="x", ndim=(2,))
    tensor([[1., 2.]])
    """
    try:
        x = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        message = (
            f"{caller}: `{name}` (a {type(value).__name__}) is not an array of numbers. Give a tensor or a NumPy array."
        )
        raise ArgumentError(message) from error
    if x.is_complex() or x.dtype == torch.bool:
        message = f"{caller}: `{name}` has the type {x.dtype}, which is not a signal. Give real numbers."
        raise ArgumentError(message)
    if not x.is_floating_point():
        short = x.to(torch.float32)  # holds every integer of two bytes
        x = short if x.element_size() < 4 or bool((short.double() == x.double()).all()) else x.double()
    if x.ndim not in ndim:
        message = f"{caller}: `{name}` has the shape {tuple(x.shape)}, but must have {_or(ndim)} axes. Reshape it."
        raise ArgumentError(message)
    if x.numel() == 0:
        message = f"{caller}: `{name}` (shape {tuple(x.shape)}) is empty. Give at least one vertex and one channel."
        raise InputError(message)
    if not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        message = f"{caller}: `{name}` has {bad} value(s) that are NaN or infinite. Replace them first."
        raise InputError(message)
    return x


def square_root(squared: Tensor) -> Tensor:
    """Replace squared distances by distances, in place, correctly rounded: the same bits on every device.

    On the CPU torch's own root is off by one bit for every sixth number.

    >>> square_root(torch.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """
    if squared.device.type != "cpu":
        return squared.sqrt_()
    values = squared.numpy()
    np.sqrt(values, out=values)
    return squared


def _or(numbers: tuple[int, ...]) -> str:
    return " or ".join(str(n) for n in numbers)
