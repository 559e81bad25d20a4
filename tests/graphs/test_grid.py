import pytest
import torch

import glocal
from glocal.errors import ArgumentError


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
