"""How vector instructions are written for LLVM: the pieces that `simd` builds its operations from.

A `kind` is the arithmetic and the vector it works on. The sums follow `reference_search.window_sum` addition by addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

FLOATS = 16  # float32 values in a vector
KEYS = 8  # int64 values in a vector

I32, I64 = ir.IntType(32), ir.IntType(64)


class Floats:
    """The arithmetic of the definition: float32, one rounding an operation."""

    def __init__(self, builder: Any, lanes: int = FLOATS):
        self.builder, self.lanes, self.vector = builder, lanes, ir.VectorType(ir.FloatType(), lanes)

    def add(self, a: Any, b: Any) -> Any:
        """Compute a + b."""
        return self.builder.fadd(a, b)

    def square_difference(self, a: Any, b: Any) -> Any:
        """Compute (a - b)^2."""
        e = self.builder.fsub(a, b)
        return self.builder.fmul(e, e)

    def at_most(self, a: Any, b: Any) -> Any:
        """Compare a <= b."""
        return self.builder.fcmp_ordered("<=", a, b)


def point_to(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Point to `array[index]`."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def load(builder: Any, pointer: Any, offset: Any, vector: Any, align: int = 4) -> Any:
    """Read a vector that begins `offset` entries after `pointer`."""
    return builder.load(builder.bitcast(builder.gep(pointer, [offset]), vector.as_pointer()), align=align)


def store(builder: Any, value: Any, pointer: Any, offset: Any, align: int = 4) -> None:
    """Write a vector `offset` entries after `pointer`."""
    builder.store(value, builder.bitcast(builder.gep(pointer, [offset]), value.type.as_pointer()), align=align)


def splat(builder: Any, scalar: Any, vector: Any) -> Any:
    """Copy a scalar to all lanes."""
    unused = ir.Constant(vector, ir.Undefined)
    lanes = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(unused, scalar, I32(0)), unused, lanes)


def shifted(kind: Any, row: Sequence[Any], j: int, by: int) -> Any:
    """Vector `j` of a row of vectors after moving the row `by` lanes to the left."""
    whole, part = divmod(by, kind.lanes)
    unused = ir.Constant(kind.vector, ir.Undefined)
    low, high = (row[i] if i < len(row) else unused for i in (j + whole, j + whole + 1))
    if part == 0:
        return low
    lanes = ir.Constant(ir.VectorType(I32, kind.lanes), list(range(part, part + kind.lanes)))
    return kind.builder.shuffle_vector(low, high, lanes)


def pieces(size: int) -> list[tuple[int, int]]:
    """Split a window into (power, start) blocks of 2^power entries, the largest first."""
    found, start = [], 0
    for power in reversed(range(size.bit_length())):
        if size >> power & 1:
            found.append((power, start))
            start += 1 << power
    return found


def total(kind: Any, parts: Sequence[Any]) -> Any:
    """Add the parts from left to right."""
    result = parts[0]
    for part in parts[1:]:
        result = kind.add(result, part)
    return result


def sum_along(kind: Any, row: list[Any], size: int, outputs: int) -> list[Any]:
    """`reference_search.window_sum` along the lanes of a row of vectors, its first `outputs` vectors."""
    blocks = [row]
    while 1 << len(blocks) <= size:
        half, step = blocks[-1], 1 << (len(blocks) - 1)
        blocks.append([kind.add(half[j], shifted(kind, half, j, step)) for j in range(len(half))])
    return [
        total(kind, [shifted(kind, blocks[power], j, start) for power, start in pieces(size)]) for j in range(outputs)
    ]


def sum_all(kind: Any, values: Sequence[Any]) -> Any:
    """`reference_search.window_sum` of exactly one window, over a sequence of vectors."""

    def block(start: int, count: int) -> Any:
        if count == 1:
            return values[start]
        return kind.add(block(start, count // 2), block(start + count // 2, count // 2))

    return total(kind, [block(start, 1 << power) for power, start in pieces(len(values))])


class Rolling:
    """`reference_search.window_sum` down the rows: each new row gives the window that ends there.

    `history[b][i]` holds the sum of the 2^b rows that end i + 1 rows above; LLVM keeps it in registers.
    """

    def __init__(self, kind: Any, size: int):
        self.kind = kind
        self.lag = {power: size - start - (1 << power) for power, start in pieces(size)}
        top = size.bit_length() - 1
        depths = [max(1 << b if b < top else 0, self.lag.get(b, 0)) for b in range(top + 1)]
        self.history = [[cgutils.alloca_once(kind.builder, kind.vector) for _ in range(depth)] for depth in depths]
        for slot in (slot for level in self.history for slot in level):
            kind.builder.store(ir.Constant(kind.vector, None), slot)

    def push(self, row: Any) -> Any:
        """Add a row below and return the sum of the last `size` rows."""
        past = [[self.kind.builder.load(slot) for slot in level] for level in self.history]
        new = [row]
        for b in range(len(past) - 1):
            new.append(self.kind.add(past[b][(1 << b) - 1], new[b]))
        for value, level, slots in zip(new, past, self.history, strict=True):
            for slot, moved in zip(slots, [value, *level], strict=False):
                self.kind.builder.store(moved, slot)
        return total(self.kind, [past[b][lag - 1] if lag else new[b] for b, lag in self.lag.items()])


def channel_sum(kind: Any, first: Any, second: Any, start: Any, plane: Any, channels: int) -> Any:
    """`sum_c (a_c - b_c)^2` of the vectors at `start`, the channels in order, one `plane` after another."""
    return two_sum(kind, (first, second), (start, start), (plane, plane), channels)


def two_sum(kind: Any, sides: Sequence[Any], starts: Sequence[Any], planes: Sequence[Any], channels: int) -> Any:
    """Compute `channel_sum` of two arrays with different positions and planes."""
    squares = []
    for c in range(channels):
        a, b = (
            load(kind.builder, side, kind.builder.add(start, kind.builder.mul(plane, I64(c))), kind.vector)
            for side, start, plane in zip(sides, starts, planes, strict=True)
        )
        squares.append(kind.square_difference(a, b))
    return total(kind, squares)


def mask(kind: Any, comparisons: Sequence[Any]) -> Any:
    """Pack comparisons into one integer, lane 0 of the first in bit 0."""
    packed = None
    for j, comparison in enumerate(comparisons):
        bits = kind.builder.bitcast(comparison, ir.IntType(kind.lanes))
        bits = kind.builder.shl(kind.builder.zext(bits, I64), I64(kind.lanes * j))
        packed = bits if packed is None else kind.builder.or_(packed, bits)
    return packed


def splat_sum(kind: Any, first: Any, second: Any, start: Any, plane: Any, channels: int) -> Any:
    """`sum_c (a_c - b_c)^2` of one value of `first` and a vector of `second`."""
    squares = []
    for c in range(channels):
        at = kind.builder.add(start, kind.builder.mul(plane, I64(c)))
        value = splat(kind.builder, kind.builder.load(kind.builder.gep(first, [at])), kind.vector)
        squares.append(kind.square_difference(value, load(kind.builder, second, at, kind.vector)))
    return total(kind, squares)
