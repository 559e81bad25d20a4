"""`Lattice`: the rule of a grid graph. A few numbers replace `n d` stored neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import prod

import torch
from torch import Tensor

from glocal.errors import ArgumentError


def _reflect(i: Tensor, n: int) -> Tensor:
    period = max(1, 2 * (n - 1))
    i = i.remainder(period)
    return torch.minimum(i, period - i) if n > 1 else torch.zeros_like(i)


# Where the neighbour at position i of an axis of length n is found; "zero" keeps a valid index and drops the edge.
BOUNDARIES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "reflect": _reflect,
    "replicate": lambda i, n: i.clamp(0, n - 1),
    "circular": lambda i, n: i.remainder(n),
    "zero": lambda i, n: i.clamp(0, n - 1),
}


@dataclass(frozen=True)
class Lattice:
    """A regular grid of vertices, each joined to the box of vertices around it, in raster order.

    Parameters
    ----------
    shape : (n,), (h, w) or (t, h, w)
        The lengths of the axes; the last axis runs fastest.
    size : one odd int for each axis
        The box; the degree is the product.
    dilation : int >= 1
        Steps between neighbours.
    boundary : str
        A key of `BOUNDARIES`.
    copies : int >= 1
        The number of equal grids, without edges between them.

    Examples
    --------
    >>> Lattice((4,), (3,)).neighbors("cpu").tolist()
    [[1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 2]]
    """

    shape: tuple[int, ...]
    size: tuple[int, ...]
    dilation: int = 1
    boundary: str = "reflect"
    copies: int = 1

    def __post_init__(self) -> None:
        lengths, sizes = self.shape, self.size
        if not 1 <= len(lengths) <= 3 or min(lengths) < 1:
            message = f"grid_graph: `shape` (={lengths}) must be (n,), (h, w) or (t, h, w), each at least 1. Check the signal."
            raise ArgumentError(message)
        if len(sizes) != len(lengths):
            message = f"grid_graph: `size` (={sizes}) must have one entry for each axis of `shape` (={lengths}). Give one odd number."
            raise ArgumentError(message)
        if any(s < 1 or s % 2 == 0 for s in sizes):
            shown = sizes[0] if len(set(sizes)) == 1 else sizes
            message = (
                f"grid_graph: `size` (={shown}) must be odd and positive, so that the vertex is its centre. Use 3 or 5."
            )
            raise ArgumentError(message)
        if self.dilation < 1:
            message = f"grid_graph: `dilation` (={self.dilation}) must be at least 1. Use 1 for adjacent neighbours."
            raise ArgumentError(message)
        if self.boundary not in BOUNDARIES:
            message = f"grid_graph: `boundary` (={self.boundary!r}) is unknown. Choose one of {', '.join(BOUNDARIES)}."
            raise ArgumentError(message)
        if self.copies < 1 or self.num_vertices > 2**31 - 1:
            message = (
                f"grid_graph: `shape` (={lengths}), {self.copies} times, must have 1 to 2^31 - 1 vertices. "
                "Split the signal."
            )
            raise ArgumentError(message)

    @property
    def num_vertices(self) -> int:
        """The number of vertices `n`, of all copies."""
        return self.copies * prod(self.shape)

    @property
    def degree(self) -> int:
        """The number of neighbours `d`."""
        return prod(self.size)

    def neighbors(self, device: torch.device | str) -> Tensor:
        """Compute the neighbours (n, d), int32. Cost: O(n d)."""
        k = len(self.shape)
        vertex = torch.arange(self.copies, dtype=torch.int32, device=device).view(-1, *[1] * 2 * k)
        for axis, (n, s) in enumerate(zip(self.shape, self.size, strict=True)):
            found = BOUNDARIES[self.boundary](self.places(axis, device), n).to(torch.int32)
            vertex = vertex * n + found.view(_broadcast(k, axis, n, s))
        return vertex.reshape(self.num_vertices, self.degree)

    def weights(self, device: torch.device | str) -> Tensor | None:
        """Compute the weights (n, d): 0 outside and 1 inside for the boundary "zero", else None. Cost: O(n d)."""
        if self.boundary != "zero":
            return None
        k = len(self.shape)
        inside = torch.ones([1] * (2 * k + 1), dtype=torch.float32, device=device)
        for axis, (n, s) in enumerate(zip(self.shape, self.size, strict=True)):
            i = self.places(axis, device)
            inside = inside * ((i >= 0) & (i < n)).view(_broadcast(k, axis, n, s))
        return inside.expand(self.copies, *inside.shape[1:]).reshape(self.num_vertices, self.degree)

    def places(self, axis: int, device: torch.device | str) -> Tensor:
        """Compute the positions of the neighbours along one axis, (length, size); some are outside of 0 ... length - 1."""
        n, s = self.shape[axis], self.size[axis]
        steps = (torch.arange(s, device=device) - s // 2) * self.dilation
        return torch.arange(n, device=device).unsqueeze(1) + steps

    def to_text(self) -> str:
        """Write the lattice as one line of JSON.

        >>> Lattice.from_text(Lattice((4, 5), (3, 3)).to_text())
        Lattice(shape=(4, 5), size=(3, 3), dilation=1, boundary='reflect', copies=1)
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Lattice:
        """Read what `to_text` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        kept = json.loads(text)
        shape, size = (tuple(int(n) for n in kept[name]) for name in ("shape", "size"))
        return cls(shape, size, int(kept["dilation"]), str(kept["boundary"]), int(kept["copies"]))


def _broadcast(k: int, axis: int, n: int, s: int) -> list[int]:
    """Return the shape (copies, n..., s...) in which the table (n, s) of one axis broadcasts with the others."""
    shape = [1] * (2 * k + 1)
    shape[1 + axis], shape[1 + k + axis] = n, s
    return shape
