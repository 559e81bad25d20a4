"""Rows of a signal along the edges of a graph, in vectors: copied, added and multiplied; for gradients all at once.

A row of c numbers is `vectors` vectors. The last of them ends with the row, so it overlaps the one before it where c is
not a multiple of their width: for c = 10 and vectors of 8 they begin at 0 and 2. Nothing beyond a row is touched.
So c must be `lanes` or more, and `vectors` at most `MAX_VECTORS`; `row_vectors` says how many, or 0 where it cannot be.

The intrinsics take raw addresses, as those of `tiles`, for `count` edges one after the other: their targets (int32) and
weights, which are `step` (0 or 1) apart, so that one 1 serves all edges of a graph without weights.
"""
# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glocal.kernels.cpu.compiled import njit
from glocal.kernels.cpu.tiles import INDEX, MAX_VECTORS, VECTOR_BYTES, Code

_TARGET = ir.IntType(32)


@njit(nogil=True, cache=True)
def row_vectors(c, itemsize):
    """Count the vectors of a row of c numbers; 0 where these loops do not serve it."""
    size = VECTOR_BYTES // itemsize
    vectors = (c + size - 1) // size
    return vectors if c >= size and vectors <= MAX_VECTORS else 0


class _Rows:
    """Writes what the loops have in common."""

    def __init__(self, code: Code, c: Any, across: int) -> None:
        self.code, self.c = code, c
        last = code.builder.sub(c, INDEX(code.width))
        self.offsets = [INDEX(v * code.width) for v in range(across - 1)] + [last]

    def target(self, neighbors: Any, t: Any, base: Any) -> Any:
        """Address of the row that edge t points to, in the array at `base`."""
        builder = self.code.builder
        place = builder.inttoptr(builder.add(neighbors, builder.mul(t, INDEX(4))), _TARGET.as_pointer())
        return self.code.at(base, builder.mul(builder.zext(builder.load(place, align=4), INDEX), self.c))

    def own(self, base: Any, t: Any) -> Any:
        """Address of row t of the array at `base`."""
        return self.code.at(base, self.code.builder.mul(t, self.c))

    def scale(self, weights: Any, step: Any, t: Any) -> Any:
        """Load the weight of edge t into every lane."""
        place = self.code.at(weights, self.code.builder.mul(t, step))
        return self.code.spread(self.code.load(place, self.code.number))

    def load(self, row: Any) -> list[Any]:
        return [self.code.load(self.code.at(row, offset), self.code.vector) for offset in self.offsets]

    def store(self, values: list[Any], row: Any) -> None:
        for value, offset in zip(values, self.offsets, strict=True):
            self.code.store(value, self.code.at(row, offset))

    def dot(self) -> Callable[[list[Any], list[Any]], Any]:
        """Return what multiplies two rows."""
        code, builder = self.code, self.code.builder
        lane = ir.VectorType(INDEX, code.width)
        # Lanes of the last vector that the one before it has too do not count again.
        doubled = builder.sub(INDEX(len(self.offsets) * code.width), self.c)
        first = builder.insert_element(ir.Constant(lane, ir.Undefined), doubled, ir.IntType(32)(0))
        order = ir.Constant(ir.VectorType(ir.IntType(32), code.width), [0] * code.width)
        limits = builder.shuffle_vector(first, first, order)
        new = builder.icmp_signed(">=", ir.Constant(lane, list(range(code.width))), limits)

        def product(left: list[Any], right: list[Any]) -> Any:
            total = builder.select(new, builder.fmul(left[-1], right[-1]), code.zero)
            for a, b in zip(left[:-1], right[:-1], strict=True):
                total = code.step(a, b, total)
            return code.fold(total)

        return product


@intrinsic
def gather_rows(typing: Any, like: Any, vectors: Any, x: Any, neighbors: Any, weights: Any, step: Any, c: Any, out: Any,
                count: Any) -> Any:  # fmt: skip
    """Write `out[t, :] = weights[t] x[neighbors[t], :]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype)
        _, vectors, x, neighbors, weights, step, c, out, count = args

        def write(across: int) -> None:
            rows = _Rows(code, c, across)

            def body(t: Any, _: list[Any]) -> list[Any]:
                scale = rows.scale(weights, step, t)
                values = [builder.fmul(scale, value) for value in rows.load(rows.target(neighbors, t, x))]
                rows.store(values, rows.own(out, t))
                return []

            code.loop(count, [], body)

        code.choose(vectors, MAX_VECTORS, write)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 8), generate


@intrinsic
def scatter_rows(typing: Any, like: Any, vectors: Any, q: Any, neighbors: Any, weights: Any, step: Any, c: Any,
                 out: Any, count: Any) -> Any:  # fmt: skip
    """Add `weights[t] q[t, :]` to `out[neighbors[t], :]`.

    All vectors of a row are read before any is written: where two overlap, both write the same sums.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype)
        _, vectors, q, neighbors, weights, step, c, out, count = args

        def write(across: int) -> None:
            rows = _Rows(code, c, across)

            def body(t: Any, _: list[Any]) -> list[Any]:
                scale, row = rows.scale(weights, step, t), rows.target(neighbors, t, out)
                pairs = zip(rows.load(rows.own(q, t)), rows.load(row), strict=True)
                rows.store([code.step(scale, value, before) for value, before in pairs], row)
                return []

            code.loop(count, [], body)

        code.choose(vectors, MAX_VECTORS, write)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 8), generate


@intrinsic
def edge_dots(typing: Any, like: Any, vectors: Any, x: Any, neighbors: Any, q: Any, c: Any, out: Any,
              count: Any) -> Any:  # fmt: skip
    """Write `out[t] = <x[neighbors[t], :], q[t, :]>`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype)
        _, vectors, x, neighbors, q, c, out, count = args

        def write(across: int) -> None:
            rows = _Rows(code, c, across)
            dot = rows.dot()

            def body(t: Any, _: list[Any]) -> list[Any]:
                total = dot(rows.load(rows.target(neighbors, t, x)), rows.load(rows.own(q, t)))
                code.store(total, code.at(out, t))
                return []

            code.loop(count, [], body)

        code.choose(vectors, MAX_VECTORS, write)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 7), generate


@intrinsic
def edge_gradients(typing: Any, like: Any, vectors: Any, x: Any, q: Any, stride: Any, neighbors: Any, weights: Any, step: Any,
                   c: Any, patches: Any, signal: Any, dots: Any, dotted: Any, count: Any, d: Any) -> Any:  # fmt: skip
    """Do `gather_rows` of x into `patches`, `scatter_rows` of q to `signal`, and, where `dotted` is 1, `edge_dots` to `dots`.

    One pass over the `d` edges of each of `count` vertices reads rows, targets and weights once. The rows of q that
    belong to a vertex begin `stride` numbers after those of the one before.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(context, builder, like.dtype)
        _, vectors, x, q, stride, neighbors, weights, step, c, patches, signal, dots, dotted, count, d = args

        def write(across: int, *, dotting: bool) -> None:
            rows = _Rows(code, c, across)
            dot = rows.dot()

            def vertex(i: Any, _: list[Any]) -> list[Any]:
                first, own = builder.mul(i, d), code.at(q, builder.mul(i, stride))

                def edge(tap: Any, _: list[Any]) -> list[Any]:
                    t = builder.add(first, tap)
                    scale, row = rows.scale(weights, step, t), rows.target(neighbors, t, signal)
                    left, right = rows.load(rows.target(neighbors, t, x)), rows.load(rows.own(own, tap))
                    if dotting:
                        code.store(dot(left, right), code.at(dots, t))
                    before = rows.load(row)
                    rows.store([builder.fmul(scale, value) for value in left], rows.own(patches, t))
                    rows.store([code.step(scale, value, b) for value, b in zip(right, before, strict=True)], row)
                    return []

                code.loop(d, [], edge)
                return []

            code.loop(count, [], vertex)

        cases = builder.add(vectors, builder.mul(dotted, INDEX(MAX_VECTORS)))
        code.choose(cases, 2 * MAX_VECTORS, lambda v: write((v - 1) % MAX_VECTORS + 1, dotting=v > MAX_VECTORS))
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 14), generate
