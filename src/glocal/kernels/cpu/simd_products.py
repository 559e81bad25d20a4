"""Bounds for 64 vectors at a time: their distances from a box, and their inner products with a few others.

Works like `simd`, whose conventions hold. These numbers only decide which candidates are looked at, so multiplications
and additions may be fused; the caller allows for the rounding.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

from glocal.kernels.cpu.simd_build import FLOATS, I64, Floats, load, mask, point_to, splat, store

intrinsic: Any = extending.intrinsic  # to a type checker, what it makes would keep the argument `typing`

CELL = 64  # vectors that are stored together, one coordinate after another
GROUP = 4  # vectors compared with a cell at a time


@intrinsic
def product_masks(typing, rows, places, g, cells, c, dims, halves, h, least, masks):  # type: ignore[no-untyped-def]
    """`masks[g + i]`, bit l: `<a_i, b_l> - halves[h + l] >= least[g + i]`, for `GROUP` vectors a and `CELL` vectors b.

    Coordinate d of `a_i` is `rows[places[g + i] + d]`, that of `b_l` is `cells[c + 64 d + l]`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def point(array: int, index: Any) -> Any:
            return point_to(context, builder, signature.args[array], args[array], index)

        kind, count = Floats(builder), CELL // FLOATS
        fused = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind.vector, [kind.vector] * 3), f"llvm.fmuladd.v{FLOATS}f32"
        )
        places, cell, half = point(1, args[2]), point(3, args[4]), point(6, args[7])
        vectors = [point(0, builder.load(builder.gep(places, [I64(i)]))) for i in range(GROUP)]
        starts = [builder.fneg(load(builder, half, I64(FLOATS * j), kind.vector)) for j in range(count)]
        sums = [[cgutils.alloca_once_value(builder, start) for start in starts] for _ in range(GROUP)]
        with cgutils.for_range(builder, args[5], intp=I64) as loop:
            at = builder.mul(loop.index, I64(CELL))
            others = [load(builder, cell, builder.add(at, I64(FLOATS * j)), kind.vector) for j in range(count)]
            for i in range(GROUP):
                value = splat(builder, builder.load(builder.gep(vectors[i], [loop.index])), kind.vector)
                for slot, other in zip(sums[i], others, strict=True):
                    builder.store(builder.call(fused, [value, other, builder.load(slot)]), slot)
        least, masks = point(8, args[2]), point(9, args[2])
        for i in range(GROUP):
            bound = splat(builder, builder.load(builder.gep(least, [I64(i)])), kind.vector)
            large = [builder.fcmp_ordered(">=", builder.load(slot), bound) for slot in sums[i]]
            builder.store(mask(kind, large), builder.gep(masks, [I64(i)]))
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(rows, places, i8, cells, i8, i8, halves, i8, least, masks), codegen


@intrinsic
def less_products(typing, rows, a, cells, c, dims, halves, h, out, o):  # type: ignore[no-untyped-def]
    """`out[o + l] = halves[h + l] - <a, b_l>` for one vector at `rows[a]` and the `CELL` vectors b of a cell."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def point(array: int, index: Any) -> Any:
            return point_to(context, builder, signature.args[array], args[array], index)

        kind, count = Floats(builder), CELL // FLOATS
        row, cell, half, target = point(0, args[1]), point(2, args[3]), point(5, args[6]), point(7, args[8])
        starts = [load(builder, half, I64(FLOATS * j), kind.vector) for j in range(count)]
        sums = [cgutils.alloca_once_value(builder, start) for start in starts]
        with cgutils.for_range(builder, args[4], intp=I64) as loop:
            at = builder.mul(loop.index, I64(CELL))
            value = splat(builder, builder.load(builder.gep(row, [loop.index])), kind.vector)
            for j, slot in enumerate(sums):
                other = load(builder, cell, builder.add(at, I64(FLOATS * j)), kind.vector)
                builder.store(builder.fsub(builder.load(slot), builder.fmul(value, other)), slot)
        for j, slot in enumerate(sums):
            store(builder, builder.load(slot), target, I64(FLOATS * j))
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(rows, i8, cells, i8, i8, halves, i8, out, i8), codegen


@intrinsic
def row_gap(typing, left, a, right, b, vectors):  # type: ignore[no-untyped-def]
    """Compute the squared distance of `16 * vectors` numbers at `left[a]` and as many at `right[b]`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = Floats(builder)
        first, second = (point_to(context, builder, signature.args[i], args[i], args[i + 1]) for i in (0, 2))
        sums = ir.Constant(kind.vector, None)
        for v in range(signature.args[4].count):
            pair = (load(builder, side, I64(FLOATS * v), kind.vector) for side in (first, second))
            sums = kind.add(sums, kind.square_difference(*pair))
        single = ir.FloatType()
        add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(single, [single, kind.vector]), f"llvm.vector.reduce.fadd.v{FLOATS}f32"
        )
        return builder.call(add, [single(0.0), sums], fastmath=("reassoc",))

    i8 = types.int64
    return types.float32(left, i8, right, i8, vectors), codegen


@intrinsic
def box_mask(typing, cells, c, boxes, b, dims, limits, j):  # type: ignore[no-untyped-def]
    """Bit l: the squared distance of vector l of a cell from a box is at most `limits[j + l]`.

    The box reaches from `boxes[b + d]` to `boxes[b + dims + d]` along coordinate d.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def point(array: int, index: Any) -> Any:
            return point_to(context, builder, signature.args[array], args[array], index)

        def larger(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        kind, count = Floats(builder), CELL // FLOATS
        cell, low, high = point(0, args[1]), point(2, args[3]), point(2, builder.add(args[3], args[4]))
        zero = ir.Constant(kind.vector, None)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(count)]
        with cgutils.for_range(builder, args[4], intp=I64) as loop:
            at = builder.mul(loop.index, I64(CELL))
            below, above = (
                splat(builder, builder.load(builder.gep(side, [loop.index])), kind.vector) for side in (low, high)
            )
            for j, slot in enumerate(sums):
                x = load(builder, cell, builder.add(at, I64(FLOATS * j)), kind.vector)
                gap = larger(larger(builder.fsub(below, x), builder.fsub(x, above)), zero)
                builder.store(kind.add(builder.load(slot), builder.fmul(gap, gap)), slot)
        limits = point(5, args[6])
        near = [
            kind.at_most(builder.load(slot), load(builder, limits, I64(FLOATS * j), kind.vector))
            for j, slot in enumerate(sums)
        ]
        return mask(kind, near)

    i8 = types.int64
    return i8(cells, i8, boxes, i8, i8, limits, i8), codegen
