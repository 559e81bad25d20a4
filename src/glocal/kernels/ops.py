"""The operators of glocal, registered with `torch.library` in the namespace `glocal`.

Shapes: x (b, m, c) is a batch of source signals, neighbors (n, d) int32 with values in 0 ... m - 1, weights (n, d) or
None (all 1). `m = n` for a graph of one signal. All floating tensors have one dtype: float32, float64, bfloat16 or
float16. The last two are accumulated in float32. Results are contiguous.

    graph_conv(Tensor x, Tensor neighbors, Tensor? weights, Tensor filters) -> Tensor
        filters (d, c, maps) -> (b, n, maps)
    graph_conv_backward(Tensor g, Tensor x, Tensor neighbors, Tensor? weights, Tensor filters, bool[3] mask)
        -> (Tensor gx, Tensor gweights, Tensor gfilters);  g (b, n, maps)
    shared_conv(Tensor x, Tensor neighbors, Tensor? weights, Tensor taps) -> Tensor
        taps (d,) -> (b, n, c)
    shared_conv_backward(Tensor g, Tensor x, Tensor neighbors, Tensor? weights, Tensor taps, bool[3] mask)
        -> (Tensor gx, Tensor gweights, Tensor gtaps);  g (b, n, c)
    extract(Tensor x, Tensor neighbors, Tensor? weights) -> Tensor
        -> (b, n, d, c)
    extract_backward(Tensor g, Tensor x, Tensor neighbors, Tensor? weights, bool[2] mask)
        -> (Tensor gx, Tensor gweights);  g (b, n, d, c)

`lattice_ops` adds the convolutions on lattices, which have a rule in place of neighbours and weights, and `gram_ops` the
operators of style transfer.
A gradient that `mask` does not ask for is an empty tensor of shape (0,).

To add a kernel, write a function with the name and the arguments of the operator in the module that the table in
`select` names for the backend. It computes on plain tensors: autograd, autocast and vmap are done here, once for all
backends. `graph_conv` and `lattice_conv` get one argument more, `bias` (maps,), where one is to be added. In a
`..._backward` it returns None for what `mask` does not ask for. `known.reverse(neighbors, m)` is the
reversed graph, built when first asked for. Indices and shapes have been checked before a kernel is called.

`graph_conv`, `shared_conv` and `extract` of this module are functions that call their operators, `torch.ops.glocal`, or the
kernel at once where the dispatcher has nothing to add. They also take a single signal (m, c). Their derivatives are in
`derivatives`, the rules for vmap and autocast in `transforms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.kernels import known, select, transforms
from glocal.kernels.derivatives import multilinear

_GRAPH = "Tensor neighbors, Tensor? weights"
_SCHEMAS = {
    "graph_conv": f"(Tensor x, {_GRAPH}, Tensor filters) -> Tensor",
    "graph_conv_backward": f"(Tensor g, Tensor x, {_GRAPH}, Tensor filters, bool[3] mask) -> (Tensor, Tensor, Tensor)",
    "shared_conv": f"(Tensor x, {_GRAPH}, Tensor taps) -> Tensor",
    "shared_conv_backward": f"(Tensor g, Tensor x, {_GRAPH}, Tensor taps, bool[3] mask) -> (Tensor, Tensor, Tensor)",
    "extract": f"(Tensor x, {_GRAPH}) -> Tensor",
    "extract_backward": f"(Tensor g, Tensor x, {_GRAPH}, bool[2] mask) -> (Tensor, Tensor)",
}
_HALF = (torch.bfloat16, torch.float16)
library = torch.library.Library("glocal", "DEF")
for _name, _schema in _SCHEMAS.items():
    library.define(_name + _schema)


# Kernels: one entry for all devices; the table in `select` says whose function runs.


def call_backend(name: str, x: Tensor, *args: Any) -> Any:
    """Call the backend's function on checked arguments; bfloat16 and float16 go through float32 where it needs that."""
    backend, kernel = select.chosen_and_picked(name, x.device)
    if x.dtype in _HALF and not backend.half:
        wide = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        result = kernel(*wide)
        if isinstance(result, Tensor):
            return result.to(x.dtype)
        return tuple(None if part is None else part.to(x.dtype) for part in result)
    return kernel(*args)


def check(name: str, x: Tensor, neighbors: Tensor, weights: Tensor | None, *same: Tensor) -> None:
    """Refuse what a kernel could not read safely. `same` are tensors that must have the dtype of x."""
    if neighbors.ndim != 2 or neighbors.dtype != torch.int32 or x.ndim != 3:
        message = (
            f"{name}: x {tuple(x.shape)} and `neighbors` {tuple(neighbors.shape)} {neighbors.dtype} must be "
            "(b, m, c) and (n, d) int32. Use glocal.nn.functional."
        )
        raise ArgumentError(message)
    if weights is not None and weights.shape != neighbors.shape:
        message = (
            f"{name}: `weights` (shape {tuple(weights.shape)}) must have the shape of `neighbors` "
            f"{tuple(neighbors.shape)}. Give one value for each edge."
        )
        raise ArgumentError(message)
    for other in (*same, weights):
        if other is not None and (other.dtype != x.dtype or other.device != x.device):
            message = (
                f"{name}: the tensors have {x.dtype} on {x.device} and {other.dtype} on {other.device}. "
                "Convert them with .to(...)."
            )
            raise ArgumentError(message)
    known.check_range(neighbors, x.shape[-2])


def check_filters(name: str, filters: Tensor, expected: tuple[int, ...]) -> None:
    """Refuse filters that do not fit the graph or the signal."""
    if filters.shape[: len(expected)] != expected or filters.ndim not in (1, 3):
        message = f"{name}: the filters (shape {tuple(filters.shape)}) must start with {expected}: degree, channels."
        raise ArgumentError(message)


def _expected(name: str, x: Tensor, neighbors: Tensor) -> tuple[int, ...]:
    return (neighbors.shape[1], x.shape[-1]) if name == "graph_conv" else (neighbors.shape[1],)


def _forward(name: str) -> Callable[..., Tensor]:
    def run(
        x: Tensor, neighbors: Tensor, weights: Tensor | None, *filters: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        check(name, x, neighbors, weights, *filters)
        for f in filters:
            check_filters(name, f, _expected(name, x, neighbors))
        more = () if bias is None else (bias,)
        y: Tensor = known.reading(neighbors, x.shape[1], call_backend, name, x, x, neighbors, weights, *filters, *more)
        return y.contiguous()

    return run


def _backward(name: str) -> Callable[..., tuple[Tensor | None, ...]]:
    """Make the backward for arguments that have been checked."""

    def run(g: Tensor, x: Tensor, neighbors: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor | None, ...] = known.reading(
            neighbors, x.shape[1], call_backend, f"{name}_backward", x, g, x, neighbors, *rest
        )
        return found

    return run


def _checked_backward(name: str) -> Callable[..., tuple[Tensor, ...]]:
    backward = _backward(name)

    def run(g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
        *filters, mask = rest
        check(name, x, neighbors, weights, g, *filters)
        for f in filters:
            check_filters(name, f, _expected(name, x, neighbors))
        shape = _output(name, x, neighbors, *filters)
        if g.shape != shape:
            message = f"{name}: the gradient (shape {tuple(g.shape)}) must be {shape}. Use the shape of the result."
            raise ArgumentError(message)
        return filled(x, backward(g, x, neighbors, weights, *rest), mask)

    return run


def filled(x: Tensor, found: Sequence[Tensor | None], mask: Sequence[bool]) -> tuple[Tensor, ...]:
    """Replace gradients that are not needed by empty tensors: an operator returns tensors."""
    pairs = zip(found, mask, strict=True)
    return tuple(x.new_empty(0) if part is None or not need else part.contiguous() for part, need in pairs)


def _output(name: str, x: Tensor, neighbors: Tensor, *filters: Tensor) -> tuple[int, ...]:
    (b, _, c), (n, d) = x.shape, neighbors.shape
    return {"graph_conv": lambda: (b, n, filters[0].shape[2]), "shared_conv": lambda: (b, n, c)}.get(
        name, lambda: (b, n, d, c)
    )()


def _fake_forward(name: str) -> Callable[..., Tensor]:
    return lambda x, neighbors, weights, *filters: x.new_empty(_output(name, x, neighbors, *filters))


def _fake_backward(g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    *filters, mask = rest
    shapes = [x.shape, neighbors.shape, *(f.shape for f in filters)]
    return tuple(x.new_empty(shape if need else (0,)) for shape, need in zip(shapes, mask, strict=True))


@dataclass(frozen=True)
class Linear:
    """An operator that is linear in its arguments at `places`, and its backward: what they compute, on what shapes."""

    name: str
    places: tuple[int, ...]
    tensors: int
    forward: Callable[..., Tensor]
    backward: Callable[..., tuple[Tensor | None, ...]]
    """For arguments that have been checked."""
    checked_backward: Callable[..., tuple[Tensor, ...]]
    fake_forward: Callable[..., Tensor]
    fake_backward: Callable[..., tuple[Tensor, ...]]

    def register(self) -> Callable[..., Any]:
        """Register both operators, whose schemas are defined, with everything that is derived from them.

        Returns a function that calls the operator, see `derivatives.multilinear`.
        """
        name, pulled = self.name, f"{self.name}_backward"
        op, pull = getattr(torch.ops.glocal, name).default, getattr(torch.ops.glocal, pulled).default
        library.impl(name, self.forward, "CompositeExplicitAutograd")
        library.impl(pulled, self.checked_backward, "CompositeExplicitAutograd")
        torch.library.register_fake(f"glocal::{name}", self.fake_forward, lib=library)
        torch.library.register_fake(f"glocal::{pulled}", self.fake_backward, lib=library)
        torch.library.register_vmap(f"glocal::{name}", transforms.vmap_forward(op), lib=library)
        torch.library.register_vmap(f"glocal::{pulled}", transforms.vmap_backward(pull), lib=library)
        for operator in (name, pulled):
            transforms.autocast(library, operator, low=True)
        return multilinear(library, name, self.places, self.tensors, self.forward, self.backward)


def _registered(name: str, places: tuple[int, ...]) -> Callable[..., Any]:
    backward, checked = _backward(name), _checked_backward(name)
    fakes = _fake_forward(name), _fake_backward
    return Linear(name, places, max(places) + 1, _forward(name), backward, checked, *fakes).register()


graph_conv = _registered("graph_conv", (0, 2, 3))
shared_conv = _registered("shared_conv", (0, 2, 3))
extract = _registered("extract", (0, 2))
shared_conv_backward = torch.ops.glocal.shared_conv_backward.default
