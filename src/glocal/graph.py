"""`Graph`: the structure on which a signal is defined. The functions that build graphs are in `glocal.graphs`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

import torch
from torch import Tensor
from torch.fx import _pytree as fx_pytree
from torch.utils import _pytree as pytree

from glocal.atomic import write_whole
from glocal.errors import ArgumentError, DeviceError, InputError
from glocal.kernels.known import check_range, unshared
from glocal.lattice import Lattice
from glocal.tensor_files import read_tensors

_FORMAT = "glocal-graph-1"


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A directed graph in which every vertex has the same number `d` of ordered out-edges.

    The column order is the paper's pseudo-coordinate `u(i, j)`: tap `l` of a filter always meets column `l`.
    Vertices with fewer edges are completed with edges of weight 0.

    A graph is immutable and shares the tensors that it is made of. If `neighbors` is changed in place later, the next
    layer checks it again. torch does not see what is written through NumPy or `.data`: memory that NumPy shares is
    copied, and the CPU's kernels check each index as they read it. So an index out of range is always an error.
    A graph is also a pytree: `torch.compile`, `torch.export` and `torch.utils._pytree` accept it as an argument.

    The graph of a grid stores only its rule, `lattice`. Its neighbours, and the weights of the boundary "zero", are
    computed when they are first read. Layers do not read them.

    Parameters
    ----------
    neighbors : Tensor, (n, d) integer
        `neighbors[i, l]` is the vertex that column `l` of vertex `i` points to. Kept as int32.
    weights : Tensor, (n, d) float, or None
        The factors `g(w_i, j_l)` of equation 5. They are finite and not negative. None means 1 everywhere.
    distances : Tensor, (n, d) float, or None
        The Euclidean distances between the feature vectors the graph was built from.
    num_sources : int, optional
        The number `m` of vertices of another signal, if the edges point to another signal. Layers then take a signal
        (m, c) and return a signal with n rows. By default the graph joins a signal to itself: m = n.

    Raises
    ------
    ArgumentError, DeviceError
        If an index is out of range, a shape is wrong, a weight is negative or not finite, or devices are mixed.

    Notes
    -----
    The check costs O(n d), once.

    Examples
    --------
    >>> import torch
    >>> g = Graph(torch.tensor([[0, 1], [1, 0]]))
    >>> g
    Graph(2 vertices, degree 2, no weights, cpu, 16 B)
    >>> Graph(torch.tensor([[4, 1], [1, 0]]), num_sources=5)
    Graph(2 vertices from 5 sources, degree 2, no weights, cpu, 16 B)
    """

    neighbors: Tensor
    weights: Tensor | None = field(default_factory=lambda: None)  # a class attribute would hide __getattr__
    distances: Tensor | None = None
    num_sources: int = None  # type: ignore[assignment]  # replaced by n
    lattice: Lattice | None = field(default=None, init=False)
    """The rule of the neighbours, for the graph of a grid; otherwise None."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_sources", _checked_sources(self.neighbors, self.num_sources))
        neighbors = self.neighbors
        if not torch.compiler.is_compiling():
            check_range(neighbors, self.num_sources)  # before the conversion to int32 truncates large numbers
            neighbors = unshared(neighbors)
        object.__setattr__(self, "neighbors", neighbors.to(torch.int32).contiguous())
        for name in ("weights", "distances"):
            if getattr(self, name) is not None:
                _check_edge_values(name, getattr(self, name), self)

    @classmethod
    def from_lattice(cls, lattice: Lattice, device: torch.device | str = "cpu") -> Graph:
        """Return the graph of a lattice. Cost: O(1), because only the rule is stored."""
        graph = object.__new__(cls)
        graph.__dict__.update(distances=None, lattice=lattice, _device=_usable(device))
        graph.__dict__["num_sources"] = lattice.num_vertices
        if lattice.boundary != "zero":
            graph.__dict__["weights"] = None
        return graph

    def __getattr__(self, name: str) -> Any:
        """Compute the neighbours or the weights of a lattice when they are first read."""
        lattice = self.__dict__.get("lattice")
        if lattice is None or name not in ("neighbors", "weights"):
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(lattice, name)(self.device)
        self.__dict__[name] = value
        return value

    @property
    def convolution(self) -> Lattice | None:
        """The lattice if a layer on this graph is an ordinary convolution: the edges have no weights of their own."""
        return None if self._has_own_weights() else self.lattice

    @property
    def num_vertices(self) -> int:
        """The number of vertices `n`."""
        return self.neighbors.shape[0] if self.lattice is None else self.lattice.num_vertices

    @property
    def degree(self) -> int:
        """The number of out-edges `d` of every vertex."""
        return self.neighbors.shape[1] if self.lattice is None else self.lattice.degree

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        found: torch.device = self.neighbors.device if self.lattice is None else self.__dict__["_device"]
        return found

    def with_weights(self, weights: Tensor | None) -> Graph:
        """Return this graph with other edge weights. What layers have cached about it is shared. Cost: O(n d)."""
        if weights is not None:
            _check_edge_values("weights", weights, self)
        lattice = self.lattice
        if lattice is not None and lattice.boundary == "zero":
            # The boundary "zero" is "replicate" with weights; both have the same neighbors.
            lattice = replace(lattice, boundary="replicate")
        tensors = {"weights": weights, "distances": self.distances}
        if "neighbors" in self.__dict__:
            tensors["neighbors"] = self.neighbors
        return _unchecked(tensors, lattice, self.num_sources, self.device)

    def to(self, device: torch.device | str) -> Graph:
        """Return this graph on another device."""
        place = _usable(device)
        if place == self.device:
            return self
        moved = {name: t.to(place) for name, t in self._named_tensors()}
        return _unchecked(moved, self.lattice, self.num_sources, place)

    def cuda(self, device: int | torch.device | str | None = None) -> Graph:
        """Return this graph on a GPU, by default the current one."""
        place = "cuda" if device is None else device
        return self.to(torch.device("cuda", place) if isinstance(place, int) else place)

    def cpu(self) -> Graph:
        """Return this graph in the main memory."""
        return self.to("cpu")

    def pin_memory(self) -> Graph:
        """Return this graph in page-locked memory, so that copies to a GPU can overlap with computation."""
        pinned = {name: t.pin_memory() for name, t in self._named_tensors()}
        return _unchecked(pinned, self.lattice, self.num_sources, self.device)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool | None = None) -> None:
        """Write the graph to `path` as safetensors. The file appears complete or not at all.

        A file that exists is replaced with `overwrite=True` and refused with False. In 0.2 the default replaces it too, with
        a DeprecationWarning; from 0.3 on it is False, as where the library writes other files.
        """
        from safetensors.torch import save_file

        tensors = {name: t.detach().cpu().contiguous() for name, t in self._named_tensors()}
        metadata = {"format": _FORMAT} | ({} if self.lattice is None else {"lattice": self.lattice.to_text()})
        if self.num_sources != self.num_vertices:
            metadata["num_sources"] = str(self.num_sources)
        if overwrite is None and os.path.exists(path):  # noqa: PTH110  a name that is too long is none that exists
            message = "Graph.save: from 0.3 on, a file that exists is only replaced with overwrite=True."
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        with write_whole(path, overwrite=overwrite is None or bool(overwrite)) as temporary:
            save_file(tensors, temporary, metadata=metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read a graph that `save` wrote, and check it again. Raises InputError for anything else."""
        from safetensors import SafetensorError

        try:
            metadata, tensors = read_tensors(path)
        except OSError as error:
            message = f"Graph.load: cannot read {str(path)!r}: {error}. Check the path."
            raise InputError(message) from error
        except SafetensorError as error:
            message = f"Graph.load: {str(path)!r} is damaged or not a graph file ({error}). Use Graph.save to make one."
            raise InputError(message) from error
        if metadata.get("format") != _FORMAT:
            message = f"Graph.load: {str(path)!r} is a safetensors file but not a graph. Use Graph.save to make one."
            raise InputError(message)
        lattice = _read_lattice(metadata["lattice"], path) if "lattice" in metadata else None
        if lattice is None and "neighbors" not in tensors:
            message = f"Graph.load: {str(path)!r} holds no neighbors. Use Graph.save to make a graph file."
            raise InputError(message)
        return _assembled(tensors, lattice, _read_sources(metadata, path))

    def __repr__(self) -> str:
        if self.lattice is not None:
            times = "" if self.lattice.copies == 1 else f"{self.lattice.copies} times "
            properties = f"lattice {times}{'x'.join(str(n) for n in self.lattice.shape)}, {self.lattice.boundary}"
            properties += ", weighted" if self._has_own_weights() else ""
        else:
            properties = "weighted" if self.weights is not None else "no weights"
        properties += ", with distances" if self.distances is not None else ""
        size = sum(t.numel() * t.element_size() for _, t in self._named_tensors())
        ends = f"{self.num_vertices:,} vertices"
        ends += f" from {self.num_sources:,} sources" if self.num_sources != self.num_vertices else ""
        return f"Graph({ends}, degree {self.degree}, {properties}, {self.device}, {_human(size)})"

    def _has_own_weights(self) -> bool:
        """Whether there are weights other than those that the boundary "zero" implies."""
        implied = self.lattice is not None and self.lattice.boundary == "zero"
        return not implied and self.weights is not None

    def _named_tensors(self) -> list[tuple[str, Tensor]]:
        """Return the tensors that do not follow from the lattice."""
        names = [] if self.lattice is not None else ["neighbors"]
        names += ["weights"] if self._has_own_weights() else []
        names += ["distances"] if self.distances is not None else []
        return [(name, getattr(self, name)) for name in names]


def _usable(device: torch.device | str) -> torch.device:
    """Return a device with its number, after a check that it exists here."""
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, RuntimeError, TypeError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        message = f"Graph: `device` (={str(device)!r}) cannot be used here ({why}). Use cpu."
        raise DeviceError(message) from error


def _unchecked(
    tensors: Mapping[str, Tensor | None], lattice: Lattice | None, num_sources: int, device: torch.device
) -> Graph:
    """Assemble a graph from parts that have been checked already."""
    graph = object.__new__(Graph)
    state: dict[str, Any] = {"distances": None, "num_sources": num_sources, "lattice": lattice}
    if lattice is not None:
        state["_device"] = device
    if lattice is None or lattice.boundary != "zero":
        state["weights"] = None
    for name, value in {**state, **tensors}.items():
        object.__setattr__(graph, name, value)  # torch.compile follows this
    return graph


def _assembled(tensors: dict[str, Tensor], lattice: Lattice | None, num_sources: int | None) -> Graph:
    """Assemble a graph from the parts of a file, and check it."""
    weights, distances = tensors.get("weights"), tensors.get("distances")
    if lattice is None:
        return Graph(tensors["neighbors"], weights, distances, num_sources=num_sources)  # type: ignore[arg-type]
    graph = Graph.from_lattice(lattice)
    if distances is not None:
        _check_edge_values("distances", distances, graph)
        graph.__dict__["distances"] = distances
    return graph if weights is None else graph.with_weights(weights)


def _read_sources(metadata: Mapping[str, str], path: str | os.PathLike[str]) -> int | None:
    text = metadata.get("num_sources")
    if text is not None and not (text.isascii() and text.isdigit()):
        message = f"Graph.load: {str(path)!r} is damaged: num_sources is {text!r}. Use Graph.save to make one."
        raise InputError(message)
    return None if text is None else int(text)


def _read_lattice(text: str, path: str | os.PathLike[str]) -> Lattice:
    try:
        return Lattice.from_text(text)
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"Graph.load: {str(path)!r} is damaged: it has no valid lattice ({error}). Use Graph.save to make one."
        )
        raise InputError(message) from error


def _checked_sources(neighbors: Tensor, num_sources: int | None) -> int:
    """Check the shape and dtype of the neighbours, and return the number of sources."""
    if not isinstance(neighbors, Tensor) or neighbors.ndim != 2:
        shape = tuple(getattr(neighbors, "shape", ()))
        message = f"Graph: `neighbors` must be a tensor of shape (n, d), got {type(neighbors).__name__} {shape}. Give one row per vertex."
        raise ArgumentError(message)
    if neighbors.layout != torch.strided:
        message = f"Graph: `neighbors` is {neighbors.layout}. Convert with .to_dense()."
        raise ArgumentError(message)
    if neighbors.dtype not in (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8):
        message = f"Graph: `neighbors` must hold integers, got {neighbors.dtype}. Convert with .to(torch.int32)."
        raise ArgumentError(message)
    n, d = neighbors.shape
    if n == 0 or d == 0:
        message = f"Graph: `neighbors` (n={n}, d={d}) is empty. A graph needs at least one vertex with one edge."
        raise ArgumentError(message)
    if num_sources is None:
        return n
    if not isinstance(num_sources, SupportsIndex) or not 0 < int(num_sources) < 2**31:
        message = f"Graph: `num_sources` (={num_sources}) must be a whole number from 1 to 2^31 - 1. Leave it out for one signal."
        raise ArgumentError(message)
    return int(num_sources)


def _check_edge_values(name: str, values: Tensor, graph: Graph) -> None:
    if not isinstance(values, Tensor):
        message = f"Graph: `{name}` is a {type(values).__name__}, not a tensor. Convert with torch.as_tensor."
        raise ArgumentError(message)
    n, d = graph.num_vertices, graph.degree
    if values.shape != (n, d):
        message = (
            f"Graph: `{name}` (shape {tuple(values.shape)}) must have the shape of `neighbors` "
            f"(n={n}, d={d}). Give one value per edge."
        )
        raise ArgumentError(message)
    if values.device != graph.device:
        message = f"Graph: `{name}` is on {values.device}, `neighbors` on {graph.device}. Move both with .to(device)."
        raise DeviceError(message)
    if not values.is_floating_point():
        message = f"Graph: `{name}` must be float32 or float64, got {values.dtype}. Convert with .to(torch.float32)."
        raise ArgumentError(message)
    if torch.compiler.is_compiling() or (values.is_cuda and torch.cuda.is_current_stream_capturing()):
        return  # values cannot be read while the computation is only recorded
    low, high = (float(v) for v in torch.aminmax(values.detach()))
    if not low >= 0 or not high < float("inf"):  # written so that NaN fails too
        message = f"Graph: `{name}` must be finite and not negative, found values from {low} to {high}. Clamp them."
        raise ArgumentError(message)


def _human(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _flatten(graph: Graph) -> tuple[list[Tensor], Any]:
    named = graph._named_tensors()
    context = (tuple(name for name, _ in named), graph.lattice, graph.num_sources, str(graph.device))
    return [t for _, t in named], context


def _flatten_with_keys(graph: Graph) -> tuple[list[tuple[Any, Tensor]], Any]:
    tensors, context = _flatten(graph)
    return [(pytree.GetAttrKey(name), t) for name, t in zip(context[0], tensors, strict=True)], context


def _unflatten(tensors: Iterable[Any], context: Any) -> Graph:
    names, lattice, num_sources, device = context
    return _unchecked(dict(zip(names, tensors, strict=True)), lattice, num_sources, torch.device(device))


def _dump(context: Any) -> Any:
    names, lattice, *rest = context
    return [list(names), None if lattice is None else lattice.to_text(), *rest]


def _undump(context: Any) -> Any:
    names, lattice, *rest = context
    return (tuple(names), None if lattice is None else Lattice.from_text(lattice), *rest)


pytree.register_pytree_node(
    Graph,
    _flatten,
    _unflatten,
    serialized_type_name="glocal.Graph",
    to_dumpable_context=_dump,
    from_dumpable_context=_undump,
    flatten_with_keys_fn=_flatten_with_keys,
)
fx_pytree.register_pytree_flatten_spec(Graph, lambda graph, spec: _flatten(graph)[0])  # torch.export before 2.8
torch.serialization.add_safe_globals([Graph, Lattice])  # `torch.export.save` also saves the example inputs
