"""Small dense products that stay in vector registers: the inner loops of the graph convolution on the CPU.

Numba's loops reach a fraction of the machine here, because the compiler cannot know that a handful of sums fits into
registers. Each intrinsic below writes the loop with its sums held in vectors. Products have vectors of `TILE_BYTES`; rows
of a signal have those of `VECTOR_BYTES`, because shorter vectors suit rows of few channels. The intrinsics take raw
addresses, and offsets and strides in elements; the first argument, an array, only says which numbers are meant. Each
shape of tile is compiled, and a switch takes the one that is asked for.

Every sum has one fixed order, so a result does not depend on who computes it. The plain-loop twins, which are the
definitions, are in `tests/kernels/cpu/test_tiles.py`.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glocal.kernels.cpu.compiled import njit

VECTOR_BYTES = 32
_AVX512 = bool(llvm.get_host_cpu_features().get("avx512vl"))
# Zen 4 computes 64 bytes in two steps: there they bring nothing, and more of them are padding.
TILE_BYTES = 64 if _AVX512 and llvm.get_host_cpu_name() != "znver4" else VECTOR_BYTES
# AVX-512 and NEON have 32 vector registers, older x86 has 16.
MANY = _AVX512 or "aarch64" in llvm.get_default_triple()
MAX_VECTORS = 8 if MANY else 4
MAX_OUTPUTS = 3
# Rows of a tile of 1, 2, ... vectors: the sums, one row of B and one number of A must fit into the registers together.
ROWS = (12, 12, 8, 6, 5, 4, 3, 2) if MANY else (8, 6, 4, 2)
ACROSS = 5 if MANY else 3  # vectors of the tile that is nearest to a square: 5 rows, or 4
RUN = 24  # numbers that are copied or added at once: whole vectors of float32 and of float64
INDEX = ir.IntType(64)


def lanes(itemsize: int, size: int = VECTOR_BYTES) -> int:
    """Count the numbers of `itemsize` bytes in one vector of `size` bytes."""
    return size // itemsize


class Code:
    """Writes loads, stores and fused steps on vectors of one number type, each of `length` bytes."""

    def __init__(self, context: Any, builder: Any, dtype: types.Float, length: int = VECTOR_BYTES) -> None:
        self.builder = builder
        self.number = context.get_value_type(dtype)
        self.size = dtype.bitwidth // 8
        self.width = lanes(self.size, length)
        self.vector = ir.VectorType(self.number, self.width)
        self.zero = ir.Constant(self.vector, [0.0] * self.width)

    def at(self, base: Any, index: Any) -> Any:
        """Address of the element `index` of the array at the address `base`."""
        return self.builder.add(base, self.builder.mul(index, INDEX(self.size)))

    def load(self, address: Any, kind: Any) -> Any:
        """Load a number or an unaligned vector."""
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=self.size)

    def store(self, value: Any, address: Any) -> None:
        """Store a number or an unaligned vector."""
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer()), align=self.size)

    def spread(self, value: Any) -> Any:
        """Copy one number to every lane."""
        one = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), value, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
        return self.builder.shuffle_vector(one, one, mask)

    def step(self, a: Any, b: Any, total: Any) -> Any:
        """Add a product to a sum; where the machine can, in one instruction that rounds once."""
        product = self.builder.fmul(a, b, flags=("contract",))
        return self.builder.fadd(product, total, flags=("contract",))

    def fold(self, value: Any) -> Any:
        """Add the lanes by halves."""
        width, index = self.width, ir.IntType(32)
        while width > 1:
            width //= 2
            order = [i + width if i < width else 0 for i in range(self.width)]
            mask = ir.Constant(ir.VectorType(index, self.width), order)
            value = self.builder.fadd(value, self.builder.shuffle_vector(value, value, mask))
        return self.builder.extract_element(value, index(0))

    def loop(self, count: Any, start: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """Run `body(index, sums) -> sums` for index 0, 1, ..., count - 1 and return the last sums."""
        builder = self.builder
        entry, head = builder.block, builder.append_basic_block("head")
        inside, after = builder.append_basic_block("body"), builder.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(INDEX)
        index.add_incoming(INDEX(0), entry)
        sums = [builder.phi(value.type) for value in start]
        for phi, value in zip(sums, start, strict=True):
            phi.add_incoming(value, entry)
        builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
        builder.position_at_end(inside)
        results = body(index, list(sums))
        end = builder.block
        index.add_incoming(builder.add(index, INDEX(1)), end)
        for phi, value in zip(sums, results, strict=True):
            phi.add_incoming(value, end)
        builder.branch(head)
        builder.position_at_end(after)
        return list(sums)

    def choose(self, value: Any, most: int, write: Callable[[int], None]) -> None:
        """Write the code for each case 1, 2, ..., most of `value`, and a switch that takes one of them."""
        after = self.builder.append_basic_block("chosen")
        switch = self.builder.switch(value, after)
        for case in range(1, most + 1):
            block = self.builder.append_basic_block(f"case_{case}")
            switch.add_case(INDEX(case), block)
            self.builder.position_at_end(block)
            write(case)
            self.builder.branch(after)
        self.builder.position_at_end(after)


@intrinsic
def _tile(typing: Any, like: Any, vectors: Any, a: Any, ar: Any, ak: Any, b: Any, bk: Any, c: Any, cr: Any, count: Any,
          add: Any) -> Any:  # fmt: skip
    """One tile of `product`: ROWS[vectors - 1] rows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype, TILE_BYTES)
        _, vectors, a, ar, ak, b, bk, c, cr, count, add = args

        def write(across: int) -> None:
            height = ROWS[across - 1]
            starts = [code.at(a, builder.mul(ar, INDEX(r))) for r in range(height)]

            def body(k: Any, sums: list[Any]) -> list[Any]:
                row, column = code.at(b, builder.mul(k, bk)), builder.mul(k, ak)
                right = [code.load(builder.add(row, INDEX(v * TILE_BYTES)), code.vector) for v in range(across)]
                result = []
                for r in range(height):
                    left = code.spread(code.load(code.at(starts[r], column), code.number))
                    result += [code.step(left, right[v], sums[r * across + v]) for v in range(across)]
                return result

            sums = code.loop(count, [code.zero] * (height * across), body)
            adding = builder.icmp_signed("!=", add, INDEX(0))
            for r in range(height):
                row = code.at(c, builder.mul(cr, INDEX(r)))
                for v in range(across):
                    place = builder.add(row, INDEX(v * TILE_BYTES))
                    before = builder.select(adding, code.load(place, code.vector), code.zero)
                    code.store(builder.fadd(before, sums[r * across + v]), place)

        code.choose(vectors, MAX_VECTORS, write)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 10), generate


@njit(nogil=True, cache=True)
def product(like, rows, vectors, a, ar, ak, b, bk, c, cr, count, add):
    """Write or add `C[r, :] = sum_(k < count) A[r, k] B[k, :]` for r < rows, `vectors` (1 to MAX_VECTORS) vectors wide.

    `A[r, k]` is at `a + r ar + k ak`, `B[k, :]` at `b + k bk`, `C[r, :]` at `c + r cr`; `add` is 0 or 1. Rows go in
    whole tiles: A must be readable and C writable up to the next multiple of `ROWS[vectors - 1]`.
    """
    height = ROWS[vectors - 1]
    for r in range(0, rows, height):
        _tile(like, vectors, a + r * ar * like.itemsize, ar, ak, b, bk, c + r * cr * like.itemsize, cr, count, add)


@intrinsic
def dots(typing: Any, like: Any, a: Any, b: Any, stride: Any, out: Any, count: Any) -> Any:
    """Add the products of the rows of A and the rows of B, ACROSS each, `count` vectors long and `stride` apart.

    The sum of row r and row s is left as a vector, whose lanes are yet to be added, at vector `r ACROSS + s` of `out`.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype, TILE_BYTES)
        _, a, b, stride, out, count = args
        lefts = [code.at(a, builder.mul(stride, INDEX(r))) for r in range(ACROSS)]
        rights = [code.at(b, builder.mul(stride, INDEX(r))) for r in range(ACROSS)]

        def body(k: Any, sums: list[Any]) -> list[Any]:
            step = builder.mul(k, INDEX(TILE_BYTES))
            right = [code.load(builder.add(row, step), code.vector) for row in rights]
            result = []
            for r, row in enumerate(lefts):
                left = code.load(builder.add(row, step), code.vector)
                result += [code.step(left, right[s], sums[r * ACROSS + s]) for s in range(ACROSS)]
            return result

        for number, value in enumerate(code.loop(count, [code.zero] * ACROSS**2, body)):
            place = builder.add(out, INDEX(number * TILE_BYTES))
            code.store(builder.fadd(code.load(place, code.vector), value), place)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 5), generate


def _run(like: Any, *, add: bool) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype)
        for step in range(0, RUN * code.size, VECTOR_BYTES):
            source, target = (builder.add(base, INDEX(step)) for base in args[1:])
            value = code.load(source, code.vector)
            code.store(builder.fadd(code.load(target, code.vector), value) if add else value, target)
        return context.get_dummy_value()

    return types.void(like, types.int64, types.int64), generate


@intrinsic
def copy_run(typing: Any, like: Any, a: Any, c: Any) -> Any:
    """Copy `RUN` numbers from a to c."""
    return _run(like, add=False)


@intrinsic
def add_run(typing: Any, like: Any, a: Any, c: Any) -> Any:
    """Add `RUN` numbers at a to those at c."""
    return _run(like, add=True)


@intrinsic
def dot_rows(typing: Any, like: Any, outputs: Any, vectors: Any, x: Any, rows: Any, scales: Any, f: Any, taps: Any,
             fo: Any, last: Any, out: Any, count: Any) -> Any:  # fmt: skip
    """Add `sum_(t < count) scales[t] <x[rows[t] + :], f[taps[t] + o fo + :]>` to out[o], o < outputs <= MAX_OUTPUTS.

    A row of x is read as `vectors` vectors, the last of which starts at `last` and may overlap the one before (so that
    no row is read beyond its end); a row of f lies vector by vector, with zeros where x overlaps. `rows` and `taps` are
    int64 offsets in elements.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype)
        _, outputs, vectors, x, rows, scales, f, taps, fo, last, out, count = args

        def write(outs: int, across: int) -> None:
            offsets = [INDEX(v * code.width) for v in range(across - 1)] + [last]

            def body(t: Any, sums: list[Any]) -> list[Any]:
                step = builder.mul(t, INDEX(8))
                row = code.at(x, code.load(builder.add(rows, step), INDEX))
                tap = code.at(f, code.load(builder.add(taps, step), INDEX))
                scale = code.spread(code.load(code.at(scales, t), code.number))
                left = [builder.fmul(scale, code.load(code.at(row, offset), code.vector)) for offset in offsets]
                result = []
                for o in range(outs):
                    start = code.at(tap, builder.mul(fo, INDEX(o)))
                    for v in range(across):
                        right = code.load(builder.add(start, INDEX(v * VECTOR_BYTES)), code.vector)
                        result.append(code.step(left[v], right, sums[o * across + v]))
                return result

            sums = code.loop(count, [code.zero] * (outs * across), body)
            for o in range(outs):
                total = sums[o * across]
                for v in range(1, across):
                    total = builder.fadd(total, sums[o * across + v])
                place = code.at(out, INDEX(o))
                code.store(builder.fadd(code.load(place, code.number), code.fold(total)), place)

        code.choose(outputs, MAX_OUTPUTS, lambda o: code.choose(vectors, MAX_VECTORS, lambda v: write(o, v)))
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 11), generate


@intrinsic
def sum_rows(
    typing: Any, like: Any, vectors: Any, x: Any, rows: Any, scales: Any, last: Any, out: Any, count: Any
) -> Any:
    """Add `sum_(t < count) scales[t] x[rows[t] + :]` to out[:], rows and vectors as in `dot_rows`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype)
        _, vectors, x, rows, scales, last, out, count = args

        def write(across: int) -> None:
            offsets = [INDEX(v * code.width) for v in range(across - 1)] + [last]

            def body(t: Any, sums: list[Any]) -> list[Any]:
                row = code.at(x, code.load(builder.add(rows, builder.mul(t, INDEX(8))), INDEX))
                scale = code.spread(code.load(code.at(scales, t), code.number))
                pairs = zip(offsets, sums, strict=True)
                return [code.step(scale, code.load(code.at(row, at), code.vector), total) for at, total in pairs]

            places = [code.at(out, offset) for offset in offsets]
            sums = code.loop(count, [code.load(place, code.vector) for place in places], body)
            for place, value in zip(places, sums, strict=True):
                code.store(value, place)

        code.choose(vectors, MAX_VECTORS, write)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 7), generate
