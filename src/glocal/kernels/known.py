"""What was found out about a graph: facts about its tensors, kept for as long as the tensor lives and is not written to.

torch counts the writes to a tensor; when the count or the memory changes, the facts are found again. Writes through
NumPy or `.data` are not counted. So this is for the neighbours and weights of a graph, not for parameters. A graph copies
neighbours whose memory NumPy shares (`unshared`), and the CPU's kernels compare every neighbour with the range they were
promised before they use it (`reading`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from glocal.errors import ArgumentError
from glocal.kernels import select

_found: dict[int, tuple[Any, Any, dict[Hashable, Any]]] = {}  # by identity: the tensor, its state, and its facts


def known(tensor: Tensor, what: Hashable, find: Callable[[], Any]) -> Any:
    """Return what is known about `tensor` under the name `what`; the first time, `find` it.

    >>> import torch
    >>> x = torch.arange(3)
    >>> [known(x, "sum", lambda: int(x.sum())), known(x, "sum", lambda: 0)]
    [3, 3]
    >>> x += 1
    >>> known(x, "sum", lambda: int(x.sum()))
    6
    """
    if tensor.is_inference():  # torch does not count the writes to it
        return find()
    key, state = id(tensor), (tensor._version, tensor.data_ptr(), tensor.shape, tensor.dtype)
    entry = _found.get(key)
    if entry is None or entry[0]() is not tensor or entry[1] != state:
        entry = weakref.ref(tensor, lambda _: _found.pop(key, None)), state, {}
        _found[key] = entry
    facts = entry[2]
    if what not in facts:
        facts[what] = find()
    return facts[what]


class ChangedError(Exception):
    """Neighbours are outside of the range that was found earlier: somebody wrote to them, and torch did not count it."""


def reading(neighbors: Tensor, num_sources: int, kernel: Callable[..., Any], *args: Any) -> Any:
    """Return `kernel(*args)`. If the kernel finds that the neighbours changed, check them again, then call it again.

    Raises ArgumentError if a neighbour is not one of the sources.
    """
    try:
        return kernel(*args)
    except ChangedError:
        _found.pop(id(neighbors), None)
        check_range(neighbors, num_sources)
        return kernel(*args)


def check_range(neighbors: Tensor, num_sources: int) -> None:
    """Raise ArgumentError if a neighbour is not one of the sources. Cost: O(n d), once for each state of the tensor."""
    try:
        low, high = known(neighbors, "range", lambda: _range(neighbors))
    except _RecordingError:
        return
    if low < 0 or high >= num_sources:
        _found.pop(id(neighbors), None)  # look again next time: nobody may see how it is corrected
        bad = low if low < 0 else high
        message = (
            f"Graph: `neighbors` holds the index {bad}, but vertices are numbered 0 to {num_sources - 1}. "
            "Check the builder, and do not write to the tensor of a graph."
        )
        raise ArgumentError(message)


class _RecordingError(Exception):
    """Values cannot be read while a CUDA graph is recorded."""


def _range(neighbors: Tensor) -> tuple[int, int]:
    if neighbors.is_cuda and torch.cuda.is_current_stream_capturing():
        raise _RecordingError
    low, high = (int(v) for v in torch.aminmax(neighbors))
    return low, high


def trust_range(neighbors: Tensor, num_sources: int) -> None:
    """Mark neighbours that our own kernel computed as valid, so that they are neither checked nor copied."""
    known(neighbors, "range", lambda: (0, num_sources - 1))
    known(neighbors, "ours", lambda: True)


def unshared(neighbors: Tensor) -> Tensor:
    """Return a copy of neighbours if NumPy shares their memory, as after `torch.from_numpy`; otherwise the tensor itself.

    torch does not count what NumPy writes, so a wrong index would not be noticed. torch marks such memory as not resizable.

    >>> import numpy as np
    >>> array = np.zeros((2, 1), np.int32)
    >>> neighbors = unshared(torch.from_numpy(array))
    >>> array[:] = 7
    >>> neighbors.tolist()
    [[0], [0]]
    """
    if neighbors.is_cuda or neighbors.untyped_storage().resizable() or known(neighbors, "ours", lambda: False):
        return neighbors
    return neighbors.clone()


def reverse(neighbors: Tensor, num_sources: int) -> tuple[Tensor, Tensor]:
    """List the edges by the vertex they point to, once for each graph: `reference.reverse` says how."""

    def find() -> tuple[Tensor, Tensor]:
        check_range(neighbors, num_sources)
        kernel = select.pick("reverse", neighbors.device)
        found: tuple[Tensor, Tensor] = reading(neighbors, num_sources, kernel, neighbors, num_sources)
        return found

    result: tuple[Tensor, Tensor] = known(neighbors, ("reverse", num_sources), find)
    return result
