"""Derivatives of the operators, once for all backends.

A convolution on a graph is linear in each of its floating arguments. So the gradients of its backward operator are sums of
the same operators with one argument replaced, and derivatives of any order work on every backend, in both modes.

Under the dispatcher a function sees one level of functorch at a time. So they are `SingleLevel`, the base of `torch.autograd.Function`,
which torch itself uses inside of transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction as SingleLevel
from torch.nn import Parameter

Run = Callable[..., Any]
_PLAIN = (Tensor, Parameter)


def under(op: Run, *args: Any) -> Any:
    """Call `op` below autograd. The outer levels of `torch.func` still record, so they need both modes switched on."""
    if torch._C._are_functorch_transforms_active():
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
            return op(*args)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def plain(tensors: Sequence[Tensor | None]) -> bool:
    """Whether no mode, transform or subclass intercepts operators. Then a kernel can be called directly."""
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return False
    for t in tensors:  # noqa: SIM110  (a generator would cost as much as a small kernel)
        if t is not None and (type(t) not in _PLAIN or t.is_meta):
            return False
    return True


def differentiable(library: torch.library.Library, name: str, function: type[SingleLevel]) -> None:
    """Register `function` as the derivative of an operator."""
    apply: Run = function.apply  # type: ignore[attr-defined]

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


def multilinear(
    library: torch.library.Library, name: str, places: tuple[int, ...], tensors: int, kernel: Run, backward_kernel: Run
) -> Run:
    """Register the derivatives of an operator that is linear in each of its arguments at `places`, and of its backward.

    Its first arguments, `tensors` of them, are tensors; the others are constants. With `y = T(a_1, ..., a_k)` the gradient
    of a_p is `B_p(g; a)`. For the gradients G_p of what B returns, `sum_p <G_p, B_p(g; a)> = sum_p <g, T(a with G_p for
    a_p)>`, which is differentiated by the same rule.

    Parameters
    ----------
    kernel, backward_kernel
        What computes T and B on plain tensors. T checks its arguments, B gets those of T again, g before them, and a list
        after them that says which gradients are needed.

    Returns
    -------
    callable
        Calls the operator, or the kernel directly where the dispatcher has nothing to add. That saves a good part of the
        cost of a small call. A signal (m, c) is a batch of one, and so is its result. With `bias=`, one number for each
        place of the last axis is added to the result: by the kernel, where it is called directly.
    """
    op = getattr(torch.ops.glocal, name).default
    forward, direct, backward = _functions(name, places, tensors, kernel, backward_kernel)
    differentiable(library, name, forward)
    differentiable(library, f"{name}_backward", backward)
    apply: Run = direct.apply  # type: ignore[attr-defined]

    def call(*args: Any, bias: Tensor | None = None) -> Any:
        given = (bias, *args[:tensors])
        if torch.compiler.is_compiling() or not plain(given) or _watched(args[0].device.type):
            y = _on_batch(op, *args)
            return y if bias is None else y + bias.to(y.dtype)
        if torch.is_grad_enabled():
            for t in given:
                if t is not None and t.requires_grad:
                    return apply(*args, bias)
        more = {} if bias is None else {"bias": bias}
        return _on_batch(kernel, *args, **more)

    return call


def _functions(
    name: str, places: tuple[int, ...], tensors: int, kernel: Run, backward_kernel: Run
) -> tuple[type[SingleLevel], type[SingleLevel], type[SingleLevel]]:
    op = getattr(torch.ops.glocal, name).default
    pull = getattr(torch.ops.glocal, f"{name}_backward").default

    def pulled(
        g: Tensor, saved: Sequence[Tensor | None], constants: Sequence[Any], needs: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of all arguments."""
        mask = [needs[p] for p in places]
        direct = not torch.is_grad_enabled() and plain((g, *saved))
        found = (backward_kernel if direct else pull)(g, *saved, *constants, mask)
        result: list[Tensor | None] = [None] * (tensors + len(constants))
        for p, need, part in zip(places, mask, found, strict=True):
            result[p] = part if need else None
        return tuple(result)

    class Forward(SingleLevel):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Tensor:
            _keep(ctx, args[:tensors])
            ctx.constants = args[tensors:]
            y: Tensor = kernel(*args) if plain(args[:tensors]) else under(op, *args)
            return y.clone() if y._is_view() else y  # of the reference: the caller could not write to a view made here

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            return pulled(g, ctx.saved_tensors, ctx.constants, ctx.needs_input_grad)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Tensor:
            args = [*ctx.saved_tensors, *ctx.constants]
            parts = [op(*_replaced(args, p, tangents[p])) for p in places if tangents[p] is not None]
            return _sum(parts)

    class Direct(Forward):
        """`Forward` for plain tensors outside of the dispatcher, in backward mode: nothing has to be asked.

        Its last argument is the bias or None.
        """

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Tensor:
            *given, bias = args
            ctx.save_for_backward(*args[:tensors])
            ctx.constants, ctx.single = args[tensors:-1], args[0].ndim == 2
            if ctx.single:
                given[0] = given[0].unsqueeze(0)
            y: Tensor = kernel(*given) if bias is None else kernel(*given, bias=bias)
            if y._is_view():
                y = y.clone()
            return y.squeeze_(0) if ctx.single else y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            needs, saved = ctx.needs_input_grad, ctx.saved_tensors
            gbias = g.flatten(0, -2).sum(0) if needs[-1] else None
            if not ctx.single:
                return *pulled(g, saved, ctx.constants, needs), gbias
            x, *rest = saved
            gx, *found = pulled(g.unsqueeze(0), (x.unsqueeze(0), *rest), ctx.constants, needs)
            return None if gx is None else gx.squeeze(0), *found, gbias

    class Backward(SingleLevel):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
            _keep(ctx, args[: tensors + 1])
            ctx.constants, ctx.mask = args[tensors + 1 : -1], args[-1]
            ctx.set_materialize_grads(False)
            found: tuple[Tensor, ...] = under(pull, *args)
            return found

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            g, args = ctx.saved_tensors[0], [*ctx.saved_tensors[1:], *ctx.constants]
            needs_g, *needs = ctx.needs_input_grad[:-1]
            result: list[Tensor | None] = [None] * (len(args) + 2)
            for p, given, asked in zip(places, grads, ctx.mask, strict=True):
                if given is None or not asked:
                    continue
                other = _replaced(args, p, given)
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

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
            g, args = ctx.saved_tensors[0], [*ctx.saved_tensors[1:], *ctx.constants]
            parts: list[list[Tensor]] = [[] for _ in places]
            changes = [(-1, tangents[0]), *((q, tangents[q + 1]) for q in places)]
            for q, tangent in changes:  # -1 is g; B_p does not depend on a_p
                mask = [bool(asked) and p != q for p, asked in zip(places, ctx.mask, strict=True)]
                if tangent is None or not any(mask):
                    continue
                found = pull(tangent, *args, mask) if q < 0 else pull(g, *_replaced(args, q, tangent), mask)
                for some, part, need in zip(parts, found, mask, strict=True):
                    some += [part] if need else []
            shapes = [args[p] for p in places]
            return tuple(
                _sum(some) if some else (like.new_zeros(like.shape) if asked else g.new_zeros(0))
                for some, like, asked in zip(parts, shapes, ctx.mask, strict=True)
            )

    return Forward, Direct, Backward


def _on_batch(run: Run, x: Tensor, *args: Any, **more: Any) -> Tensor:
    """Run it on a batch of signals; a single signal is a batch of one."""
    if x.ndim != 2:
        y: Tensor = run(x, *args, **more)
        return y
    return run(x.unsqueeze(0), *args, **more).squeeze(0)  # type: ignore[no-any-return]


def _watched(device_type: str) -> bool:
    """Whether torch changes or records the calls of operators here."""
    return (
        torch.is_autocast_enabled(device_type)
        or forward_ad._current_level >= 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch._C._autograd._profiler_enabled()
    )


def _keep(ctx: Any, tensors: Sequence[Tensor | None]) -> None:
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def _replaced(args: Sequence[Any], place: int, value: Tensor) -> list[Any]:
    return [value if p == place else a for p, a in enumerate(args)]


def _sum(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
