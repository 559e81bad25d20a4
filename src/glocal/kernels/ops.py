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
    gram(Tensor x, Tensor neighbors, Tensor? weights, Tensor filters, Tensor bias) -> (Tensor gram, Tensor maps)
        x (m, c), bias (maps,) -> the Gram matrix (maps, maps) in float64, and the maps in the backend's own layout.
        x may be float64 where the rest is float32: it then decides the signs of maps near 0.
    gram_backward(Tensor g, Tensor maps, Tensor x, Tensor neighbors, Tensor? weights, Tensor filters) -> Tensor
        g (maps, maps) -> the gradient of x (m, c) in the dtype of the filters
    variation(Tensor image) -> (Tensor value, Tensor slope)
        image (h, w, c) -> the total variation (a scalar) and its gradient (h, w, c)

`lattice_ops` adds the convolutions on lattices, which have a rule in place of neighbours and weights.
A gradient that `mask` does not ask for is an empty tensor of shape (0,).

To add a kernel, write a function with the name and the arguments of the operator in the module that the table in
`select` names for the backend. It computes on plain tensors: autograd, autocast and vmap are done here, once for all
backends. In a `..._backward` it returns None for what `mask` does not ask for. `known.reverse(neighbors, m)` is the
reversed graph, built when first asked for. Indices and shapes have been checked before a kernel is called.

`graph_conv`, `shared_conv` and `extract` are linear in each of their floating arguments. So the gradient of a backward
operator is a sum of the same operators with one argument replaced, and gradients of any order work on every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function
from torch.nn import Parameter

from glocal.errors import ArgumentError, DerivativeError
from glocal.kernels import known, select

_GRAPH = "Tensor neighbors, Tensor? weights"
_SCHEMAS = {
    "graph_conv": f"(Tensor x, {_GRAPH}, Tensor filters) -> Tensor",
    "graph_conv_backward": f"(Tensor g, Tensor x, {_GRAPH}, Tensor filters, bool[3] mask) -> (Tensor, Tensor, Tensor)",
    "shared_conv": f"(Tensor x, {_GRAPH}, Tensor taps) -> Tensor",
    "shared_conv_backward": f"(Tensor g, Tensor x, {_GRAPH}, Tensor taps, bool[3] mask) -> (Tensor, Tensor, Tensor)",
    "extract": f"(Tensor x, {_GRAPH}) -> Tensor",
    "extract_backward": f"(Tensor g, Tensor x, {_GRAPH}, bool[2] mask) -> (Tensor, Tensor)",
    "gram": f"(Tensor x, {_GRAPH}, Tensor filters, Tensor bias) -> (Tensor, Tensor)",
    "gram_backward": f"(Tensor g, Tensor maps, Tensor x, {_GRAPH}, Tensor filters) -> Tensor",
    "variation": "(Tensor image) -> (Tensor, Tensor)",
}
_HALF = (torch.bfloat16, torch.float16)
library = torch.library.Library("glocal", "DEF")
for _name, _schema in _SCHEMAS.items():
    library.define(_name + _schema)

graph_conv = torch.ops.glocal.graph_conv.default
shared_conv = torch.ops.glocal.shared_conv.default
shared_conv_backward = torch.ops.glocal.shared_conv_backward.default
extract = torch.ops.glocal.extract.default
gram = torch.ops.glocal.gram.default
gram_backward = torch.ops.glocal.gram_backward.default
variation = torch.ops.glocal.variation.default


# Kernels: one entry for all devices; the table in `select` says whose function runs.


def call_backend(name: str, x: Tensor, *args: Any) -> Any:
    """Call the backend's function on checked arguments; bfloat16 and float16 go through float32 where it needs that."""
    function = select.pick(name, x.device)
    if x.dtype in _HALF and not select.chosen(name, x.device).half:
        wide = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        result = function(*wide)
        if isinstance(result, Tensor):
            return result.to(x.dtype)
        return tuple(None if part is None else part.to(x.dtype) for part in result)
    return function(*args)


def _check(name: str, x: Tensor, neighbors: Tensor, weights: Tensor | None, *same: Tensor) -> None:
    """Refuse what a kernel could not read safely. `same` are tensors that must have the dtype of x."""
    if neighbors.ndim != 2 or neighbors.dtype != torch.int32 or x.ndim < 2:
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


def _check_filters(name: str, filters: Tensor, expected: tuple[int, ...]) -> None:
    if filters.shape[: len(expected)] != expected or filters.ndim not in (1, 3):
        message = f"{name}: the filters (shape {tuple(filters.shape)}) must start with {expected}: degree, channels."
        raise ArgumentError(message)


def _expected(name: str, x: Tensor, neighbors: Tensor) -> tuple[int, ...]:
    return (neighbors.shape[1], x.shape[-1]) if name == "graph_conv" else (neighbors.shape[1],)


def _forward(name: str) -> Callable[..., Tensor]:
    def run(x: Tensor, neighbors: Tensor, weights: Tensor | None, *filters: Tensor) -> Tensor:
        _check(name, x, neighbors, weights, *filters)
        for f in filters:
            _check_filters(name, f, _expected(name, x, neighbors))
        y: Tensor = call_backend(name, x, x, neighbors, weights, *filters)
        return y.contiguous()

    return run


def _backward(name: str) -> Callable[..., tuple[Tensor, ...]]:
    def run(g: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
        *filters, mask = rest
        _check(name, x, neighbors, weights, g, *filters)
        for f in filters:
            _check_filters(name, f, _expected(name, x, neighbors))
        shape = _output(name, x, neighbors, *filters)
        if g.shape != shape:
            message = f"{name}: the gradient (shape {tuple(g.shape)}) must be {shape}. Use the shape of the result."
            raise ArgumentError(message)
        found = call_backend(f"{name}_backward", x, g, x, neighbors, weights, *filters, mask)
        return tuple(
            x.new_empty(0) if part is None or not need else part.contiguous()
            for part, need in zip(found, mask, strict=True)
        )

    return run


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


def _gram(x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    _check("gram", filters.new_empty(x.shape[-2:]), neighbors, weights, filters, bias)
    _check_filters("gram", filters, (neighbors.shape[1], x.shape[-1]))
    found: tuple[Tensor, Tensor] = select.pick("gram", x.device)(x, neighbors, weights, filters, bias)
    return found


def _gram_backward(
    g: Tensor, maps: Tensor, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor
) -> Tensor:
    _check("gram", filters.new_empty(x.shape[-2:]), neighbors, weights, filters)
    _check_filters("gram", filters, (neighbors.shape[1], x.shape[-1]))
    m, expected = filters.shape[2], select.pick("gram_maps", x.device)(x, neighbors, filters).shape
    if g.shape != (m, m) or maps.shape != expected:
        message = (
            f"gram: the gradient {tuple(g.shape)} and the maps {tuple(maps.shape)} must be {(m, m)} and "
            f"{tuple(expected)}. Use what `gram` returned."
        )
        raise ArgumentError(message)
    gx: Tensor = select.pick("gram_backward", x.device)(g, maps, x, neighbors, weights, filters)
    return gx


def _fake_gram(x: Tensor, neighbors: Tensor, weights: Any, filters: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    maps: Tensor = select.pick("gram_maps", x.device)(x, neighbors, filters)
    m = filters.shape[2]
    return x.new_empty(m, m, dtype=torch.float64), maps


def _variation(image: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = select.pick("variation", image.device)(image)
    return found


# Autograd. Under the dispatcher a Function sees one level of functorch at a time, so it may run inside of transforms.


def _under(op: Callable[..., Any], *args: Any) -> Any:
    """Call `op` below autograd. The outer levels of `torch.func` still record, so they need gradients switched on."""
    if torch._C._are_functorch_transforms_active():
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return op(*args)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def _plain(tensors: Sequence[Tensor | None]) -> bool:
    """Whether no mode, transform or subclass intercepts operators. Then a kernel can be called directly."""
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return False
    return all(t is None or (type(t) in (Tensor, Parameter) and not t.is_meta) for t in tensors)


def _differentiable(name: str, function: type[Function]) -> None:
    """Register `function` as the derivative of an operator."""
    apply: Callable[..., Any] = super(Function, function).apply  # type: ignore[misc]

    def run(*args: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            before = torch._C._functorch.get_single_level_autograd_function_allowed()
            torch._C._functorch.set_single_level_autograd_function_allowed(True)
            try:
                return apply(*args)
            finally:
                torch._C._functorch.set_single_level_autograd_function_allowed(before)
        return apply(*args)

    library.impl(name, run, "Autograd")


def _multilinear(
    name: str, places: tuple[int, ...], tensors: int, kernel: Callable[..., Any], pull_kernel: Callable[..., Any]
) -> None:
    """Register the derivatives of an operator that is linear in each of its arguments at `places`, and of its backward.

    Its first arguments, `tensors` of them, are tensors; the others are constants. The kernels are called directly where
    the dispatcher has nothing to add, which saves a good part of the cost of a small call.
    With `y = T(a_1, ..., a_k)`, the gradient of a_p is `B_p(g; a)`. For the gradients G_p of what B returns,
    `sum_p <G_p, B_p(g; a)> = sum_p <g, T(a with G_p for a_p)>`, which is differentiated by the same rule.
    """
    op = getattr(torch.ops.glocal, name).default
    pull = getattr(torch.ops.glocal, f"{name}_backward").default

    def replaced(args: list[Any], place: int, value: Tensor) -> list[Any]:
        return [value if p == place else a for p, a in enumerate(args)]

    class Forward(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Tensor:
            ctx.save_for_backward(*args[:tensors])
            ctx.constants = args[tensors:]
            y: Tensor = kernel(*args) if _plain(args[:tensors]) else _under(op, *args)
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            saved = ctx.saved_tensors
            args = (*saved, *ctx.constants)
            mask = [bool(ctx.needs_input_grad[p]) for p in places]
            result: list[Tensor | None] = [None] * len(args)
            direct = not torch.is_grad_enabled() and _plain((g, *saved))
            for p, need, part in zip(places, mask, (pull_kernel if direct else pull)(g, *args, mask), strict=True):
                result[p] = part if need else None
            return tuple(result)

    class Backward(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
            ctx.save_for_backward(*args[: tensors + 1])
            ctx.constants, ctx.mask = args[tensors + 1 : -1], args[-1]
            ctx.set_materialize_grads(False)
            found: tuple[Tensor, ...] = _under(pull, *args)
            return found

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            g, args = ctx.saved_tensors[0], [*ctx.saved_tensors[1:], *ctx.constants]
            needs_g, *needs = ctx.needs_input_grad[:-1]
            result: list[Tensor | None] = [None] * (len(args) + 2)
            for p, given, asked in zip(places, grads, ctx.mask, strict=True):
                if given is None or not asked:
                    continue
                other = replaced(args, p, given)
                if needs_g:
                    y = op(*other)
                    result[0] = y if result[0] is None else result[0] + y
                mask = [bool(needs[q]) and q != p for q in places]
                if any(mask):
                    for q, need, part in zip(places, mask, pull(g, *other, mask), strict=True):
                        before = result[q + 1]
                        if need:
                            result[q + 1] = part if before is None else before + part
            return tuple(result)

    _differentiable(name, Forward)
    _differentiable(f"{name}_backward", Backward)


class _Gram(Function):
    """`gram`, with a gradient for x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, bias: Tensor) -> Any:
        total, maps = _under(gram, x, neighbors, weights, filters, bias)
        ctx.save_for_backward(maps, x, neighbors, weights, filters)
        ctx.mark_non_differentiable(maps)
        return total, maps

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if any(ctx.needs_input_grad[2:]):
            message = (
                "glocal::gram: only x has a gradient. Use glocal.nn.functional.gram for the gradients of the others."
            )
            raise DerivativeError(message)
        maps, x, neighbors, weights, filters = ctx.saved_tensors
        return gram_backward(g, maps, x, neighbors, weights, filters).to(x.dtype), None, None, None, None


class _GramBackward(Function):
    """The gradient of `gram`, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        return _under(gram_backward, *args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        message = (
            "gram: its gradient cannot be differentiated again. "
            "Compute `maps = relu(graph_conv(x, graph, filters) + bias)` and `maps.T @ maps` instead."
        )
        raise DerivativeError(message)


class _Variation(Function):
    """`variation`: its slope is found on the way, and is constant almost everywhere."""

    @staticmethod
    def forward(ctx: Any, image: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = _under(variation, image)
        ctx.save_for_backward(slope)
        ctx.mark_non_differentiable(slope)
        return value, slope

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return g * slope


# vmap: signals fold into the batch; everything else is done one after the other.


def _fold(x: Tensor, dim: int | None, size: int) -> Tensor:
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.flatten(0, 1)


def _each(op: Callable[..., Any], info: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Call `op` for every member of the batch and stack the results."""
    dims = [dim if isinstance(dim, int) else None for dim in in_dims]
    results = [
        op(*(a if dim is None else a.select(dim, i) for a, dim in zip(args, dims, strict=True)))
        for i in range(info.batch_size)
    ]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0,) * len(results[0])


def _vmap_forward(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        if any(isinstance(dim, int) for dim in in_dims[1:]):
            return _each(op, info, in_dims, args)
        y = op(_fold(args[0], in_dims[0], info.batch_size), *args[1:])
        return y.unflatten(0, (info.batch_size, -1)), 0

    return rule


def _vmap_backward(op: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        g, x, *rest = args
        if any(rest[-1][1:]) or any(isinstance(dim, int) for dim in in_dims[2:]):
            return _each(op, info, in_dims, args)
        found = op(*(_fold(t, dim, info.batch_size) for t, dim in zip((g, x), in_dims[:2], strict=True)), *rest)
        return (found[0].unflatten(0, (info.batch_size, -1)), *found[1:]), (0, *[None] * (len(found) - 1))

    return rule


# Autocast: convolutions run in the dtype of the region, sums of squares and of differences in float32.


def _autocast(name: str, device_type: str, key: str) -> None:
    op = getattr(torch.ops.glocal, name).default
    low = name not in ("gram", "gram_backward", "variation")
    off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def rule(*args: Any) -> Any:
        floats = [a for a in args if isinstance(a, Tensor) and a.is_floating_point()]
        with torch._C._ExcludeDispatchKeyGuard(off):
            if any(t.dtype == torch.float64 for t in floats):  # as torch's own rules: float64 stays
                return op(*args)
            dtype = torch.get_autocast_dtype(device_type) if low else torch.float32
            return op(*(a.to(dtype) if isinstance(a, Tensor) and a.is_floating_point() else a for a in args))

    library.impl(name, rule, key)


@dataclass(frozen=True)
class Linear:
    """An operator that is linear in its arguments at `places`, and its backward: what they compute, on what shapes."""

    name: str
    places: tuple[int, ...]
    tensors: int
    forward: Callable[..., Tensor]
    backward: Callable[..., tuple[Tensor, ...]]
    fake_forward: Callable[..., Tensor]
    fake_backward: Callable[..., tuple[Tensor, ...]]

    def register(self) -> None:
        """Register both operators, whose schemas are defined, with everything that is derived from them."""
        name, pulled = self.name, f"{self.name}_backward"
        op, pull = getattr(torch.ops.glocal, name).default, getattr(torch.ops.glocal, pulled).default
        library.impl(name, self.forward, "CompositeExplicitAutograd")
        library.impl(pulled, self.backward, "CompositeExplicitAutograd")
        torch.library.register_fake(f"glocal::{name}", self.fake_forward, lib=library)
        torch.library.register_fake(f"glocal::{pulled}", self.fake_backward, lib=library)
        torch.library.register_vmap(f"glocal::{name}", _vmap_forward(op), lib=library)
        torch.library.register_vmap(f"glocal::{pulled}", _vmap_backward(pull), lib=library)
        _multilinear(name, self.places, self.tensors, self.forward, self.backward)
        for operator in (name, pulled):
            _autocast(operator, "cpu", "AutocastCPU")
            _autocast(operator, "cuda", "AutocastCUDA")


def _register() -> None:
    for name, places in (("graph_conv", (0, 2, 3)), ("shared_conv", (0, 2, 3)), ("extract", (0, 2))):
        tensors = max(places) + 1
        Linear(name, places, tensors, _forward(name), _backward(name), _fake_forward(name), _fake_backward).register()
    others: tuple[tuple[str, Any, Any, type[Function]], ...] = (
        ("gram", _gram, _fake_gram, _Gram),
        ("gram_backward", _gram_backward, lambda g, maps, x, nb, w, f: torch.empty_like(x, dtype=f.dtype), _GramBackward),
        ("variation", _variation, lambda image: (image.new_empty(()), image.new_empty(image.shape)), _Variation),
    )  # fmt: skip
    for name, kernel, fake, function in others:
        op = getattr(torch.ops.glocal, name).default
        library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"glocal::{name}", fake, lib=library)
        torch.library.register_vmap(
            f"glocal::{name}", lambda info, dims, *args, op=op: _each(op, info, dims, args), lib=library
        )
        _differentiable(name, function)
        _autocast(name, "cpu", "AutocastCPU")
        _autocast(name, "cuda", "AutocastCUDA")


_register()
