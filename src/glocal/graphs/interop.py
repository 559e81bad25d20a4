"""Graphs from and to SciPy, NetworkX and PyTorch Geometric. Each library is imported only when called.

Those libraries store an unordered set of edges. In glocal the order of a vertex's edges matters. So `to_*` can store the
column as an edge attribute, and `from_*` use it if it is present. Otherwise column 0 is the vertex itself, and the other
edges follow by decreasing weight; ties go to the smaller index. A vertex without a self-edge gets one of weight 0.
Vertices with fewer edges are completed with self-edges of weight 0.

A graph between two signals (`num_sources`) is a rectangular matrix in SciPy, a bipartite MultiDiGraph in NetworkX with
the nodes ("vertex", i) and ("source", j), and a bipartite `edge_index` in PyTorch Geometric. It has no self-edges. The
columns are sorted by decreasing weight, and vertices with fewer edges are completed with edges of weight 0 to source 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.errors import ArgumentError, MissingDependencyError
from glocal.graph import Graph

if TYPE_CHECKING:
    import networkx
    import scipy.sparse
    import torch_geometric.data


def from_edges(
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    *,
    num_vertices: int,
    column: Tensor | None = None,
    num_sources: int | None = None,
) -> Graph:
    """Build a graph from lists of edges. Every other `from_*` calls this function. Cost: O(E log E).

    Parameters
    ----------
    source, target, weight : Tensor, (E,)
        Edge e goes from the vertex `source[e]`, which gathers, to `target[e]`, whose value it gathers.
    num_vertices : int
        The number of vertices n.
    column : Tensor, (E,), optional
        The column of each edge in its row. Without it, the order in the module docstring is used.
    num_sources : int, optional
        The number of rows of the other signal, if the targets belong to another signal than the sources.

    Examples
    --------
    >>> g = from_edges(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), torch.ones(3), num_vertices=2)
    >>> g.neighbors.tolist(), g.weights.tolist()
    ([[0, 1], [1, 1]], [[1.0, 1.0], [1.0, 0.0]])
    """
    source, target = source.reshape(-1).long(), target.reshape(-1).long()
    weight = weight.reshape(-1).to(torch.float64 if weight.dtype == torch.float64 else torch.float32)
    if not len(source) == len(target) == len(weight):
        message = f"from_edges: {len(source)} sources, {len(target)} targets and {len(weight)} weights. Give the same number of each."
        raise ArgumentError(message)
    one = num_sources is None
    limits = ((source, num_vertices, "num_vertices"), (target, num_sources or num_vertices, "num_sources"))
    for ends, count, name in limits:
        if len(ends) and (int(ends.min()) < 0 or int(ends.max()) >= count):
            checked = "num_vertices" if one else name
            message = f"from_edges: an edge ends outside the vertices 0 to {count - 1}. Check `{checked}`."
            raise ArgumentError(message)
    if column is None:
        source, target, weight, column = _ordered(source, target, weight, num_vertices if one else 0)
    degree = int(column.max()) + 1 if len(column) else 1
    fill = torch.arange(num_vertices) if one else torch.zeros(num_vertices, dtype=torch.int64)
    neighbors = fill.unsqueeze(1).repeat(1, degree)
    weights = torch.zeros(num_vertices, degree, dtype=weight.dtype)
    neighbors[source, column.long()] = target
    weights[source, column.long()] = weight
    return Graph(neighbors, weights, num_sources=num_vertices if num_sources is None else num_sources)


def _ordered(source: Tensor, target: Tensor, weight: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sort the edges and number those of each vertex. n vertices get self-edges, which come first (n = 0: none)."""
    if n:
        own = torch.ones(n, dtype=torch.bool)
        own[source[source == target]] = False
        missing = own.nonzero().reshape(-1)
        source, target = torch.cat([source, missing]), torch.cat([target, missing])
        weight = torch.cat([weight, weight.new_zeros(len(missing))])
    order = target.argsort(stable=True)
    order = order[(-weight[order]).argsort(stable=True)]
    if n:
        order = order[(source[order] != target[order]).to(torch.int8).argsort(stable=True)]
    order = order[source[order].argsort(stable=True)]
    source, target, weight = source[order], target[order], weight[order]
    first = torch.searchsorted(source, source)
    return source, target, weight, torch.arange(len(source)) - first


def from_scipy(matrix: scipy.sparse.spmatrix | scipy.sparse.sparray) -> Graph:
    """Read a sparse (n, n) adjacency matrix. Explicit zeros are edges of weight 0.

    A matrix (n, m) with m != n is a graph between two signals.
    """
    coo = matrix.tocoo()
    n, m = coo.shape
    row, col, data = (torch.from_numpy(part.copy()) for part in (coo.row, coo.col, coo.data))
    return from_edges(row, col, data, num_vertices=n, num_sources=None if m == n else m)


def to_scipy(graph: Graph) -> scipy.sparse.csr_array:
    """Return the adjacency matrix `W` (n, n), or (n, m) for m sources. Parallel edges add up; zero weights are omitted."""
    sparse = _module("scipy.sparse", "to_scipy", "scipy")
    source, target, weight, _ = _edges(graph)
    shape = graph.num_vertices, graph.num_sources
    matrix = sparse.coo_array((weight.numpy(), (source.numpy(), target.numpy())), shape=shape).tocsr()
    matrix.eliminate_zeros()
    return matrix


def from_networkx(graph: networkx.Graph, *, weight: str = "weight") -> Graph:
    """Read a NetworkX graph. Undirected edges count in both directions. Nodes are numbered in the graph's own order.

    Nodes with the attribute `bipartite` 0 and 1 give a graph between two signals: 0 gathers from 1.
    """
    nx = _module("networkx", "from_networkx", "networkx")
    sides = nx.get_node_attributes(graph, "bipartite")
    number = {node: i for i, node in enumerate(graph)}
    num_vertices, num_sources = len(number), None
    if len(sides) == len(number) and set(sides.values()) == {0, 1}:
        num_sources = sum(sides.values())
        num_vertices -= num_sources
        for side in (0, 1):
            number |= {node: i for i, node in enumerate(v for v in graph if sides[v] == side)}
    directed = nx.to_directed(graph)
    edges = [
        (number[u], number[v], float(a.get(weight, 1)), a.get("column", -1))
        for u, v, a in directed.edges(data=True)
        if num_sources is None or sides[u] == 0
    ]
    source, target, value, column = zip(*edges, strict=True) if edges else ((), (), (), ())
    ordered = torch.tensor(column) if edges and min(column) >= 0 else None
    ends = torch.tensor(source, dtype=torch.long), torch.tensor(target, dtype=torch.long)
    return from_edges(*ends, torch.tensor(value), num_vertices=num_vertices, column=ordered, num_sources=num_sources)


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """Return a MultiDiGraph with the edge attributes `weight` and `column` (parallel edges are possible).

    A graph between two signals has the nodes ("vertex", i) with the attribute `bipartite` 0 and ("source", j) with 1.
    """
    nx = _module("networkx", "to_networkx", "networkx")
    result = nx.MultiDiGraph()
    rows = zip(*(part.tolist() for part in _edges(graph)), strict=True)
    if graph.num_sources == graph.num_vertices:
        result.add_nodes_from(range(graph.num_vertices))
        result.add_edges_from((u, v, {"weight": w, "column": c}) for u, v, w, c in rows)
        return result
    result.add_nodes_from((("vertex", i) for i in range(graph.num_vertices)), bipartite=0)
    result.add_nodes_from((("source", j) for j in range(graph.num_sources)), bipartite=1)
    result.add_edges_from((("vertex", u), ("source", v), {"weight": w, "column": c}) for u, v, w, c in rows)
    return result


def from_pyg(data: torch_geometric.data.Data) -> Graph:
    """Read `edge_index` (our sources are row 1, our targets row 0), `edge_weight` and `edge_column`.

    In PyTorch Geometric messages flow from `edge_index[0]` to `edge_index[1]`. The vertex that gathers is therefore
    `edge_index[1]`, which is the source of our edge. An attribute `bipartite` (sources, vertices) gives a
    graph between two signals.
    """
    weight = getattr(data, "edge_weight", None)
    weight = torch.ones(data.edge_index.shape[1]) if weight is None else weight
    column = getattr(data, "edge_column", None)
    num_sources, n = getattr(data, "bipartite", None) or (None, int(data.num_nodes))
    ends = data.edge_index[1], data.edge_index[0]
    return from_edges(*ends, weight, num_vertices=n, column=column, num_sources=num_sources)


def to_pyg(graph: Graph) -> torch_geometric.data.Data:
    """Return a Data with `edge_index`, `edge_weight` and the column as `edge_column`. Edges of vertex 0 come first.

    For a graph between two signals `bipartite` is (sources, vertices). Pass it to message passing as `size`.
    """
    pyg = _module("torch_geometric.data", "to_pyg", "torch_geometric")
    source, target, weight, column = _edges(graph)
    index, n, m = torch.stack([target, source]), graph.num_vertices, graph.num_sources
    counts = {"num_nodes": n} if m == n else {"num_nodes": m + n, "bipartite": (m, n)}
    return pyg.Data(edge_index=index, edge_weight=weight, edge_column=column, **counts)


def _edges(graph: Graph) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, d = graph.neighbors.shape
    weights = torch.ones(n, d) if graph.weights is None else graph.weights.detach().cpu()
    source = torch.arange(n).repeat_interleave(d)
    return source, graph.neighbors.cpu().long().reshape(-1), weights.reshape(-1), torch.arange(d).repeat(n)


def _module(name: str, caller: str, package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"{caller}: {package} is not installed. Run: pip install {package}"
        raise MissingDependencyError(message) from error
