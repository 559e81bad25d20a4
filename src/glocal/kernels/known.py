"""What was found out about a tensor that nobody writes to, for as long as it lives.

Writing is noticed where torch counts it; through NumPy or `.data` it is not. So this is for the neighbours of a graph,
which is immutable, not for parameters.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor

_found: dict[int, tuple[Any, Any, dict[Hashable, Any]]] = {}  # by identity: the tensor, its state, and what is known


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
    if tensor.is_inference():  # torch does not count what is written to it
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
