"""Graphs between two signals, in one, two and three dimensions, equal brute force on every backend."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from skimage import data

import glocal
from glocal.errors import ArgumentError
from glocal.kernels import reference_search

RNG = np.random.default_rng(0)
BACKENDS = ["reference", "portable", ""]
PHOTO = data.astronaut()


def axes_of(value, axes):
    return (value,) * axes if isinstance(value, int) else tuple(value)


def brute_force(signal, source, k, *, patch=3, coords=0.0, radius=None, stride=1, source_stride=1, own=False):
    """Float64 distances between explicit feature vectors; integer-valued signals make float32 exact too."""
    axes = signal.ndim - 1
    patch = axes_of(patch, axes)

    def vectors(x, step):
        half = [(p // 2, p // 2) for p in patch]
        padded = np.pad(x.astype(np.float64), [*half, (0, 0)], mode="reflect")
        places = np.stack(
            np.meshgrid(*(np.arange(0, n, s) for n, s in zip(x.shape, axes_of(step, axes))), indexing="ij"), -1
        ).reshape(-1, axes)
        cut = [padded[tuple(slice(a, a + p) for a, p in zip(at, patch))].reshape(-1) for at in places]
        return np.stack(cut), places

    (a, here), (b, there) = vectors(signal, stride), vectors(source, source_stride)
    d2 = cdist(a, b, "sqeuclidean") + coords**2 * cdist(here, there, "sqeuclidean")
    if radius is not None:
        d2[(abs(here[:, None] - there) > np.array(axes_of(radius, axes))).any(2)] = np.inf
    if own:
        np.fill_diagonal(d2, -1)
    order = np.argsort(d2, axis=1, kind="stable")[:, :k]
    return order, np.sqrt(np.take_along_axis(d2, order, 1).clip(0))


def levels(*shape, high=256):
    return RNG.integers(0, high, shape)


# Three channels, as in most other tests: the CPU compiles its kernels for each number of channels.
PAIRS = {
    "random": (levels(9, 11, 3), levels(13, 8, 3)),
    "ties": (levels(12, 9, 3, high=2), levels(9, 12, 3, high=2)),
    "constant": (np.full((6, 7, 3), 3), np.full((7, 9, 3), 3)),
    "periodic": (np.tile(levels(4, 3, 3), (3, 4, 1)), np.tile(levels(4, 3, 3), (4, 3, 1))),
    "flat source": (levels(9, 11, 3), np.full((9, 9, 3), 3)),
    "natural": (PHOTO[100:123, 200:219], PHOTO[120:139, 190:213]),
    "row": (levels(1, 60, 3), levels(1, 45, 3)),
    "column": (levels(60, 1, 3), levels(45, 1, 3)),
    "line": (levels(70, 3), levels(90, 3)),
    "video": (levels(3, 6, 7, 3), levels(4, 5, 8, 3)),
    "one frame": (levels(1, 6, 7, 3), levels(4, 5, 8, 3)),
}


def check(signal, source, k, **options):
    own = source is None and options.get("stride", 1) == options.get("source_stride", 1)
    given = {"search_radius" if name == "radius" else name: value for name, value in options.items()}
    g = glocal.patch_graph(
        torch.from_numpy(signal), source=None if source is None else torch.from_numpy(source), k=k, **given
    )
    neighbors, distances = brute_force(signal, signal if source is None else source, k, own=own, **options)
    np.testing.assert_array_equal(g.neighbors.numpy(), neighbors)
    np.testing.assert_allclose(g.distances.numpy(), distances, rtol=1e-6)
    return g


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("k", [1, 30])
def test_two_signals(name, k, backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    signal, source = PAIRS[name]
    g = check(signal, source, k)
    assert g.num_sources == source[..., 0].size


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(9, 11, 3), (1, 40, 3), (40, 1, 3), (60, 3), (3, 6, 7, 3), (4, 1, 9, 3)])
@pytest.mark.parametrize(
    "options",
    [
        {"coords": 2.0},
        {"radius": 3, "coords": 1.0},
        {"radius": 4},
        {"stride": 2, "source_stride": 3},
        {"radius": 5, "stride": 2, "source_stride": 2},
        {"radius": 4, "stride": 3, "source_stride": 2, "coords": 1.0},
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_places_windows_and_strides(shape, options, alone, backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    check(levels(*shape), None if alone else levels(*shape), 2, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_axis_may_have_its_own_sizes(backend, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", backend)
    video, other = levels(4, 9, 10, 3), levels(4, 9, 10, 3)
    check(video, other, 5, patch=(1, 3, 5), radius=(1, 2, 4), coords=0.5)
    check(video, None, 5, patch=(1, 3, 5), radius=(2, 0, 3))
    check(video, other, 4, patch=(1, 3, 3), stride=(1, 2, 3), source_stride=(2, 1, 2))
    check(video[0], None, 4, radius=(1, 3))


@pytest.mark.parametrize(
    "options",
    [{}, {"coords": 0.7}, {"search_radius": 4}, {"stride": 2}, {"search_radius": 5, "source_stride": 2, "coords": 0.1}],
)
def test_backends_agree_to_the_bit_on_real_values(options, monkeypatch):
    noise = torch.rand(2, 23, 19, 3, generator=torch.Generator().manual_seed(0))
    signal, source = (torch.from_numpy(PHOTO[100:123, x : x + 19] / 3) + noise[i] for i, x in enumerate((200, 215)))
    graphs = []
    for backend in BACKENDS:
        monkeypatch.setenv("GLOCAL_BACKEND", backend)
        graphs.append(glocal.patch_graph(signal, source=source, k=7, **options))
    for g in graphs[1:]:
        assert torch.equal(g.neighbors, graphs[0].neighbors)
        assert torch.equal(g.distances, graphs[0].distances)


def test_a_signal_as_its_own_source_has_no_special_column():
    image = torch.zeros(5, 5, 3)
    assert torch.equal(glocal.patch_graph(image, source=image, k=3).neighbors, torch.tensor([[0, 1, 2]] * 25).int())
    assert glocal.patch_graph(image, k=3).neighbors[7].tolist() == [7, 0, 1]


def test_strides_leave_a_coarser_lattice():
    image = torch.rand(10, 13, 3)
    fine = glocal.patch_graph(image, k=3, stride=4)
    assert (fine.num_vertices, fine.num_sources) == (3 * 4, 130)
    both = glocal.patch_graph(image, k=3, stride=4, source_stride=4)
    assert (both.num_vertices, both.num_sources) == (12, 12)
    assert both.neighbors[:, 0].tolist() == list(range(12))


def test_a_layer_carries_a_signal_from_source_to_query():
    signal, source = torch.rand(6, 5, 3), torch.rand(4, 9, 3)
    g = glocal.patch_graph(signal, source=source, k=4)
    x = torch.randn(36, 2)
    y = glocal.nn.GraphConv(2, 7, degree=4)(x, g)
    assert y.shape == (30, 7)


def test_progress_rises_to_one():
    seen = []
    glocal.patch_graph(torch.rand(40, 40, 3), source=torch.rand(40, 30, 3), k=4, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


X = torch.rand(7, 7, 3)


@pytest.mark.parametrize(
    ("signal", "options", "text"),
    [
        (torch.rand(3, 40, 50), {}, r"`signal` \(shape \(3, 40, 50\)\) looks like \(c, h, w\), .* Use signal.permute\(1, 2, 0\)"),
        (X, {"source": torch.rand(1, 9, 9)}, r"`source` \(shape \(1, 9, 9\)\) looks like \(c, h, w\)"),
        (torch.rand(5, 3, 40, 50), {}, r"looks like \(t, c, h, w\).* Use signal.permute\(0, 2, 3, 1\)"),
        (torch.rand(20, 30), {}, r"\(shape \(20, 30\)\) may be a gray picture \(h, w\) or a 1-D signal \(n, c\) with 30 channels"),
        (X, {"source": torch.rand(7, 7, 1)}, r"`signal` has 3 channels and `source` 1"),
        (X, {"source": torch.rand(9, 3)}, r"`signal` has 2 axes without the channels and `source` 1"),
        (X, {"source": torch.rand(7, 8, 3), "search_radius": 2}, r"`search_radius` compares positions, but .* \(1, 7, 7\) and `source` \(1, 7, 8\)"),
        (X, {"source": torch.rand(7, 8, 3), "coords": 1.0}, r"`coords` compares positions"),
        (X, {"source": torch.rand(2, 2, 3), "k": 5}, r"`k` \(=5\) must be between 1 and the number of vertices \(=4\)"),
        (X, {"stride": 0}, r"`stride` \(=0\) must be at least 1"),
        (X, {"source_stride": 1.5}, r"`source_stride` \(=1.5\) must be a whole number"),
        (X, {"patch": (3, 3, 3)}, r"`patch` \(=\(3, 3, 3\)\) must be one number, or one for each of the 2 axes"),
        (X, {"patch": (3, 4)}, r"`patch` \(=\(3, 4\)\) must be odd and positive"),
        (X, {"k": 2, "search_radius": 1, "source_stride": 3}, r"`search_radius` \(=1\) leaves a vertex only 1 candidates"),
    ],
)  # fmt: skip
def test_refuses(signal, options, text):
    with pytest.raises(ArgumentError, match=text):
        glocal.patch_graph(signal, **{"k": 3} | options)


def test_a_signal_with_many_channels_is_a_picture_of_one_column() -> None:
    signal = torch.rand(30, 20, generator=torch.Generator().manual_seed(0))
    found = glocal.patch_graph(signal[:, None], k=4, patch=(3, 1))
    wanted = reference_search.knn(signal[pad_rows(30)].flatten(1), 4)[0]
    assert torch.equal(found.neighbors, wanted)


def pad_rows(n: int) -> torch.Tensor:
    """Number the rows of the patches of three, reflected at the ends."""
    rows = torch.arange(n).unsqueeze(1) + torch.arange(-1, 2)
    return (n - 1 - (n - 1 - rows.abs()).abs()).abs()


def test_distances_are_correctly_rounded_roots() -> None:
    found = glocal.patch_graph(torch.rand(9, 9, 2, generator=torch.Generator().manual_seed(0)), k=5).distances
    assert torch.equal(found.double().square().float().double().sqrt().float(), found)
    rows = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    graph = glocal.knn_graph(rows, k=3)
    exact = (rows.double()[graph.neighbors] - rows.double().unsqueeze(1)).square().sum(2)
    assert torch.equal(graph.distances, torch.from_numpy(np.sqrt(exact.numpy())).float())
