"""One row of the graph of patches equals the graph's."""

import pytest
import torch

from glocal.errors import ArgumentError
from glocal.graphs.patch import patch_graph
from glocal.graphs.vertex import nearest_patches


def signal(shape, levels=None):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(3))
    return x if levels is None else (levels * x).round()


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (signal((13, 17, 3)), {"k": 9, "patch": 3}),
        (signal((13, 17, 3), levels=2), {"k": 20, "patch": 3}),  # many ties
        (signal((13, 17, 1)), {"k": 7, "patch": 5, "coords": 0.1}),
        (signal((13, 17, 2)), {"k": 6, "patch": 3, "search_radius": 4}),
        (signal((13, 17, 1)), {"k": 6, "patch": 1, "search_radius": 3, "coords": 0.5}),
        (signal((13, 17, 3)), {"k": 5, "patch": 31}),  # wider than the picture
        (signal((60,)), {"k": 5, "patch": 7}),
        (1e4 + signal((60,), levels=3), {"k": 9, "patch": 5, "coords": 1.0}),  # far from zero, with ties
        (signal((60, 2)), {"k": 5, "patch": 3, "search_radius": 9, "coords": 0.01}),
    ],
)
def test_a_row_is_the_row_of_the_graph(x, options):
    graph = patch_graph(x, **options)
    for vertex in (0, 1, graph.num_vertices // 2, graph.num_vertices - 1):
        neighbors, distances = nearest_patches(x, vertex, **options)
        assert neighbors.tolist() == graph.neighbors[vertex].tolist()
        torch.testing.assert_close(distances, graph.distances[vertex], rtol=1e-5, atol=1e-5)


def test_flat_patches_with_the_mean_of_the_picture_tie():
    noise = 100 * signal((256, 64, 3))
    x = torch.cat([noise, 100 - noise, torch.full((256, 128, 3), 50.0)], 1)  # its mean is 50, as in its flat half
    vertex = 100 * 256 + 200
    neighbors, distances = nearest_patches(x, vertex, k=9, patch=3)
    assert neighbors.tolist() == [vertex, *range(129, 137)]  # itself, then ties by index
    assert not distances.any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"vertex": 60}, r"`vertex` \(=60\) must be from 0 to 59"),
        ({"k": 61}, r"`k` \(=61\) must be from 1 to the number of vertices \(=60\)"),
        ({"k": 9, "search_radius": 2}, r"`k` \(=9\) must not be larger than the number of candidates \(=3\)"),
        ({"patch": 2}, r"`patch` \(=2\) must be odd and positive"),
        ({"coords": -1.0}, r"`coords` \(=-1.0\) must be finite and not negative"),
        ({"search_radius": -1}, r"`search_radius` \(=-1\) must not be negative"),
    ],
)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(ArgumentError, match=text):
        nearest_patches(signal((60,)), **({"vertex": 0} | options))
