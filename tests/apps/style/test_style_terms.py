"""Loss terms, networks and graph statistics against values computed by hand on tiny images."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from glocal import grid_graph
from glocal.apps.style import solve as core
from glocal.apps.style.edges import edge_share
from glocal.apps.style.levels import fitted, level_shapes, resized
from glocal.apps.style.networks import (
    Network,
    draw_networks,
    evened,
    graph_for,
    mean_gram,
    photo_graph,
    whitened,
)
from glocal.apps.style.options import style_options
from glocal.apps.style.solve import Task, solve
from glocal.apps.style.terms import Anchor, ColorFrame, GramDistance, TotalVariation, color_frame
from glocal.color_space import lab_from_rgb
from glocal.graph import Graph
from glocal.optim.lbfgs import Minimum
from glocal.optim.objectives import balance, value_and_gradient

PLAIN = ColorFrame(torch.zeros(3), torch.eye(3), torch.eye(3))


def noise(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def tiny_network():
    filters = torch.zeros(2, 3, 2)
    filters[0, 0, 0], filters[1, 1, 1] = 1, -1  # map 0: the vertex's own L; map 1: minus the neighbour's a
    return Network("tiny", 0, 1, filters, torch.tensor([0.0, 1.0]))


def test_gram_distance_by_hand():
    graph = Graph(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1.0, 2.0], [1.0, 0.5]]))
    x = torch.tensor([[1.0, 0.25, 0], [-1.0, 0.5, 0]])
    # F = relu([[1, 1 - 2 * 0.5], [-1, 1 - 0.5 * 0.25]]) = [[1, 0], [0, 0.875]]
    expected = torch.tensor([[0.5, 0], [0, 0.875**2 / 2]])
    torch.testing.assert_close(mean_gram(x, graph, tiny_network()), expected)
    distance = GramDistance(tiny_network(), graph, torch.eye(2))(x)
    assert float(distance) == pytest.approx(0.5**2 + (1 - 0.875**2 / 2) ** 2)
    shares = torch.tensor([[1.0, 3.0], [2.0, 0.0]])
    expected = torch.tensor([[[0.25, 0], [0, 0.75 * 0.875**2]], [[1.0, 0], [0, 0]]])
    torch.testing.assert_close(mean_gram(x, graph, tiny_network(), shares), expected)
    distance = GramDistance(tiny_network(), graph, torch.eye(2).expand(2, 2, 2), shares)(x)  # regions of 2/3 and 1/3
    assert float(distance) == pytest.approx((0.75**2 + (1 - 0.75 * 0.875**2) ** 2) * 2 / 3 + 1 / 3)


def test_total_variation_by_hand():
    x = torch.tensor([[0.0, 0, 0], [1.0, 0, 0], [0.0, 2.0, 0], [0.0, 0, -3.0]])
    # down: |0-0|+2 and 1+3; across: 1 and 2+3
    assert float(TotalVariation((2, 2), PLAIN)(x)) == 2 + 4 + 1 + 5


def test_anchor_compares_averages_over_the_graph():
    graph = Graph(torch.tensor([[0, 1], [1, 0], [2, 2]]), torch.ones(3, 2))
    target = torch.zeros(3, 3)
    channels = torch.tensor([1.0, 0.0, 0.0])
    strokes = torch.tensor([[1.0, 9, 9], [-1.0, 9, 9], [0.0, 9, 9]])  # cancel inside the area of similar pixels
    assert float(Anchor(graph, target, channels, PLAIN)(strokes)) == 0
    lighter = torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0.5, 0, 0]])
    assert float(Anchor(graph, target, channels, PLAIN)(lighter)) == pytest.approx((1 + 1 + 0.25) / 3)


def test_an_anchor_can_weigh_pixels():
    graph = Graph(torch.tensor([[0], [1]]))
    anchor = Anchor(graph, torch.zeros(2, 3), torch.ones(3), PLAIN, share=torch.tensor([2.0, 0.0]))
    assert float(anchor(torch.tensor([[3.0, 0, 0], [5.0, 5, 5]]))) == 2 * 9 / 2


@pytest.mark.parametrize("kind", ["centred", "white"])
@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_of_the_anchor_is_that_of_autograd(kind, shared):
    neighbors = torch.randint(0, 20, (20, 4), generator=torch.Generator().manual_seed(1))
    graph = Graph(neighbors, noise(20, 4, seed=2).double())
    share = noise(20, seed=3).double() if shared else None
    frame = color_frame([noise(20, 3, seed=4)], [1.0], kind)
    anchor = Anchor(graph, noise(20, 3).double(), torch.tensor([1.0, 0.3, 0.2]).double(), frame, 3, share)
    z = noise(20, 3, seed=5).double()
    value, gradient = anchor.value_and_gradient(z)
    expected, slope = value_and_gradient(anchor.__call__, z)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-14)


def test_edges_are_where_the_luminance_changes():
    lab = torch.zeros(12, 16, 3)
    lab[:, 8:, 0] = 50
    lab[..., 1] = noise(12, 16) * 90  # colours do not count
    share = edge_share(lab).view(12, 16)
    assert float(share.mean()) == pytest.approx(1, rel=1e-5)
    assert share[:, 6:10].mean() > 2
    assert float(share[:, :5].abs().max()) == 0
    assert torch.equal(edge_share(torch.full((4, 5, 3), 7.0)), torch.ones(20))


def test_the_anchor_at_edges_is_a_fraction_of_the_anchor(monkeypatch):
    seen = {}
    monkeypatch.setattr(core, "lbfgs", lambda objective, x, **_: _stop(seen, objective, x))
    task = Task(noise(16, 16, 3) * 100, (noise(16, 16, 3, seed=1) * 100,))
    solve(task, style_options("painterly", {"coarsest": 16, "anchor": 0.5, "anchor_edges": 0.4}))
    total, x = seen["objective"], seen["x"]
    for name, weight in (("anchor", 0.5), ("edges", 0.2)):
        _, gradient = value_and_gradient(total.terms[name], x)
        assert float(gradient.abs().max()) * total.factors[name] == pytest.approx(weight, rel=1e-5)
    solve(task, style_options("painterly", {"coarsest": 16, "anchor_edges": 0}))
    assert "edges" not in seen["objective"].terms


def test_scattered_networks_see_their_own_pixels():
    options = style_options("paper", {"filters": (), "scattered": (7, 3), "maps": 2, "degree": 10})
    far, near, last = draw_networks(options, torch.Generator().manual_seed(0))
    assert [n.name for n in (far, near, last)] == ["local 7x7 scattered", "local 3x3 scattered", "nonlocal"]
    assert [tuple(n.filters.shape) for n in (far, near, last)] == [(10, 3, 2), (9, 3, 2), (10, 3, 2)]
    steps = [tuple(step) for step in far.offsets.tolist()]
    assert len(set(steps)) == 10
    assert max(abs(part) for step in steps for part in step) <= 3
    graph = graph_for(far, (9, 12), None)
    assert graph.neighbors[4 * 12 + 5].tolist() == [(4 + dy) * 12 + 5 + dx for dy, dx in steps]
    corner = [abs(dy) * 12 + abs(dx) for dy, dx in steps]  # reflected
    assert graph.neighbors[0].tolist() == corner
    # A square with no more cells than taps is an ordinary filter.
    assert torch.equal(graph_for(near, (9, 12), None).neighbors, grid_graph((9, 12), size=3).neighbors)


def test_graph_statistics_by_hand():
    lab = noise(9, 7, 3, seed=4) * 100
    graph = photo_graph(lab, style_options("paper", {"degree": 5}))
    distances = graph.distances.reshape(-1).sort().values.tolist()

    def percentile(q):
        place = (len(distances) - 1) * q
        low = math.floor(place)
        return distances[low] + (distances[low + 1] - distances[low]) * (place - low)

    cap, sigma = percentile(0.80), percentile(0.75)
    for i in (0, 30):
        raw = [math.exp(-(min(float(d), cap) ** 2) / sigma**2) for d in graph.distances[i]]
        expected = [5 * w / sum(raw) for w in raw]
        assert graph.weights[i].tolist() == pytest.approx(expected, rel=1e-5)
    # The feature: 27 Lab values of the 3x3 patch and 2 coordinates.
    i, j = 24, int(graph.neighbors[24, 1])
    places = [(p // 7, p % 7) for p in (i, j)]
    patches = [lab[y - 1 : y + 2, x - 1 : x + 2] for y, x in places]
    if all(p.shape == (3, 3, 3) for p in patches):
        squared = float((patches[0] - patches[1]).square().sum()) + sum(
            (a - b) ** 2 for a, b in zip(*places, strict=True)
        )
        assert float(graph.distances[24, 1]) == pytest.approx(math.sqrt(squared), rel=1e-5)


def test_the_largest_gradient_of_each_network_is_one_at_the_start(monkeypatch):
    seen = {}
    monkeypatch.setattr(core, "lbfgs", lambda objective, x, **_: _stop(seen, objective, x))
    solve(Task(noise(16, 16, 3) * 100, (noise(16, 16, 3, seed=1) * 100,)), style_options("paper", {"coarsest": 16}))
    total, x = seen["objective"], seen["x"]
    assert list(total.terms) == ["local 5x5", "nonlocal", "tv"]
    for name in ("local 5x5", "nonlocal"):
        _, gradient = value_and_gradient(total.terms[name], x)
        assert float(gradient.abs().max()) * total.factors[name] == pytest.approx(1, rel=1e-5)
    assert total.factors["tv"] == 0.01


@pytest.mark.parametrize("balance", ["once", "gradient"])
def test_balance_once_lets_style_grow_with_the_number_of_pixels(monkeypatch, balance):
    seen = []
    monkeypatch.setattr(
        core, "lbfgs", lambda objective, x, **_: seen.append((objective, x)) or Minimum(x, (0.0,), 0, "done")
    )
    task = Task(noise(32, 40, 3) * 100, (noise(24, 24, 3, seed=1) * 100,))
    changes = {"coarsest": 10, "balance": balance, "anchor": 0.5, "anchor_ease": 0.5}
    solve(task, style_options("paper", changes))
    assert [len(x) for _, x in seen] == [80, 320, 1280]
    first = seen[0][0].factors
    for level, (total, x) in enumerate(seen):
        assert total.factors["tv"] == 0.01
        for name, ease in (("local 5x5", 1.0), ("nonlocal", 1.0), ("anchor", 0.5**level)):
            largest = float(value_and_gradient(total.terms[name], x)[1].abs().max()) * total.factors[name]
            if balance == "once":  # the gamma of sums over pixels stays, so that of means grows with n^2
                assert total.factors[name] == pytest.approx(first[name] * ease * (len(x) / 80) ** 2)
            if balance == "gradient" or level == 0:
                assert largest == pytest.approx(ease * (0.5 if name == "anchor" else 1), rel=1e-5)
            else:
                assert abs(largest - ease) > 0.1


def _stop(seen, objective, x):
    seen.update(objective=objective, x=x)
    return Minimum(x, (0.0,), 0, "stopped")


def test_the_photos_graph_is_used_not_the_paintings(monkeypatch):
    seen = {}
    monkeypatch.setattr(core, "lbfgs", lambda objective, x, **_: _stop(seen, objective, x))
    photo, painting = noise(12, 16, 3) * 100, noise(12, 16, 3, seed=1) * 100
    options = style_options("paper", {"coarsest": 16, "size": 16})
    solve(Task(photo, (painting,)), options)
    term = seen["objective"].terms["nonlocal"]
    mine, theirs = photo_graph(photo, options), photo_graph(painting, options)
    assert torch.equal(term.graph.neighbors, mine.neighbors)
    assert not torch.equal(term.graph.neighbors, theirs.neighbors)
    # ... and the target was measured on the painting's own graph.
    expected = mean_gram(painting.reshape(-1, 3) / 100, theirs, term.network)
    torch.testing.assert_close(term.target, expected)
    # Exchanged graphs would give another loss: the test can fail.
    exchanged = GramDistance(term.network, theirs, term.target)
    assert float(exchanged(seen["x"])) != pytest.approx(float(term(seen["x"])), rel=1e-3)


def test_networks_are_the_papers_and_do_not_depend_on_each_other():
    both = draw_networks(style_options("paper", {}), torch.Generator().manual_seed(0))
    assert [tuple(n.filters.shape) for n in both] == [(25, 3, 50), (25, 3, 50)]
    assert sum(n.filters.numel() for n in both) == 7500
    assert sum(n.bias.numel() for n in both) == 100
    alone = draw_networks(style_options("paper", {"networks": "nonlocal"}), torch.Generator().manual_seed(0))
    assert len(alone) == 1
    assert torch.equal(alone[0].filters, both[1].filters)


def test_whitened_filters_see_equal_variance_in_all_directions():
    smooth = torch.nn.functional.interpolate(noise(1, 3, 6, 6), size=(40, 40), mode="bilinear")[0].permute(1, 2, 0)
    x = (smooth + 0.1 * noise(40, 40, 3, seed=3)).reshape(-1, 3).contiguous()
    graph = grid_graph((40, 40), size=3)
    network = draw_networks(
        style_options("paper", {"filters": ((3, 1),), "maps": 400}), torch.Generator().manual_seed(1)
    )[0]
    drawn = whitened(network.to(x), [(x, graph)], 1.0)
    patches = x[graph.neighbors.long()].flatten(1)
    filters = drawn.filters.reshape(27, -1)
    assert torch.allclose((patches @ filters).std(0), torch.ones(400), rtol=0.05)
    energy = torch.linalg.eigvalsh(torch.cov(patches.T) @ (filters @ filters.T) @ torch.eye(27))
    raw = network.filters.float().reshape(27, -1)
    before = torch.linalg.eigvals(torch.cov(patches.T) @ raw @ raw.T).real
    after = torch.linalg.eigvals(torch.cov(patches.T) @ filters @ filters.T).real
    assert float(after.max() / after.min()) < 0.2 * float(before.max() / before.min())
    assert energy.shape == (27,)


def test_color_frames():
    painting = noise(20, 30, 3, seed=2).double() * torch.tensor([1.0, 0.3, 0.1]) + 0.2
    frame = color_frame([painting], [1.0], "white")
    seen = frame.seen(painting).reshape(-1, 3)
    torch.testing.assert_close(seen.mean(0), torch.zeros(3).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(seen.T @ seen / len(seen), torch.eye(3).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(frame.back(frame.seen(painting)), painting)
    assert torch.equal(color_frame([painting], [1.0], "plain").seen(painting), painting)


def test_levels():
    assert level_shapes((256, 256), 32) == [(32, 32), (64, 64), (128, 128), (256, 256)]
    assert level_shapes((40, 30), 32)[-1] == (40, 30)
    assert fitted((20, 2000), 512) == (8, 512)
    shapes = level_shapes((375, 512), 32)
    assert shapes[0] == (23, 32)
    assert shapes[-1] == (375, 512)
    constant = torch.full((10, 7, 3), 3.0)
    assert torch.allclose(resized(constant, (21, 5)), torch.tensor(3.0))


def test_balance_is_scale_free():
    term = GramDistance(tiny_network(), Graph(torch.tensor([[0, 1], [1, 0]])), torch.eye(2))
    x = torch.tensor([[1.0, 0.25, 0], [-1.0, 0.5, 0]])
    factor = balance({"a": term}, x)["a"]
    assert balance({"a": lambda x: 10 * term(x)}, x)["a"] == pytest.approx(factor / 10)


@pytest.mark.parametrize("kind", ["plain", "white"])
@pytest.mark.parametrize("part", [False, True])
def test_terms_know_their_gradients(kind, part):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(12, 3, dtype=torch.float64, generator=generator)
    frame = color_frame([torch.rand(9, 3, dtype=torch.float64, generator=generator)], [1.0], kind)
    shares = torch.rand(2, 12, dtype=torch.float64, generator=generator) if part else None
    network = replace(
        tiny_network(), filters=torch.randn(9, 3, 4, dtype=torch.float64, generator=generator),
        bias=torch.randn(4, dtype=torch.float64, generator=generator),
    )  # fmt: skip
    target = torch.rand(*([2] if part else []), 4, 4, dtype=torch.float64, generator=generator)
    distance = GramDistance(network, grid_graph((3, 4)), target, shares)
    for term in (distance, TotalVariation((3, 4), frame)):
        value, gradient = term.value_and_gradient(z)
        expected, slope = value_and_gradient(term.__call__, z)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient, slope)


def crossing(graph, side):
    """How often edges cross a border of 8x8 blocks, as a fraction of what their lengths let expect. Mazes have few."""
    here = torch.arange(side * side).unsqueeze(1)
    there = graph.neighbors.long()[:, 1:]
    seen = expected = 0.0
    for a, b in ((here // side, there // side), (here % side, there % side)):
        seen += float((a // 8 != b // 8).double().mean())
        expected += float(((a - b).abs() / 8).clamp(max=1).mean())
    return seen / expected


def test_the_graph_of_a_sky_does_not_follow_its_jpeg_blocks():
    side = 64
    y, x = np.mgrid[:side, :side] / side
    sky = np.stack([0.45 + 0.25 * y + 0.05 * x, 0.6 + 0.2 * y, 0.85 + 0.08 * y], -1)
    sky += np.random.default_rng(0).normal(0, 0.006, sky.shape)
    clean = (sky * 255).round().astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(clean).save(file, "jpeg", quality=60)
    labs = [lab_from_rgb(torch.from_numpy(np.array(p)).float() / 255) for p in (clean, Image.open(file))]
    plain, even = (style_options("painterly", {"even": value}) for value in (0.0, None))
    maze = crossing(photo_graph(labs[1], plain), side)
    assert maze < 0.9 * crossing(photo_graph(labs[0], plain), side)
    assert crossing(photo_graph(labs[1], even), side) > 1.1 * maze
    edge = torch.zeros(20, 20, 3)
    edge[:, 10:] = 30
    torch.testing.assert_close(evened(edge, even.even), edge, atol=0.6, rtol=0)
    assert style_options("paper", {}).even == 0
