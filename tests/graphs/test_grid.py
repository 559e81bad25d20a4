import copy
import pickle

import pytest
import torch
from safetensors.torch import save_file

import glocal
from glocal.errors import ArgumentError, InputError
from glocal.lattice import BOUNDARIES, Lattice


def test_columns_are_in_raster_order():
    g = glocal.grid_graph((3, 4), size=3)
    assert g.neighbors[5].tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert g.weights is None


def test_zero_boundary_has_weight_zero_outside():
    g = glocal.grid_graph((2, 2), size=3, boundary="zero")
    assert g.weights[0].tolist() == [0, 0, 0, 0, 1, 1, 0, 1, 1]


def test_three_dimensions():
    g = glocal.grid_graph((2, 3, 4), size=3, boundary="circular")
    assert (g.num_vertices, g.degree) == (24, 27)
    assert g.neighbors[0, 13] == 0
    assert g.neighbors[0, 4] == 12  # one step back in t wraps


@pytest.mark.parametrize(
    "option", [{"shape": (4.5, 3)}, {"shape": "ab"}, {"size": 3.0}, {"dilation": 1.5}, {"dilation": (1, 1)}]
)
def test_refuses_what_is_not_a_whole_number(option):
    (name,) = option
    with pytest.raises(ArgumentError, match=rf"grid_graph: `{name}` .* must be whole numbers"):
        glocal.grid_graph(**({"shape": (4, 3)} | option))


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((), {}, r"grid_graph: `shape` \(=\(\)\) must be \(n,\)"),
        ((3, 0), {}, r"`shape` \(=\(3, 0\)\)"),
        ((1, 2, 3, 4), {}, "`shape`"),
        ((4, 4), {"size": 4}, r"`size` \(=4\) must be odd and positive"),
        ((4, 4), {"size": (3, 3, 3)}, r"must have one entry for each axis"),
        ((4, 4), {"dilation": 0}, r"`dilation` \(=0\) must be at least 1"),
        (
            (4, 4),
            {"boundary": "mirror"},
            r"`boundary` \(='mirror'\) is unknown. Choose one of reflect, replicate, circular, zero",
        ),
    ],
)
def test_refuses(shape, options, text):
    with pytest.raises(ArgumentError, match=text):
        glocal.grid_graph(shape, **options)


def test_every_boundary_keeps_the_vertex_in_the_middle():
    for boundary in ("reflect", "replicate", "circular", "zero"):
        g = glocal.grid_graph((5, 3), size=5, boundary=boundary)
        assert torch.equal(g.neighbors[:, 12], torch.arange(15, dtype=torch.int32))


def stored(g):
    """What a graph holds in memory, without making it compute anything."""
    return {name for name in ("neighbors", "weights", "distances") if isinstance(g.__dict__.get(name), torch.Tensor)}


def same(a, b):
    assert torch.equal(a.neighbors, b.neighbors)
    assert (a.weights is None) == (b.weights is None)
    assert a.weights is None or torch.equal(a.weights, b.weights)


def test_a_grid_stores_its_rule_and_computes_its_edges_when_they_are_read():
    g = glocal.grid_graph((4000, 6000), size=3, boundary="zero")
    assert (g.num_vertices, g.degree, g.device.type) == (24_000_000, 9, "cpu")
    assert repr(g) == "Graph(24,000,000 vertices, degree 9, lattice 4000x6000, zero, cpu, 0 B)"
    assert g.convolution == Lattice((4000, 6000), (3, 3), 1, "zero")
    assert stored(g) == set()
    small = glocal.grid_graph((4, 6), boundary="zero")
    assert small.neighbors is small.neighbors
    assert stored(small) == {"neighbors"}


def test_other_weights_leave_the_neighbors_and_end_the_convolution():
    for boundary in BOUNDARIES:
        g = glocal.grid_graph((4, 5), boundary=boundary)
        weights = torch.rand(20, 9)
        other = g.with_weights(weights)
        assert other.convolution is None
        assert stored(other) == {"weights"}
        same(other, glocal.Graph(g.neighbors, weights))
        plain = other.with_weights(None)
        assert plain.convolution is not None
        same(plain, glocal.Graph(g.neighbors))
        same(glocal.Graph.from_lattice(plain.convolution), plain)


def test_a_grid_is_a_grid_after_saving_and_loading(tmp_path):
    for boundary in BOUNDARIES:
        g = glocal.grid_graph((4, 3, 5), size=(3, 1, 5), dilation=2, boundary=boundary)
        g.save(tmp_path / "g", overwrite=True)
        back = glocal.Graph.load(tmp_path / "g")
        assert back.convolution == g.convolution
        assert stored(back) == set()
        weighted = g.with_weights(torch.rand(60, 15))
        weighted.save(tmp_path / "g", overwrite=True)
        back = glocal.Graph.load(tmp_path / "g")
        assert back.convolution is None
        same(back, weighted)
    assert (tmp_path / "g").stat().st_size < 60 * 15 * 4 + 1000


def test_a_file_with_the_neighbors_of_a_grid_still_loads(tmp_path):
    g = glocal.grid_graph((4, 3), boundary="zero")
    save_file({"neighbors": g.neighbors, "weights": g.weights}, tmp_path / "g", metadata={"format": "glocal-graph-1"})
    back = glocal.Graph.load(tmp_path / "g")
    assert back.lattice is None
    same(back, g)


@pytest.mark.parametrize(
    "text", ["no", "{}", '{"shape": [4], "size": [2], "dilation": 1, "boundary": "zero", "copies": 1}']
)
def test_refuses_a_damaged_lattice(tmp_path, text):
    save_file({}, tmp_path / "g", metadata={"format": "glocal-graph-1", "lattice": text})
    with pytest.raises(InputError, match="is damaged: it has no valid lattice"):
        glocal.Graph.load(tmp_path / "g")


def test_equal_grids_side_by_side_are_one_lattice():
    for boundary in BOUNDARIES:
        g = glocal.grid_graph((4, 5), boundary=boundary)
        both = glocal.block_diagonal([g, g, glocal.block_diagonal([g])])
        assert both.convolution == Lattice((4, 5), (3, 3), 1, boundary, copies=3)
        assert repr(both).startswith("Graph(60 vertices, degree 9, lattice 3 times 4x5,")
        same(both, glocal.block_diagonal([glocal.Graph(g.neighbors, g.weights)] * 3))
    assert glocal.block_diagonal([g, glocal.grid_graph((5, 4))]).lattice is None
    assert glocal.block_diagonal([g, g.with_weights(torch.rand(20, 9))]).lattice is None


def test_a_grid_moves_without_its_edges():
    g = glocal.grid_graph((4, 5), boundary="zero").to("meta")
    assert (g.device.type, g.convolution.boundary, stored(g)) == ("meta", "zero", set())
    assert g.neighbors.device.type == "meta"


def test_a_grid_can_be_copied():
    g = glocal.grid_graph((4, 5), boundary="zero")
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert other.convolution == g.convolution
        same(other, g)
    with pytest.raises(AttributeError, match="no attribute 'edges'"):
        g.edges  # noqa: B018


def test_refuses_more_vertices_than_an_index_can_name():
    with pytest.raises(ArgumentError, match=r"must have 1 to 2\^31 - 1 vertices"):
        glocal.grid_graph((50_000, 50_000))
