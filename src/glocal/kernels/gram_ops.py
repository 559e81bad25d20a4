"""The operators of style transfer: Gram matrices of the maps of a layer, and the total variation.

    gram(Tensor x, Tensor neighbors, Tensor? weights, Tensor filters, Tensor bias, Tensor? shares) -> (Tensor gram, Tensor maps)
        x (m, c), bias (maps,) -> the Gram matrix (maps, maps) in float64, and the maps in the backend's own layout.
        x may be float64 where the rest is float32: it then decides the signs of maps near 0.
        With shares (r, n) there is one Gram matrix for each region: (r, maps, maps), where vertex i counts shares[r, i] times.
    gram_backward(Tensor g, Tensor maps, Tensor x, Tensor neighbors, Tensor? weights, Tensor filters, Tensor? shares) -> Tensor
        g, as the Gram matrix -> the gradient of x (m, c) in the dtype of the filters
    variation(Tensor image) -> (Tensor value, Tensor slope)
        image (h, w, c) -> the total variation (a scalar) and its gradient (h, w, c)

Everything else is as in `ops`. Gram matrices have a gradient for x only, which cannot be differentiated again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glocal.errors import ArgumentError, DerivativeError
from glocal.kernels import known, ops, select, transforms
from glocal.kernels.derivatives import SingleLevel, differentiable, under

_GRAPH = "Tensor neighbors, Tensor? weights"
_SCHEMAS = {
    "gram": f"(Tensor x, {_GRAPH}, Tensor filters, Tensor bias, Tensor? shares=None) -> (Tensor, Tensor)",
    "gram_backward": f"(Tensor g, Tensor maps, Tensor x, {_GRAPH}, Tensor filters, Tensor? shares=None) -> Tensor",
    "variation": "(Tensor image) -> (Tensor, Tensor)",
}
for _name, _schema in _SCHEMAS.items():
    ops.library.define(_name + _schema)
gram = torch.ops.glocal.gram.default
gram_backward = torch.ops.glocal.gram_backward.default
variation = torch.ops.glocal.variation.default


def _gram(
    x: Tensor,
    neighbors: Tensor,
    weights: Tensor | None,
    filters: Tensor,
    bias: Tensor,
    shares: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    _check(x, neighbors, weights, filters, shares, bias)
    kernel, args = select.pick("gram", x.device), (x, neighbors, weights, filters, bias, shares)
    found: tuple[Tensor, Tensor] = known.reading(neighbors, x.shape[-2], kernel, *args)
    return found


def _check(
    x: Tensor, neighbors: Tensor, weights: Tensor | None, filters: Tensor, shares: Tensor | None, *bias: Tensor
) -> None:
    ops.check("gram", filters.new_empty(1, *x.shape[-2:]), neighbors, weights, filters, *bias)
    ops.check_filters("gram", filters, (neighbors.shape[1], x.shape[-1]))
    n = neighbors.shape[0]
    if shares is not None and (shares.shape[1:] != (n,) or shares.dtype != filters.dtype or len(shares) == 0):
        message = (
            f"gram: `shares` ({tuple(shares.shape)}, {shares.dtype}) must be (r, n={n}), {filters.dtype}. "
            "Give each region one number for each vertex."
        )
        raise ArgumentError(message)


def _matrices(m: Any, shares: Tensor | None) -> tuple[Any, ...]:
    return (m, m) if shares is None else (shares.shape[0], m, m)


def _gram_backward(
    g: Tensor,
    maps: Tensor,
    x: Tensor,
    neighbors: Tensor,
    weights: Tensor | None,
    filters: Tensor,
    shares: Tensor | None = None,
) -> Tensor:
    _check(x, neighbors, weights, filters, shares)
    matrices = _matrices(filters.shape[2], shares)
    expected = select.pick("gram_maps", x.device)(x, neighbors, filters).shape
    if g.shape != matrices or maps.shape != expected:
        message = (
            f"gram: the gradient {tuple(g.shape)} and the maps {tuple(maps.shape)} must be {matrices} and "
            f"{tuple(expected)}. Use what `gram` returned."
        )
        raise ArgumentError(message)
    kernel, args = select.pick("gram_backward", x.device), (g, maps, x, neighbors, weights, filters, shares)
    gx: Tensor = known.reading(neighbors, x.shape[-2], kernel, *args)
    return gx


def _fake_gram(
    x: Tensor, neighbors: Tensor, weights: Any, filters: Tensor, bias: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    maps: Tensor = select.pick("gram_maps", x.device)(x, neighbors, filters)
    return x.new_empty(_matrices(filters.shape[2], shares), dtype=torch.float64), maps


def _variation(image: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = select.pick("variation", image.device)(image)
    return found


_FORWARD = "it has no derivative in forward mode. Use torch.func.grad or .backward()."


class _Gram(SingleLevel):
    """`gram`, with a gradient for x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        neighbors: Tensor,
        weights: Tensor | None,
        filters: Tensor,
        bias: Tensor,
        shares: Tensor | None = None,
    ) -> Any:
        total, maps = under(gram, x, neighbors, weights, filters, bias, shares)
        ctx.given = 5 if shares is None else 6  # the dispatcher leaves out what has its default
        ctx.save_for_backward(maps, x, neighbors, weights, filters, shares)
        ctx.mark_non_differentiable(maps)
        return total, maps

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if any(ctx.needs_input_grad[2:]):
            message = (
                "glocal::gram: only x has a gradient. Use glocal.nn.functional.gram for the gradients of the others."
            )
            raise DerivativeError(message)
        maps, x, neighbors, weights, filters, shares = ctx.saved_tensors
        gx = gram_backward(g, maps, x, neighbors, weights, filters, shares).to(x.dtype)
        return (gx, *[None] * (ctx.given - 1))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise DerivativeError("gram: " + _FORWARD)


class _GramBackward(SingleLevel):
    """The gradient of `gram`, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        return under(gram_backward, *args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        message = (
            "gram: its gradient cannot be differentiated again. "
            "Compute `maps = relu(graph_conv(x, graph, filters) + bias)` and `maps.T @ maps` instead."
        )
        raise DerivativeError(message)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise DerivativeError("gram: " + _FORWARD)


class _Variation(SingleLevel):
    """`variation`: its slope is found on the way, and is constant almost everywhere."""

    @staticmethod
    def forward(ctx: Any, image: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = under(variation, image)
        ctx.save_for_backward(slope)
        ctx.mark_non_differentiable(slope)
        return value, slope

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return g * slope

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise DerivativeError("total_variation: " + _FORWARD)


def _register() -> None:
    rules: tuple[tuple[str, Any, Any, type[SingleLevel]], ...] = (
        ("gram", _gram, _fake_gram, _Gram),
        ("gram_backward", _gram_backward, lambda g, maps, x, nb, w, f, s=None: torch.empty_like(x, dtype=f.dtype), _GramBackward),
        ("variation", _variation, lambda image: (image.new_empty(()), image.new_empty(image.shape)), _Variation),
    )  # fmt: skip
    for name, kernel, fake, function in rules:
        op = getattr(torch.ops.glocal, name).default
        ops.library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"glocal::{name}", fake, lib=ops.library)
        torch.library.register_vmap(
            f"glocal::{name}", lambda info, dims, *args, op=op: transforms.each(op, info, dims, args), lib=ops.library
        )
        differentiable(ops.library, name, function)
        transforms.autocast(ops.library, name, low=False)


_register()
