"""A sequence of layers, each on the graph that it names."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from glocal.errors import ArgumentError
from glocal.graph import Graph


class GraphSequential(nn.Module):
    """Apply layers one after the other. A layer given as `(layer, "name")` gets the graph of that name.

    Layers without a name (activations) get only the signal.

    >>> import torch, glocal
    >>> from glocal.nn import GraphConv, GraphSequential, SharedGraphConv, SoftThreshold
    >>> net = GraphSequential((GraphConv(1, 18, 9), "local"), SoftThreshold(18),
    ...                       (SharedGraphConv(9), "nonlocal"), (GraphConv(18, 1, 9), "local"))
    >>> x = torch.rand(64, 1)
    >>> graphs = {"local": glocal.grid_graph((8, 8)), "nonlocal": glocal.knn_graph(x, k=9)}
    >>> net(x, graphs).shape
    torch.Size([64, 1])
    """

    def __init__(self, *layers: nn.Module | tuple[nn.Module, str]) -> None:
        super().__init__()
        pairs = [layer if isinstance(layer, tuple) else (layer, None) for layer in layers]
        self.layers = nn.ModuleList(layer for layer, _ in pairs)
        self.graphs = tuple(name for _, name in pairs)

    def forward(self, x: Tensor, graphs: Mapping[str, Graph]) -> Tensor:
        """Map x (n, c) or (batch, n, c) to the output of the last layer. Raises ArgumentError if a graph is missing."""
        for layer, name in zip(self.layers, self.graphs, strict=True):
            if name is None:
                x = layer(x)
            elif name in graphs:
                x = layer(x, graphs[name])
            else:
                message = (
                    f"GraphSequential: a layer uses the graph {name!r}, but `graphs` has {sorted(graphs)}. Add it."
                )
                raise ArgumentError(message)
        return x

    def project(self) -> None:
        """Project every layer that has constraints. Call it after each optimiser step."""
        for layer in self.layers:
            project = getattr(layer, "project", None)
            if callable(project):
                project()

    def extra_repr(self) -> str:
        """Show which layer uses which graph."""
        return "graphs=" + ", ".join("-" if name is None else name for name in self.graphs)
