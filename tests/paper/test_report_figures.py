"""Figures 1 to 4 and the paintings, at sizes that take a second."""

from functools import partial

import numpy as np
import pytest

from glocal.paper import color, paintings, squares, style
from glocal.paper.job import Job
from glocal.paper.options import Effort, ReproduceOptions
from glocal.paper.source import Source

HERE = Source("this run", "test")
TINY = Effort("tiny", 24, 24, 2, style_photos=2, style_paintings=2, color_size=24, color_pairs=1)


@pytest.fixture
def job():
    return Job(TINY, HERE, ReproduceOptions())


@pytest.fixture
def folder(tmp_path):
    """A data folder with paintings and colour pairs; one file has no partner."""
    from PIL import Image

    for name in ("paintings/a.png", "paintings/b.jpg", "paintings/c.png", "color_pairs/sea_day.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(paintings.mosaic(0)).resize((40, 30)).save(tmp_path / name)
    Image.fromarray(paintings.strokes(0, count=200)).resize((40, 30)).save(tmp_path / "color_pairs/sea_dusk.png")
    Image.fromarray(paintings.mosaic(1)).save(tmp_path / "color_pairs/other_one.png")
    (tmp_path / "paintings/list.csv").write_text("a\n")
    return tmp_path


def test_figure_1_is_a_grid_of_photos_and_paintings(job):
    told = []
    figures, measured = style.figure_1(Job(TINY, HERE, ReproduceOptions(), told.append))
    first = figures[0]
    assert first.title == "Figure 1: the paper's setting"
    assert first.columns == 3
    assert first.plates[0] is None
    assert not first.reflows  # it stays a grid on a telephone
    names = [plate.name for plate in first.plates[1:]]
    assert names[:2] == ["fig1-paper-style-van-gogh", "fig1-paper-style-mosaic"]
    assert names[2:5] == ["fig1-paper-photo-bridge", "fig1-paper-bridge-van-gogh", "fig1-paper-bridge-mosaic"]
    assert len(names) == 8
    pairs = measured["figure 1, the paper's setting"]
    assert [(pair.photo, pair.painting) for pair in pairs] == [
        ("bridge", "van-gogh"), ("bridge", "mosaic"), ("temple", "van-gogh"), ("temple", "mosaic"),
    ]  # fmt: skip
    assert all(pair.image.shape == (24, 24, 3) and pair.seconds > 0 for pair in pairs)
    assert told[-1] == 1.0
    assert told == sorted(told)


def test_figure_2_uses_the_nonlocal_network_only(job, monkeypatch):
    asked = []
    real = style.stylize
    monkeypatch.setattr(style, "stylize", lambda *a, **k: asked.append(k["networks"]) or real(*a, **k))
    figures, measured = style.figure_2(job)
    assert asked == ["nonlocal"] * 4  # two paintings, two presets
    assert len(figures) == 2
    assert {pair.photo for pairs in measured.values() for pair in pairs} == {"bridge"}


def test_the_seed_decides_the_pictures(job):
    def first(job):
        return style.transfer_all(job, ["bridge"], style.styles(job)[:1], preset="paper", networks="nonlocal")[0].image

    assert np.array_equal(first(job), first(job))
    assert not np.array_equal(first(job), first(Job(TINY, HERE, ReproduceOptions(seed=1))))


def test_paintings_of_a_folder_are_used(folder):
    job = Job(TINY, HERE, ReproduceOptions(data=folder))
    assert [painting.name for painting in style.styles(job)] == ["a", "c"]
    assert style.styles(job)[0].pixels(16).shape == (16, 16, 3)
    assert [painting.name for painting in paintings.in_folder(folder / "paintings", 9)] == ["a", "b", "c"]


def test_figures_3_and_4_show_both_methods_and_their_palettes(job):
    rows = color.transfers(job)
    third, fourth = color.figure_3(rows, job), color.figure_4(rows, job)
    assert [plate.caption[0] for plate in third.plates] == ["photo", "our method", "optimal transport", "reference"]
    assert np.array_equal(third.plates[0].pixels, squares.photo("meadow", 24))
    assert np.array_equal(third.plates[3].pixels, squares.photo("sunset", 24))
    assert len(fourth.plates) == 8
    assert not np.array_equal(fourth.plates[5].pixels, fourth.plates[6].pixels)
    assert len(np.unique(third.plates[1].pixels.reshape(-1, 3), axis=0)) > 16


def test_pairs_are_files_that_share_a_name(folder):
    job = Job(TINY, HERE, ReproduceOptions(data=folder))
    [(name, photo, reference)] = color.pairs(job)
    assert name == "sea-day"
    assert photo.shape == reference.shape == (24, 24, 3)
    assert not np.array_equal(photo, reference)


def test_palettes_are_drawn_where_they_lie():
    import torch

    sheet = color.palette_picture(torch.tensor([[50.0, 0.0]]), (0.0, 0.0, 100.0), size=80)
    red, background = sheet[40, 60], sheet[40, 20]
    assert int(red[0]) > int(red[1]) + 40
    assert np.ptp(background) == 0
    upward = color.palette_picture(torch.tensor([[0.0, 50.0]]), (0.0, 0.0, 100.0), size=80)[20, 40]
    assert int(upward[2]) < 100  # yellow, above the middle


def test_drawn_paintings_depend_on_the_seed_alone():
    for draw in (paintings.mosaic, partial(paintings.strokes, count=500)):
        first = draw(0)
        assert np.array_equal(draw(0), first)
        assert not np.array_equal(draw(1), first)
        assert first.shape == (384, 384, 3)
        assert first.std() > 30


def test_an_example_writes_one_page(tmp_path, monkeypatch):
    import runpy
    import sys
    from pathlib import Path

    from page_reading import assert_page_is_whole

    from glocal.paper import options

    monkeypatch.setattr(options, "QUICK", TINY)
    script = Path(__file__).parents[2] / "examples" / "figure_4.py"
    monkeypatch.setattr(sys, "argv", [str(script.name), "-o", str(tmp_path), "--seed", "3"])
    runpy.run_path(str(script), run_name="__main__")
    page = assert_page_is_whole(tmp_path / "index.html")
    assert len(page.images) == 8
    assert f"figure_4.py -o {tmp_path} --seed 3, seed 3, " in page.blocks[1].sources["a"]
