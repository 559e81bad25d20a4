import pytest
import torch
from safetensors.torch import save_file

import glocal
from glocal import Graph
from glocal.errors import ArgumentError, DeviceError, InputError, OutputError


def test_keeps_int32_and_is_frozen():
    g = Graph(torch.tensor([[0, 1], [1, 0]]))
    assert g.neighbors.dtype == torch.int32
    assert (g.num_vertices, g.degree) == (2, 2)
    with pytest.raises(AttributeError):
        g.weights = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((torch.zeros(3, dtype=torch.int32),), ArgumentError, r"Graph: `neighbors` must be a tensor of shape \(n, d\)"),
        ((torch.zeros(2, 2),), ArgumentError, "Graph: `neighbors` must hold integers, got torch.float32"),
        ((torch.zeros(0, 3, dtype=torch.int32),), ArgumentError, r"Graph: `neighbors` \(n=0, d=3\) is empty"),
        ((torch.tensor([[0, 2], [0, 1]]),), ArgumentError, "holds the index 2, but vertices are numbered 0 to 1"),
        ((torch.tensor([[0, -1], [0, 1]]),), ArgumentError, "holds the index -1"),
        (
            (torch.tensor([[0], [0]]), torch.ones(2, 2)),
            ArgumentError,
            r"`weights` \(shape \(2, 2\)\) must have the shape",
        ),
        ((torch.tensor([[0], [0]]), torch.tensor([[1.0], [-1.0]])), ArgumentError, "must be finite and not negative"),
        (
            (torch.tensor([[0], [0]]), torch.tensor([[1.0], [torch.nan]])),
            ArgumentError,
            "must be finite and not negative",
        ),
        (
            (torch.tensor([[0], [0]]), torch.tensor([[1.0], [torch.inf]])),
            ArgumentError,
            "must be finite and not negative",
        ),
        ((torch.tensor([[0], [0]]), torch.ones(2, 1, dtype=torch.int32)), ArgumentError, "must be float32 or float64"),
        ((torch.tensor([[0], [0]]), [[1.0], [1.0]]), ArgumentError, "`weights` is a list, not a tensor"),
        ((torch.tensor([[0], [0]]).to_sparse(),), ArgumentError, "`neighbors` is torch.sparse_coo. Convert with"),
        (
            (torch.tensor([[0], [0]]), torch.ones(2, 1, device="meta")),
            DeviceError,
            "`weights` is on meta, `neighbors` on cpu",
        ),
    ],
)
def test_refuses(arguments, error, text):
    with pytest.raises(error, match=text) as caught:
        Graph(*arguments)
    assert isinstance(caught.value, (ValueError, RuntimeError))


def test_with_weights_checks_and_keeps_what_was_worked_out():
    g = glocal.grid_graph((4, 4))
    first = glocal.nn.functional.reverse(g)
    other = g.with_weights(torch.full((16, 9), 0.5))
    assert g.weights is None
    assert glocal.nn.functional.reverse(other)[1] is first[1]
    with pytest.raises(ArgumentError, match="not negative"):
        g.with_weights(torch.full((16, 9), -0.5))


def test_the_reversed_graph_lists_each_edge_under_its_target():
    g = Graph(torch.randint(6, (6, 4), generator=torch.Generator().manual_seed(3)))
    start, edges = glocal.nn.functional.reverse(g)
    flat = g.neighbors.reshape(-1)
    for j in range(6):
        assert edges[start[j] : start[j + 1]].tolist() == (flat == j).nonzero().reshape(-1).tolist()


def test_saves_and_loads(tmp_path):
    g = glocal.patch_graph(torch.rand(5, 6, 2), k=4).with_weights(torch.rand(30, 4))
    g.save(tmp_path / "g.safetensors")
    back = Graph.load(tmp_path / "g.safetensors")
    for name in ("neighbors", "weights", "distances"):
        assert torch.equal(getattr(g, name), getattr(back, name))
    assert [p.name for p in tmp_path.iterdir()] == ["g.safetensors"]


def test_load_refuses_what_is_not_a_graph(tmp_path):
    whole = tmp_path / "g.safetensors"
    glocal.grid_graph((20, 20)).save(whole)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole.read_bytes()[:-100])
    text = tmp_path / "text.safetensors"
    text.write_text("hello")
    other = tmp_path / "other.safetensors"
    save_file({"a": torch.ones(1)}, other)
    hollow = tmp_path / "hollow.safetensors"
    save_file({"a": torch.ones(1)}, hollow, metadata={"format": "glocal-graph-1"})
    for path, why in [(cut, "damaged"), (text, "damaged"), (other, "not a graph"), (hollow, "no neighbors")]:
        with pytest.raises(InputError, match=why):
            Graph.load(path)
    with pytest.raises(InputError, match=r"cannot read .*missing"):
        Graph.load(tmp_path / "missing.safetensors")
    with pytest.raises(InputError, match="cannot read"):
        Graph.load(tmp_path)


def test_save_says_when_it_cannot_write(tmp_path):
    with pytest.raises(OutputError, match=r"the folder .*nowhere does not exist"):
        glocal.grid_graph((3,)).save(tmp_path / "nowhere" / "g.safetensors")


def test_save_replaces_a_file_on_request(tmp_path):
    path = tmp_path / "g"
    glocal.grid_graph((3,)).save(path)
    with pytest.raises(OutputError, match="the file exists already"):
        glocal.grid_graph((4,)).save(path, overwrite=0)
    with pytest.warns(DeprecationWarning, match="from 0.3 on, a file that exists is only replaced with overwrite=True"):
        glocal.grid_graph((4,)).save(path)
    glocal.grid_graph((5,)).save(path, overwrite=True)
    assert Graph.load(path).num_vertices == 5


def test_repr_is_for_people():
    g = glocal.grid_graph((256, 256), size=5, boundary="zero")
    assert repr(g) == "Graph(65,536 vertices, degree 25, lattice 256x256, zero, cpu, 0 B)"
    g = Graph(g.neighbors, g.weights)
    assert repr(g) == "Graph(65,536 vertices, degree 25, weighted, cpu, 12.5 MiB)"


def test_to_moves_all():
    g = glocal.patch_graph(torch.rand(3, 3, 1), k=2).to("cpu")
    assert g.device.type == "cpu"
    assert g.to("cpu") is g


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there():
    g = glocal.grid_graph((3,))
    for call, name in [
        (lambda: glocal.grid_graph((3,), device="cuda"), "cuda"),
        (lambda: g.to("cuda:1"), "cuda:1"),
        (g.cuda, "cuda"),
        (lambda: g.to("gpu"), "gpu"),
    ]:
        with pytest.raises(DeviceError, match=rf"Graph: `device` \(='{name}'\) cannot be used here .*\. Use cpu"):
            call()


def between(n=4, sources=7, degree=3):
    make = torch.Generator().manual_seed(5)
    neighbors = torch.randint(sources, (n, degree), generator=make)
    return Graph(neighbors, torch.rand(n, degree, generator=make), torch.rand(n, degree), num_sources=sources)


def same(a, b):
    assert (a.num_vertices, a.num_sources, a.degree, a.lattice) == (b.num_vertices, b.num_sources, b.degree, b.lattice)
    for name in ("neighbors", "weights", "distances"):
        ours, theirs = getattr(a, name), getattr(b, name)
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)


def test_a_graph_between_two_signals(tmp_path):
    g = between()
    assert (g.num_vertices, g.num_sources) == (4, 7)
    assert repr(g) == "Graph(4 vertices from 7 sources, degree 3, weighted, with distances, cpu, 144 B)"
    g.save(tmp_path / "g")
    same(Graph.load(tmp_path / "g"), g)
    assert g.with_weights(None).num_sources == 7
    assert g.to("meta").num_sources == 7
    with pytest.raises(ArgumentError, match="holds the index 7, but vertices are numbered 0 to 6"):
        Graph(torch.tensor([[7]]), num_sources=7)
    for count in (0, -1, 2**31, 1.5, "a"):
        with pytest.raises(ArgumentError, match=rf"`num_sources` \(={count}\) must be a whole number from 1"):
            Graph(torch.tensor([[0]]), num_sources=count)
    save_file(
        {"neighbors": torch.tensor([[0]])}, tmp_path / "bad", metadata={"format": "glocal-graph-1", "num_sources": "x"}
    )
    with pytest.raises(InputError, match="is damaged: num_sources is 'x'"):
        Graph.load(tmp_path / "bad")


def test_indices_beyond_32_bits_and_unsigned_ones_are_refused():
    with pytest.raises(ArgumentError, match="holds the index 4294967296"):
        Graph(torch.tensor([[2**32]]))
    with pytest.raises(ArgumentError, match=r"must hold integers, got torch.uint16. Convert with .to\(torch.int32\)"):
        Graph(torch.zeros(2, 2, dtype=torch.uint16))


@pytest.mark.parametrize(
    "graph",
    [
        between(),
        Graph(torch.tensor([[0, 1], [1, 0]])),
        glocal.grid_graph((3, 4)),
        glocal.grid_graph((3, 4), boundary="zero"),
        glocal.grid_graph((3,)).with_weights(torch.rand(3, 3)),
    ],
    ids=repr,
)
def test_is_a_pytree(graph):
    leaves, spec = torch.utils._pytree.tree_flatten({"g": graph})
    assert len(leaves) == (graph.lattice is None) + (graph.convolution is None and graph.weights is not None) + (
        graph.distances is not None
    )
    same(torch.utils._pytree.tree_unflatten(leaves, spec)["g"], graph)
    text = torch.utils._pytree.treespec_dumps(spec)
    same(torch.utils._pytree.tree_unflatten(leaves, torch.utils._pytree.treespec_loads(text))["g"], graph)
    paths = [str(path[-1]) for path, _ in torch.utils._pytree.tree_flatten_with_path({"g": graph})[0]]
    assert paths == [name for name in (".neighbors", ".weights", ".distances") if name in paths]
    assert len(paths) == len(leaves)


def test_cpu_cuda_and_pinned_memory(monkeypatch):
    g = between()
    assert g.cpu() is g
    asked = []
    monkeypatch.setattr(Graph, "to", lambda self, device: asked.append(str(device)) or self)
    g.cuda()
    g.cuda(0)
    g.cuda("cuda:3")
    assert asked == ["cuda", "cuda:0", "cuda:3"]  # "cuda" is the current one
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self + 0)  # a machine without a GPU has none
    same(g.pin_memory(), g)
