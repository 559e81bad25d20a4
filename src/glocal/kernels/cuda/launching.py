"""Launches of Triton kernels with little work on the host.

In each call Triton derives from all arguments which compiled code fits them. For small layers that takes longer than the
kernel. A `Launch` belongs to one shape of the arguments, remembers the compiled code, and calls it at once.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

# Earlier versions hand other arguments to compiled code.
_REUSES = tuple(int(part) for part in re.findall(r"\d+", triton.__version__)[:2]) >= (3, 6)
_ALIGNED = 15  # Triton compiles other code for addresses that are no multiple of 16


class Launch:
    """A kernel, its grid and all arguments but the tensors.

    Parameters
    ----------
    kernel
        A `triton.jit` function. Its parameters are tensors, then numbers, then constants.
    grid : tuple of int
        The number of programs along each axis.
    numbers : tuple of int
        The values of the numbers.
    constants : dict
        The values of the constants (`tl.constexpr`), by name.
    options
        Options of the compiler, e.g. `num_warps`.
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], numbers: tuple[int, ...], constants: dict[str, Any], **options: Any
    ) -> None:
        names = kernel.arg_names[-len(constants) :]
        self._kernel, self._grid, self._options = kernel, (*grid, 1, 1)[:3], options
        self._rest = (*numbers, *(constants[name] for name in names))
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *tensors: Tensor) -> None:
        """Launch the kernel on the device of the tensors, without waiting for it."""
        place, addresses = tensors[0].get_device(), 0
        for t in tensors:
            addresses |= t.data_ptr()
        key = (place, *(t.dtype for t in tensors))
        run = None if addresses & _ALIGNED else self._compiled.get(key)
        with _on(place):
            if run is not None:
                run(*tensors, *self._rest)
                return
            compiled = self._kernel[self._grid](*tensors, *self._rest, **self._options)
            if _REUSES and compiled is not None and not addresses & _ALIGNED:  # the interpreter compiles nothing
                self._compiled[key] = compiled[self._grid]


def device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make the device of `tensor` current: Triton launches there."""
    return _on(tensor.get_device())


_NOTHING = nullcontext()


def _on(place: int) -> AbstractContextManager[Any]:
    return _NOTHING if place < 0 or place == torch.cuda.current_device() else torch.cuda.device(place)
