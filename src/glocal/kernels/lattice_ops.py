"""The operators on lattices. A layer on a grid needs no neighbours: the rule of the lattice says where they are.

    lattice_conv(Tensor x, Tensor filters, RULE) -> Tensor
        x (b, n, c), filters (d, c, maps) -> (b, n, maps)
    lattice_conv_backward(Tensor g, Tensor x, Tensor filters, RULE, bool[2] mask) -> (Tensor gx, Tensor gfilters)
        g (b, n, maps)
    lattice_shared(Tensor x, Tensor taps, RULE) -> Tensor
        taps (d,) -> (b, n, c)
    lattice_shared_backward(Tensor g, Tensor x, Tensor taps, RULE, bool[2] mask) -> (Tensor gx, Tensor gtaps)

RULE is `int[] shape, int[] size, int dilation, str boundary`, the fields of `Lattice`. Copies of a lattice are more
batches. A kernel gets the `Lattice` itself in their place. Everything else is as in `ops`. Where torch's own convolution
is the best kernel, it is called without an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from torch import Tensor

from glocal.errors import ArgumentError
from glocal.kernels import lattice as dense
from glocal.kernels import ops, select
from glocal.lattice import Lattice

_RULE = "int[] shape, int[] size, int dilation, str boundary"
for _name in ("lattice_conv", "lattice_shared"):
    ops.library.define(f"{_name}(Tensor x, Tensor filters, {_RULE}) -> Tensor")
    ops.library.define(
        f"{_name}_backward(Tensor g, Tensor x, Tensor filters, {_RULE}, bool[2] mask) -> (Tensor, Tensor)"
    )


def lattice_conv(x: Tensor, filters: Tensor, lattice: Lattice, bias: Tensor | None = None) -> Tensor:
    """Convolve a signal (..., n, c) with filters (d, c, m), and add the bias (m,): (..., n, m). Differentiable.

    Cost: O(n d c m).

    >>> import torch
    >>> lattice_conv(torch.tensor([[[1.0], [2.0], [4.0]]]), torch.ones(3, 1, 1), Lattice((3,), (3,), 1, "zero")).tolist()
    [[[3.0], [7.0], [6.0]]]
    """
    if _torch_convolves(x.device.type):
        return dense.lattice_conv(x, filters, lattice, bias)
    y: Tensor = _conv(_one_by_one(x, lattice), filters, *_rule(lattice), bias=bias)
    return y.view(*x.shape[:-1], -1)


def lattice_shared(x: Tensor, taps: Tensor, lattice: Lattice) -> Tensor:
    """Convolve every channel of a signal (..., n, c) with the same taps (d,): (..., n, c). Differentiable.

    >>> import torch
    >>> lattice_shared(torch.tensor([[[1.0], [2.0], [4.0]]]), torch.ones(3), Lattice((3,), (3,), 1, "zero")).tolist()
    [[[3.0], [7.0], [6.0]]]
    """
    if _torch_convolves(x.device.type):
        return dense.lattice_shared(x, taps, lattice)
    y: Tensor = _shared(_one_by_one(x, lattice), taps, *_rule(lattice))
    return y.view(x.shape)


def _torch_convolves(device_type: str) -> bool:
    """Whether torch's own convolution is the kernel: it needs no operator of ours, which costs time in each call."""
    return select.chosen("lattice_conv", device_type).name == "portable"


# What `torch.compiler.assume_constant_result` does. The decorator imports the compiler: 150 MB and a second of every start.
_torch_convolves._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _one_by_one(x: Tensor, lattice: Lattice) -> Tensor:
    """Make signals and the copies of a lattice members of one batch, (b, n, c)."""
    return (
        x if x.ndim == 3 and lattice.copies == 1 else x.reshape(-1, lattice.num_vertices // lattice.copies, x.shape[-1])
    )


def _rule(lattice: Lattice) -> tuple[Any, ...]:
    return lattice.shape, lattice.size, lattice.dilation, lattice.boundary


@lru_cache(maxsize=256)
def _lattice(shape: tuple[int, ...], size: tuple[int, ...], dilation: int, boundary: str) -> Lattice:
    return Lattice(shape, size, dilation, boundary)


def _checked(name: str, x: Tensor, filters: Tensor, rule: Sequence[Any]) -> Lattice:
    """Make the lattice, and refuse what a kernel could not read safely."""
    lattice = _lattice(tuple(rule[0]), tuple(rule[1]), rule[2], rule[3])
    expected = (lattice.degree, x.shape[-1]) if name == "lattice_conv" else (lattice.degree,)
    if x.ndim != 3 or x.shape[1] != lattice.num_vertices or filters.shape[: len(expected)] != expected:
        message = (
            f"{name}: x {tuple(x.shape)} and the filters {tuple(filters.shape)} must be (b, n={lattice.num_vertices}, c) "
            f"and start with {expected}: degree, channels. Use glocal.nn.functional."
        )
        raise ArgumentError(message)
    if x.dtype != filters.dtype or x.device != filters.device:
        message = (
            f"{name}: the tensors have {x.dtype} on {x.device} and {filters.dtype} on {filters.device}. "
            "Convert them with .to(...)."
        )
        raise ArgumentError(message)
    return lattice


def _forward(name: str) -> Callable[..., Tensor]:
    def run(x: Tensor, filters: Tensor, *rule: Any, bias: Tensor | None = None) -> Tensor:
        lattice = _checked(name, x, filters, rule)
        more = () if bias is None else (bias,)
        y: Tensor = ops.call_backend(name, x, x, filters, lattice, *more)
        return y.contiguous()

    return run


def _backward(name: str) -> Callable[..., tuple[Tensor | None, ...]]:
    """Make the backward for arguments that have been checked."""

    def run(g: Tensor, x: Tensor, filters: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
        *rule, mask = rest
        lattice = _lattice(tuple(rule[0]), tuple(rule[1]), rule[2], rule[3])
        found: tuple[Tensor | None, ...] = ops.call_backend(f"{name}_backward", x, g, x, filters, lattice, mask)
        return found

    return run


def _checked_backward(name: str) -> Callable[..., tuple[Tensor, ...]]:
    backward = _backward(name)

    def run(g: Tensor, x: Tensor, filters: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        *rule, mask = rest
        _checked(name, x, filters, rule)
        shape = (*x.shape[:2], x.shape[2] if name == "lattice_shared" else filters.shape[2])
        if g.shape != shape or g.dtype != x.dtype:
            message = f"{name}: the gradient ({tuple(g.shape)}, {g.dtype}) must be {shape}, {x.dtype}. Use that of the result."
            raise ArgumentError(message)
        return ops.filled(x, backward(g, x, filters, *rest), mask)

    return run


def _fake_backward(g: Tensor, x: Tensor, filters: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    pairs = zip((x.shape, filters.shape), rest[-1], strict=True)
    return tuple(x.new_empty(shape if need else (0,)) for shape, need in pairs)


_conv = ops.Linear(
    "lattice_conv", (0, 1), 2, _forward("lattice_conv"), _backward("lattice_conv"), _checked_backward("lattice_conv"),
    lambda x, filters, *rule: x.new_empty(*x.shape[:2], filters.shape[2]), _fake_backward,
).register()  # fmt: skip
_shared = ops.Linear(
    "lattice_shared", (0, 1), 2, _forward("lattice_shared"), _backward("lattice_shared"),
    _checked_backward("lattice_shared"), lambda x, taps, *rule: x.new_empty(x.shape), _fake_backward,
).register()  # fmt: skip
