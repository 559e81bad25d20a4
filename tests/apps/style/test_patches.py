"""The preset `patches`: pieces of a painting are found, chosen, averaged and handed down as the docstrings say."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glocal import stylize
from glocal.apps.style import pieces
from glocal.apps.style.estimate import cost
from glocal.apps.style.finish import bands, finished, joined
from glocal.apps.style.options import style_options
from glocal.apps.style.palette import guided, repainted
from glocal.apps.style.pieces import FORBIDDEN, Source
from glocal.errors import ArgumentError
from glocal.graphs.knn import knn_graph
from glocal.jobs.inputs import Header
from glocal.jobs.style import StyleJob
from glocal.progress import COMPILE


def noise(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def places_of(source, stride):
    """The match of each place of the painting with itself."""
    h, w = source.shape
    return (torch.arange(0, h, stride).unsqueeze(1) * w + torch.arange(0, w, stride)).reshape(-1)


@pytest.fixture(scope="module")
def source():
    return Source.cut([noise(20, 24, 3) * 100], (1.0,), 5, 0.5)


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    photo = np.kron(rng.random((5, 6, 3)), np.ones((8, 8, 1)))
    painting = np.clip(np.kron(rng.random((6, 6, 3)), np.ones((8, 8, 1))) + rng.normal(0, 0.1, (48, 48, 3)), 0, 1)
    return photo, painting


def test_the_new_colours_are_those_of_the_painting():
    photo = noise(32, 32, 1).expand(32, 32, 3) * 20
    painting = noise(40, 30, 3, seed=1) * torch.tensor([90.0, 20, 5]) + 10
    new = repainted(photo, [painting], [1.0], torch.Generator().manual_seed(0))
    assert (new.mean((0, 1)) - painting.mean((0, 1))).abs().max() < 1
    mixed = repainted(photo, [painting, painting + 10], [0.5, 0.5], torch.Generator().manual_seed(0))
    assert (mixed.mean((0, 1)) - painting.mean((0, 1)) - 5).abs().max() < 1


def test_the_target_has_more_local_contrast_than_the_photo():
    photo = 40 + noise(64, 64, 1).expand(64, 64, 3)
    photo[:, 32:] += 20
    new = repainted(photo, [photo], [1.0], torch.Generator().manual_seed(0))
    assert float(new[:, :20, 0].std() / photo[:, :20, 0].std()) == pytest.approx(1.4, abs=0.1)
    assert float(new[..., 0].mean()) == pytest.approx(float(photo[..., 0].mean()), abs=0.2)
    assert float((new[..., 1] - photo[..., 1]).abs().mean()) < 0.5
    assert float(new[:, 32, 0].mean() - new[:, 31, 0].mean()) > 25  # so an edge is steeper too


def test_the_guided_filter_smooths_areas_and_keeps_edges():
    guide = torch.zeros(16, 16)
    guide[:, 8:] = 100
    image = guide.unsqueeze(-1) + noise(16, 16, 1)
    new = guided(image, guide, 2, 20.0)
    assert new[2:-2, 2:6].std() < 0.5 * image[2:-2, 2:6].std()
    assert float((new[:, 8] - new[:, 7]).mean()) == pytest.approx(100, abs=2)


def test_exact_pieces_give_the_painting_back(source):
    match = places_of(source, 2)
    torch.testing.assert_close(pieces.votes(match, None, source, source.shape, 2), source.lab)
    found = noise(len(match), seed=3) * 9
    torch.testing.assert_close(pieces.votes(match, found, source, source.shape, 2), source.lab)


def test_pieces_that_fit_count_more():
    gray = Source.cut([torch.linspace(0, 19, 20).view(1, 20, 1).expand(9, 20, 3)], (1.0,), 3, 1.0)
    match = torch.tensor([4 * 20 + 2, 4 * 20 + 12])
    even = pieces.votes(match, torch.tensor([1.0, 1.0]), gray, (1, 2), 1)
    first = pieces.votes(match, torch.tensor([0.1, 1.0]), gray, (1, 2), 1)
    assert (even - first).min() > 1


def test_the_search_finds_the_piece_and_its_price_moves_it(source):
    wanted = source.lab[3:17, 4:20]
    free = torch.zeros(source.shape)
    own = (torch.arange(3, 17, 3).unsqueeze(1) * 24 + torch.arange(4, 20, 3)).reshape(-1)
    inner = torch.ones(5, 6, dtype=torch.bool)
    inner[0], inner[:, 0], inner[-1], inner[:, -1] = False, False, False, False  # patches at the border are reflected
    found = pieces.search(wanted, source, 3, free)
    assert torch.equal(found[inner.view(-1), 0], own[inner.view(-1)])
    dear = free.clone()
    dear[8:13, 9:14] = 1e7
    assert not bool((pieces.search(wanted, source, 3, dear)[:, 0] == 9 * 24 + 10).any())


def test_rows_with_a_price_give_the_same_search(source):
    """A GPU compares rows of a matrix, the CPU patches of two pictures."""
    wanted, price = noise(13, 15, 3, seed=5) * 100, noise(20, 24, seed=6) * 4000
    mine, theirs = pieces.priced_rows(wanted, source, 2, price)
    rows = knn_graph(mine, source=theirs, k=8).neighbors.long()
    assert torch.equal(rows, pieces.search(wanted, source, 2, price))
    free = knn_graph(mine, source=torch.cat([source.rows, torch.zeros(480, 1)], 1), k=8).neighbors.long()
    assert not torch.equal(rows, free)


def test_neighbours_are_continued_if_it_is_worth_it(source):
    match = places_of(source, 2)
    rows = pieces.patches(source.lab * source.channels, 5, 2)
    offered = match.unsqueeze(1).clone()
    offered[65] = 3 * 24 + 3  # a piece of somewhere else
    region = torch.zeros(len(match), dtype=torch.long)
    price = torch.zeros(1, *source.shape)
    alone, away = pieces.choose(rows, source, offered, (10, 12), 2, price, region)
    assert alone[65] == 75
    assert away[65] > 0
    joined, away = pieces.choose(rows, source, offered, (10, 12), 2, price, region, coherence=1.0, sweeps=2)
    assert torch.equal(joined, match)
    assert float(away.max()) == 0


def test_matches_go_on_to_the_next_level(source):
    large = source.lab.repeat_interleave(2, 0).repeat_interleave(2, 1)
    double = Source.cut([large], (1.0,), 5, 0.5)
    down = pieces.handed_down(places_of(source, 2), (source, (20, 24), 2), (double, (40, 48), 2))
    assert torch.equal(down, places_of(double, 2))


def test_several_paintings_lie_next_to_each_other():
    one, two = noise(10, 12, 3), noise(14, 8, 3, seed=1)
    both = Source.cut([one, two], (0.75, 0.25), 3, 1.0)
    assert both.shape == (14, 20)
    assert both.boxes == ((0, 10, 12), (12, 14, 8))
    assert float(both.price[5, 5]) == 0
    for y, x in ((0, 5), (9, 5), (12, 5), (5, 11), (5, 12), (5, 19)):
        assert float(both.price[y, x]) == FORBIDDEN
    assert float(both.quota.mean()) == pytest.approx(1)
    assert float(both.quota[5, 5] / both.quota[5, 15]) == pytest.approx(0.75 / 120 / (0.25 / 112))
    assert float(Source.cut([one, two], (1.0, 0.0), 3, 1.0).price[5, 15]) == FORBIDDEN


def test_overuse_is_relative_to_the_mean(source):
    even = pieces.overuse(torch.arange(20 * 24), source)
    torch.testing.assert_close(even, torch.ones(20, 24))
    often = pieces.overuse(torch.full((50,), 10 * 24 + 12), source)
    assert often[10, 12] > 2
    assert float(often[0, 0]) == 0


def test_the_bands_of_a_picture_give_it_back():
    image = noise(37, 50, 3)
    found, rest = bands(image, 2)
    assert [tuple(band.shape) for band in (*found, rest)] == [(37, 50, 3), (19, 25, 3), (10, 13, 3)]
    torch.testing.assert_close(joined(found, rest), image)


def test_the_last_step_moves_contrast_and_colours_to_the_painting():
    painting = noise(40, 30, 3, seed=1) * torch.tensor([90.0, 20, 5]) + 10
    pale = 0.3 * noise(32, 36, 3) * 20 + 30
    new = finished(pale, [painting], [1.0], (), torch.Generator().manual_seed(0))
    for c in range(2):  # the third begins close to its goal
        old, wanted = pale[..., c].std(), painting[..., c].std()
        assert abs(float(new[..., c].std() - wanted)) < 0.6 * abs(float(old - wanted))
    assert (new.mean((0, 1)) - (3 * pale.mean((0, 1)) + painting.mean((0, 1))) / 4).abs().max() < 2
    same = finished(painting, [painting], [1.0], (), torch.Generator().manual_seed(0))
    torch.testing.assert_close(same, painting, atol=0.2, rtol=0)


def test_the_last_step_keeps_to_regions():
    painting = noise(24, 40, 3, seed=1) * 20
    painting[:, 20:] += 60
    left = torch.zeros(24, 40)
    left[:, :20] = 1
    new = finished(
        torch.full((24, 40, 3), 40.0) + noise(24, 40, 3),
        [painting],
        [1.0],
        ((left, (1 - left,)), (1 - left, (left,))),
        torch.Generator().manual_seed(0),
    )
    assert new[:, :18].mean() > 45 > 35 > new[:, 22:].mean()


def test_a_painting_painted_with_itself_stays(pictures):
    painting = pictures[1]
    result = stylize(painting, painting, preset="patches", size="keep")
    assert np.abs(result.rgb - painting).mean() < 0.03
    assert len(result.losses) == 1


def test_the_same_seed_gives_the_same_picture(pictures):
    first, again, other = (stylize(*pictures, preset="patches", size="keep", seed=s).rgb for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == pictures[0].shape


def test_the_caller_sees_the_picture_and_can_stop(pictures):
    seen = []

    def stop(now):
        if now.step == COMPILE:
            return False  # there is no picture yet
        seen.append((now.image.shape, now.fraction))
        assert now.iteration <= now.iterations
        return len(seen) == 2

    result = stylize(*pictures, preset="patches", size=160, progress=stop)
    assert result.stopped
    assert result.rgb.shape == (133, 160, 3)
    assert [shape for shape, _ in seen] == [(66, 80, 3)] * 2
    assert 0 < seen[0][1] < seen[1][1] < 1


def test_each_region_takes_its_part_of_the_painting():
    photo = noise(40, 48, 3).numpy()
    painting = np.zeros((48, 48, 3))
    painting[..., 0] = 0.8 + 0.2 * noise(48, 48, seed=1).numpy()
    painting[:, 24:] = painting[:, 24:, ::-1]  # red on the left, blue on the right
    left = np.zeros((48, 48))
    left[:, :24] = 1
    result = stylize(photo, painting, preset="patches", size="keep", structure=0, regions=[(1 - left, left)]).rgb
    assert result[:, 28:, 0].mean() > 0.7 > 0.3 > result[:, 28:, 2].mean()
    assert result[:, :20, 2].mean() > 0.7 > 0.3 > result[:, :20, 0].mean()


def test_options_of_the_networks_are_refused(pictures):
    for name, value in (("iterations", 5), ("tv", 0.5), ("anchor", 1.0), ("networks", "local")):
        with pytest.raises(ArgumentError, match=rf"`{name}` \(={value!r}\) is an option of the networks.*Leave it out"):
            style_options("patches", {name: value})
    with pytest.raises(ArgumentError, match="choose one of the presets painterly, brush, bold, paper"):
        stylize(*pictures, tv=0.5)  # patches is the default
    with pytest.raises(ArgumentError, match="`iterations`"):
        stylize(*pictures, options=style_options("patches", {}), iterations=5)
    assert style_options("patches", {"structure": 1}).anchor == 0  # so a recipe does not name it
    with pytest.raises(ArgumentError, match="stylize: `init` must be left out with the preset patches"):
        stylize(*pictures, preset="patches", size=16, init="photo")
    with pytest.raises(ArgumentError, match="stylize: `checkpoint` must be left out with the preset patches"):
        stylize(*pictures, preset="patches", size=16, checkpoint=SimpleNamespace(level=0, iteration=0))


def test_the_estimate_grows_with_the_size():
    small, large = (cost((750, 1024), [(470, 600)], style_options("patches", {"size": size})) for size in (512, 1024))
    assert (small.levels, large.levels) == (4, 5)
    assert small.seconds < large.seconds < 6 * small.seconds
    assert small.memory < large.memory
    assert small.gpu == 0


def test_a_gpu_has_estimates_of_its_own():
    for preset in ("patches", "brush"):
        small, large = (
            cost((750, 1024), [(470, 600)], style_options(preset, {"size": size, "device": "cuda"}))
            for size in (512, 1024)
        )
        assert 0 < small.gpu < large.gpu
        assert 0 < small.seconds <= large.seconds < cost((750, 1024), [(470, 600)], style_options(preset, {})).seconds
    job = StyleJob(style_options("patches", {"device": "cuda"}))
    assert re.search(r"4 levels, \S+ MiB on the GPU", job.cost(Header((750, 1024), others=((470, 600),))).parts)


def test_detail_comes_back_where_the_colours_are_right_already():
    painting = noise(64, 64, 1).float().expand(64, 64, 3)
    smooth = painting.reshape(-1, 3).sort(0).values.reshape(64, 64, 3)  # the same colours, without detail
    new = finished(smooth, [painting], [1.0], (), torch.Generator().manual_seed(0))
    before, after = (float(bands(picture, 1)[0][0].std()) for picture in (smooth, new))
    assert after > 4 * before


def test_the_photo_is_held_at_its_edges_although_no_piece_has_one():
    """The painting is a soft ramp. So pieces alone blur the edge of the photo, and only what is held makes it steep."""
    photo, painting = np.full((64, 64, 3), 0.1), np.zeros((64, 64, 3)) + np.linspace(0.05, 0.95, 64)[:, None]
    photo[:, 32:] = 0.9
    steps = {}
    for structure in (0, 0.5, 1):
        rows = stylize(photo, painting, preset="patches", size="keep", structure=structure).rgb.mean((0, 2))
        steps[structure] = (rows[32] - rows[31]) / (rows[40:].mean() - rows[:24].mean())
    assert steps[0] < steps[0.5] < steps[1], steps
    assert steps[1] > 2 * steps[0], steps
