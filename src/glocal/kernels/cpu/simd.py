"""Vectors for Numba: the few operations the neighbour search spends its time in, 64 bytes at a time.

Numba's own loops do not reach lane shifts, bit masks of comparisons or 64-bit minima; LLVM does. Each operation here
writes LLVM instructions on vectors of 16 float32 or 8 int64, which LLVM turns into AVX-512, AVX2, SSE or NEON,
whichever the machine has. They read and write flat arrays at given offsets and check no bounds: the caller keeps a
margin. The 16-bit integers of the coarse search are in `simd_shifts`.

Sums follow `reference_search.window_sum` addition by addition, and multiplications are never fused with additions, so float32
distances have the bits of the reference. Sizes that shape the code (channels, patch, vectors) are compile-time
constants, passed as the length of a tuple: see `constant`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

from glocal.kernels.cpu.simd_build import (
    FLOATS,
    I32,
    I64,
    KEYS,
    Floats,
    Rolling,
    channel_sum,
    load,
    mask,
    point_to,
    splat,
    splat_sum,
    store,
    sum_all,
    sum_along,
    two_sum,
)

intrinsic: Any = extending.intrinsic  # to a type checker, what it makes would keep the argument `typing`
_INT_VECTOR = ir.VectorType(I32, FLOATS)
_KEY_VECTOR = ir.VectorType(I64, KEYS)


def constant(n: int) -> tuple[bool, ...]:
    """Make a tuple of `n` entries: Numba knows its length when it compiles.

    >>> constant(3)
    (False, False, False)
    """
    return (False,) * n


# In each: `flat` holds planes one after another, `plane` entries apart, with rows `row` entries apart.


@intrinsic
def strip_distances(typing, left, a, right, b, row, plane, rows, out, channels, ph, pw, inputs, vectors):  # type: ignore[no-untyped-def]
    """Squared patch distances between two strips of rows that begin at `left[a]` and `right[b]`.

    Reads `inputs` vectors of each row and writes `rows` rows of `vectors` vectors to `out`; the columns that need
    more than was read, those from `16 inputs - pw + 1` on, are meaningless.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, height, width, m, outputs = (t.count for t in signature.args[8:])
        kind = Floats(builder)
        first, second = (point_to(context, builder, signature.args[i], args[i], args[i + 1]) for i in (0, 2))
        target = point_to(context, builder, signature.args[7], args[7], I64(0))
        sums = [Rolling(kind, height) for _ in range(m)]

        def push(t: Any) -> list[Any]:
            start = builder.mul(t, args[4])
            at = [builder.add(start, I64(kind.lanes * j)) for j in range(m)]
            return [sums[j].push(channel_sum(kind, first, second, at[j], args[5], c)) for j in range(m)]

        for t in range(height - 1):
            push(I64(t))
        with cgutils.for_range(builder, args[6], intp=I64) as loop:
            column_sums = push(builder.add(loop.index, I64(height - 1)))
            start = builder.mul(loop.index, I64(kind.lanes * outputs))
            for j, d2 in enumerate(sum_along(kind, column_sums, width, outputs)):
                store(builder, d2, target, builder.add(start, I64(kind.lanes * j)))
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(left, i8, right, i8, i8, i8, i8, out, channels, ph, pw, inputs, vectors), codegen


@intrinsic
def column_sums(typing, flat, a, b, row, plane, rows, out, o, step, channels, ph):  # type: ignore[no-untyped-def]
    """Squared differences of two strips one vector wide, summed over `ph` rows: `rows` vectors, `step` apart."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, height = (t.count for t in signature.args[9:])
        kind = Floats(builder)
        first, second = (point_to(context, builder, signature.args[0], args[0], i) for i in args[1:3])
        target = point_to(context, builder, signature.args[6], args[6], args[7])
        sums = Rolling(kind, height)
        for t in range(height - 1):
            sums.push(channel_sum(kind, first, second, builder.mul(args[3], I64(t)), args[4], c))
        with cgutils.for_range(builder, args[5], intp=I64) as loop:
            start = builder.mul(builder.add(loop.index, I64(height - 1)), args[3])
            total = sums.push(channel_sum(kind, first, second, start, args[4], c))
            store(builder, total, target, builder.mul(loop.index, args[8]))
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(flat, i8, i8, i8, i8, i8, out, i8, i8, channels, ph), codegen


@intrinsic
def row_sums(typing, source, i, out, pw, vectors):  # type: ignore[no-untyped-def]
    """`out[x] = source[i + x] + ... + source[i + x + pw - 1]`, for `vectors` vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width, m = (t.count for t in signature.args[3:])
        kind = Floats(builder)
        left = point_to(context, builder, signature.args[0], args[0], args[1])
        target = point_to(context, builder, signature.args[2], args[2], I64(0))
        count = m + (width + kind.lanes - 2) // kind.lanes
        row = [load(builder, left, I64(kind.lanes * j), kind.vector) for j in range(count)]
        for j, total in enumerate(sum_along(kind, row, width, m)):
            store(builder, total, target, I64(kind.lanes * j))
        return context.get_dummy_value()

    return types.void(source, types.int64, out, pw, vectors), codegen


@intrinsic
def pair_distance(typing, left, a, row, plane, right, b, other_row, other_plane, channels, ph, pw):  # type: ignore[no-untyped-def]
    """Compute the squared distance of the patches at `left[a]` and `right[b]` of arrays with different row lengths."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, height, width = (t.count for t in signature.args[8:])
        kind = Floats(builder, 8 if width <= 8 else FLOATS)
        first, second = (point_to(context, builder, signature.args[i], args[i], args[i + 1]) for i in (0, 4))
        rows, planes = (args[2], args[6]), (args[3], args[7])
        sums = []
        for u in range(0, width, kind.lanes):
            cells = []
            for v in range(height):
                starts = [builder.add(builder.mul(row, I64(v)), I64(u)) for row in rows]
                cells.append(two_sum(kind, (first, second), starts, planes, c))
            sums.append(sum_all(kind, cells))
        return builder.extract_element(sum_along(kind, sums, width, 1)[0], I32(0))

    i8 = types.int64
    return types.float32(left, i8, i8, i8, right, i8, i8, i8, channels, ph, pw), codegen


@intrinsic
def point_distances(typing, flat, a, b, row, plane, out, channels, ph, pw):  # type: ignore[no-untyped-def]
    """Squared distances between the patch at `flat[a]` and the 16 patches that begin at `flat[b]`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, height, width = (t.count for t in signature.args[6:])
        kind = Floats(builder)
        first, second = (point_to(context, builder, signature.args[0], args[0], i) for i in args[1:3])
        target = point_to(context, builder, signature.args[5], args[5], I64(0))
        columns = cgutils.alloca_once(builder, kind.vector, size=I64(width))
        with cgutils.for_range(builder, I64(width), intp=I64) as loop:
            cells = []
            for v in range(height):
                start = builder.add(loop.index, builder.mul(args[3], I64(v)))
                cells.append(splat_sum(kind, first, second, start, args[4], c))
            builder.store(sum_all(kind, cells), builder.gep(columns, [loop.index]))
        sums = [builder.load(builder.gep(columns, [I64(u)])) for u in range(width)]
        store(builder, sum_all(kind, sums), target, I64(0))
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(flat, i8, i8, i8, i8, out, channels, ph, pw), codegen


@intrinsic
def bound_mask(typing, projections, a, b, plane, terms, t, limit, channels):  # type: ignore[no-untyped-def]
    """Bit l: `sum_c (p_c[a] - p_c[b + l])^2 + terms[t + l] <= limit`, 16 bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = Floats(builder)
        first, second = (point_to(context, builder, signature.args[0], args[0], i) for i in args[1:3])
        bound = splat_sum(kind, first, second, I64(0), args[3], signature.args[7].count)
        terms = load(builder, point_to(context, builder, signature.args[4], args[4], args[5]), I64(0), kind.vector)
        return mask(kind, [kind.at_most(kind.add(bound, terms), splat(builder, args[6], kind.vector))])

    i8 = types.int64
    return i8(projections, i8, i8, i8, terms, i8, types.float32, channels), codegen


@intrinsic
def at_most(typing, d2, i, limits, j, vectors):  # type: ignore[no-untyped-def]
    """Bit l: `d2[i + l] <= limits[j + l]`, for `vectors` vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = Floats(builder)
        left = point_to(context, builder, signature.args[0], args[0], args[1])
        right = point_to(context, builder, signature.args[2], args[2], args[3])
        at = [I64(kind.lanes * j) for j in range(signature.args[4].count)]
        pairs = [[load(builder, side, o, kind.vector) for side in (left, right)] for o in at]
        return mask(kind, [kind.at_most(a, b) for a, b in pairs])

    i8 = types.int64
    return i8(d2, i8, limits, i8, vectors), codegen


@intrinsic
def at_most_with(typing, d2, i, term, limits, j, vectors):  # type: ignore[no-untyped-def]
    """Bit l: `d2[i + l] + term <= limits[j + l]`, for `vectors` vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = Floats(builder)
        left = point_to(context, builder, signature.args[0], args[0], args[1])
        right = point_to(context, builder, signature.args[3], args[3], args[4])
        term = splat(builder, args[2], kind.vector)
        found = []
        for at in (I64(kind.lanes * j) for j in range(signature.args[5].count)):
            d2 = kind.add(load(builder, left, at, kind.vector), term)
            found.append(kind.at_most(d2, load(builder, right, at, kind.vector)))
        return mask(kind, found)

    i8 = types.int64
    return i8(d2, i8, types.float32, limits, i8, vectors), codegen


@intrinsic
def comes_before(typing, d2, i, term, candidate, worst, last, j, vectors):  # type: ignore[no-untyped-def]
    """Bit l: `(d2[i + l] + term, candidate + l)` comes before `(worst[j + l], last[j + l])`: ties by smaller index."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = Floats(builder)
        left = point_to(context, builder, signature.args[0], args[0], args[1])
        right = point_to(context, builder, signature.args[4], args[4], args[6])
        index = point_to(context, builder, signature.args[5], args[5], args[6])
        term = splat(builder, args[2], kind.vector)
        start = splat(builder, builder.trunc(args[3], I32), _INT_VECTOR)
        found = []
        for lane in range(0, kind.lanes * signature.args[7].count, kind.lanes):
            d2 = kind.add(load(builder, left, I64(lane), kind.vector), term)
            limit = load(builder, right, I64(lane), kind.vector)
            vertex = builder.add(start, ir.Constant(_INT_VECTOR, list(range(lane, lane + kind.lanes))))
            earlier = builder.icmp_signed("<", vertex, load(builder, index, I64(lane), _INT_VECTOR))
            tie = builder.and_(builder.fcmp_ordered("==", d2, limit), earlier)
            found.append(builder.or_(builder.fcmp_ordered("<", d2, limit), tie))
        return mask(kind, found)

    i8 = types.int64
    return i8(d2, i8, types.float32, i8, worst, last, i8, vectors), codegen


@intrinsic
def insert_key(typing, keys, base, size, key, groups):  # type: ignore[no-untyped-def]
    """Insert `key` into the ascending list `keys[base : base + size]` and drop its last entry.

    Without branches: `b[j] = min(b[j], max(b[j - 1], key))`, eight entries at a time, from the end. `size` is
    `8 groups`; with no groups it is known only when the program runs.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = point_to(context, builder, signature.args[0], args[0], args[1])
        key = splat(builder, args[3], _KEY_VECTOR)
        move = ir.Constant(ir.VectorType(I32, KEYS), list(range(KEYS - 1, 2 * KEYS - 1)))

        def update(at: Any, entries: Any, before: Any) -> None:
            previous = builder.shuffle_vector(before, entries, move)
            larger = builder.select(builder.icmp_signed("<", previous, key), key, previous)
            smaller = builder.select(builder.icmp_signed("<", entries, larger), entries, larger)
            store(builder, smaller, start, at, 8)

        lowest, count = ir.Constant(_KEY_VECTOR, [-1] * KEYS), signature.args[4].count
        if count:
            places = [I64(KEYS * j) for j in range(count)]
            entries = [load(builder, start, at, _KEY_VECTOR, 8) for at in places]
            for at, these, before in zip(places, entries, [lowest, *entries], strict=False):
                update(at, these, before)
            return context.get_dummy_value()
        above = builder.sub(builder.udiv(args[2], I64(KEYS)), I64(1))
        with cgutils.for_range(builder, above, intp=I64) as loop:
            at = builder.mul(builder.sub(above, loop.index), I64(KEYS))
            before = load(builder, start, builder.sub(at, I64(KEYS)), _KEY_VECTOR, 8)
            update(at, load(builder, start, at, _KEY_VECTOR, 8), before)
        update(I64(0), load(builder, start, I64(0), _KEY_VECTOR, 8), lowest)
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(keys, i8, i8, i8, groups), codegen


@intrinsic
def float_bits(typing, x):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 as an integer; for x >= 0 they sort as x does."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], I32), I64)

    return types.int64(types.float32), codegen


@intrinsic
def bits_float(typing, bits):  # type: ignore[no-untyped-def]
    """Return the float32 with these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.trunc(args[0], I32), ir.FloatType())

    return types.float32(types.int64), codegen


@intrinsic
def lowest_bit(typing, mask):  # type: ignore[no-untyped-def]
    """Return the position of the lowest set bit of a mask that is not zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), codegen
