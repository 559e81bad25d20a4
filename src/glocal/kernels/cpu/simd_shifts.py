"""Coarse patch distances at 32 shifts at a time: the loop in which the search over all pairs spends most of its time.

A lane is a shift, so the windows of all lanes move together: the sum of the next window is the last one plus what comes
in minus what falls out, without a single exchange between lanes. Floats would drift; these are 16-bit integers, which
do not. Each squared difference is rounded down to units of 2^16 and cut at `cap`, the largest value of which a whole
patch fits into 16 bits, so a sum is never more than the exact one: a lower bound.

Works like `simd`, whose conventions hold: LLVM turns the vectors into what the machine has, and no bounds are checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

from glocal.kernels.cpu.simd_build import I32, I64, load, point_to, splat, store

intrinsic: Any = extending.intrinsic  # to a type checker, what it makes would keep the argument `typing`

SHIFTS = 32  # int16 values in a vector
_SHORT = ir.IntType(16)
_VECTOR = ir.VectorType(_SHORT, SHIFTS)
_WIDE = ir.VectorType(I32, SHIFTS)
_LINE = 64  # bytes: what is written here begins at a cache line


def _call(builder: Any, name: str, a: Any, b: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{SHIFTS}i16")
    return builder.call(function, [a, b])


def _square(builder: Any, a: Any, b: Any) -> Any:
    """floor(e^2 / 2^16) for e = a - b cut to 16 bits."""
    e = builder.sext(_call(builder, "ssub.sat", a, b), _WIDE)
    return builder.trunc(builder.lshr(builder.mul(e, e), _WIDE([16] * SHIFTS)), _VECTOR)


@intrinsic
def shift_row(  # type: ignore[no-untyped-def]
    typing, flat, a, shift, plane, columns, cap, cells, sums, above, here, limits, t, masks, channels, ph, pw
):
    """Compare one row of patches, those whose last rows begin at `flat[a]`, with their partners at 32 shifts.

    `masks[x]`, bit l: the bound between patch `t + x` and patch `t + x + shift + l` is at most the larger of their
    `limits`. For patches of several rows, `sums[here + ...]` are the columns' sums over all rows so far; `ph` such rows
    are kept, `above` is the last one and `here` the oldest, which is replaced. `cells` holds one row of squares.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, height, width = (t.count for t in signature.args[13:])
        _, a, shift, plane, columns, cap = args[:6]

        def point(array: int, index: Any) -> Any:
            return point_to(context, builder, signature.args[array], args[array], index)

        first, second = point(0, a), point(0, builder.add(a, shift))
        cells, above, here = point(6, I64(0)), point(7, args[8]), point(7, args[9])
        limit, others = point(10, args[11]), point(10, builder.add(args[11], shift))
        masks = point(12, I64(0))
        most = splat(builder, builder.trunc(cap, _SHORT), _VECTOR)
        window = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, None))  # LLVM keeps it in a register

        def one(pointer: Any, at: Any) -> Any:
            return splat(builder, builder.load(builder.gep(pointer, [at])), _VECTOR)

        def come_in(x: Any) -> Any:
            total = builder.load(window)
            cell = None
            for channel in range(c):
                at = builder.add(x, builder.mul(plane, I64(channel)))
                square = _square(builder, one(first, at), load(builder, second, at, _VECTOR, 2))
                square = _call(builder, "umin", square, most)
                cell = square if cell is None else builder.add(cell, square)
            store(builder, cell, cells, builder.mul(x, I64(SHIFTS)), _LINE)
            return builder.add(total, cell)

        with cgutils.for_range(builder, I64(width - 1), intp=I64) as loop:
            builder.store(come_in(loop.index), window)
        with cgutils.for_range(builder, columns, intp=I64) as loop:
            x, at = loop.index, builder.mul(loop.index, I64(SHIFTS))
            total = come_in(builder.add(x, I64(width - 1)))
            builder.store(builder.sub(total, load(builder, cells, at, _VECTOR, _LINE)), window)
            if height > 1:
                column = builder.add(total, load(builder, above, at, _VECTOR, _LINE))
                total = builder.sub(column, load(builder, here, at, _VECTOR, _LINE))
                store(builder, column, here, at, _LINE)
            larger = _call(builder, "umax", one(limit, x), load(builder, others, x, _VECTOR, 2))
            near = builder.icmp_unsigned("<=", total, larger)
            builder.store(builder.bitcast(near, I32), builder.gep(masks, [x]))
        return context.get_dummy_value()

    i8 = types.int64
    result = types.void(flat, i8, i8, i8, i8, i8, cells, sums, i8, i8, limits, i8, masks, channels, ph, pw)
    return result, codegen


@intrinsic
def any_set(typing, masks, x):  # type: ignore[no-untyped-def]
    """Bit l: `masks[x + l]` is not zero, 16 bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(I32, 16)
        found = load(builder, point_to(context, builder, signature.args[0], *args), I64(0), vector)
        bits = builder.bitcast(builder.icmp_unsigned("!=", found, ir.Constant(vector, None)), _SHORT)
        return builder.zext(bits, I64)

    return types.int64(masks, types.int64), codegen
