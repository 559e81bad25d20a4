"""Rules of the operators for `torch.func.vmap` and for autocast, once for all backends.

vmap: signals fold into the batch; everything else is done one after the other. Autocast: convolutions run in the dtype of
the region, sums of squares and of differences in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _fold(x: Tensor, dim: int | None, size: int) -> Tensor:
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.flatten(0, 1)


def each(op: Callable[..., Any], info: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Call `op` for every member of the batch and stack the results."""
    dims = [dim if isinstance(dim, int) else None for dim in in_dims]
    results = [
        op(*(a if dim is None else a.select(dim, i) for a, dim in zip(args, dims, strict=True)))
        for i in range(info.batch_size)
    ]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0,) * len(results[0])


def vmap_forward(op: Callable[..., Tensor]) -> Callable[..., Any]:
    """Make the rule of an operator whose first argument is a batch of signals."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        if any(isinstance(dim, int) for dim in in_dims[1:]):
            return each(op, info, in_dims, args)
        y = op(_fold(args[0], in_dims[0], info.batch_size), *args[1:])
        return y.unflatten(0, (info.batch_size, -1)), 0

    return rule


def vmap_backward(op: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    """Make the rule of its backward operator, whose last argument says which gradients are needed."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        g, x, *rest = args
        if any(rest[-1][1:]) or any(isinstance(dim, int) for dim in in_dims[2:]):
            return each(op, info, in_dims, args)
        found = op(*(_fold(t, dim, info.batch_size) for t, dim in zip((g, x), in_dims[:2], strict=True)), *rest)
        return (found[0].unflatten(0, (info.batch_size, -1)), *found[1:]), (0, *[None] * (len(found) - 1))

    return rule


def autocast(library: torch.library.Library, name: str, *, low: bool) -> None:
    """Register the rule of an operator: `low` runs it in the dtype of the region, otherwise it runs in float32."""
    op = getattr(torch.ops.glocal, name).default
    for device_type, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        library.impl(name, _rule(op, device_type, key, low), key)


def _rule(op: Callable[..., Any], device_type: str, key: str, low: bool) -> Callable[..., Any]:
    off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def rule(*args: Any) -> Any:
        floats = [a for a in args if isinstance(a, Tensor) and a.is_floating_point()]
        with torch._C._ExcludeDispatchKeyGuard(off):
            if any(t.dtype == torch.float64 for t in floats):  # as torch's own rules: float64 stays
                return op(*args)
            dtype = torch.get_autocast_dtype(device_type) if low else torch.float32
            return op(*(a.to(dtype) if isinstance(a, Tensor) and a.is_floating_point() else a for a in args))

    return rule
