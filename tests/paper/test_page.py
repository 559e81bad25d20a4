"""The page: escaping, sources, pictures, files beside it, and what it refuses."""

import json

import numpy as np
import pytest
from page_reading import assert_page_is_whole
from PIL import Image

from glocal.errors import ArgumentError, OutputError
from glocal.paper.blocks import Figure, Plate, Section, Table, Text
from glocal.paper.page import render
from glocal.paper.source import Number, Source, paper, this_run
from glocal.paper.write import check_folder, write_report

EVIL = "<b onload=\"x('1')\">&amp;"
HERE = Source("this run", f"glocal {EVIL}", "7", "2026-01-02", "some processor")


@pytest.fixture
def sections():
    photo = np.random.default_rng(0).integers(0, 256, (8, 9, 3), dtype=np.uint8)
    drawn = np.full((8, 9, 3), 255, np.uint8)
    drawn[3] = 0
    plates = [
        Plate("photo", photo, f"a photo {EVIL}", (EVIL, Number(23.456, HERE, unit="dB"))),
        None,
        Plate("plot", drawn, "a plot", dark=255 - drawn),
        Plate("filter", drawn[..., 0], "a filter", crisp=True),
    ]
    figure = Figure(EVIL, plates, 2, ("caption ", Number(28.1, paper("section B.3"))), HERE)
    table = Table(EVIL, (EVIL, "PSNR"), [(EVIL, Number(-0.5, HERE, digits=1, signed=True))])
    return [Section("one", EVIL, [Text((EVIL, Number(3e-9, HERE, digits=-2))), figure, table], {"raw": [1, 2]})]


def test_text_is_escaped_everywhere(tmp_path, sections):
    written = write_report(tmp_path, EVIL, [Text((EVIL,))], sections)
    page = assert_page_is_whole(written.page)
    assert "<b " not in written.page.read_text()
    seen = "".join(block.text for block in page.blocks)
    assert seen.count(EVIL) == 10  # title twice (heading, link), lead, text, section, figure and its plate, table x3
    assert page.images[0][0] == f"a photo {EVIL}"


def test_every_number_has_its_source_below_it(tmp_path, sections):
    page = assert_page_is_whole(write_report(tmp_path, "t", [], sections).page)
    text, figure, table = page.blocks[1:]
    assert text.numbers == [("a", 3e-9, "3.00e-09")]
    assert [(mark, shown) for mark, _, shown in figure.numbers] == [("a", "23.46 dB"), ("b", "28.10")]
    assert figure.sources["b"] == "paper: Puy, Kitić, Pérez, section B.3, 2017"
    assert table.numbers == [("a", -0.5, "-0.5")]
    assert table.sources == {"a": f"this run: glocal {EVIL}, seed 7, 2026-01-02, some processor"}


def test_a_number_whose_source_is_missing_is_noticed(tmp_path, sections):
    written = write_report(tmp_path, "t", [], sections)
    written.page.write_text(written.page.read_text().replace('<li data-mark="b">', '<li data-mark="z">'))
    with pytest.raises(AssertionError):
        assert_page_is_whole(written.page)


def test_pictures_are_embedded_and_stored(tmp_path, sections):
    written = write_report(tmp_path, "t", [], sections)
    page = assert_page_is_whole(written.page)
    photo, plot, dark, thin = [pixels for _, pixels in (page.images[i] for i in (0, 2, 1, 3))]
    plates = [plate for plate in sections[0].blocks[1].plates if plate is not None]
    assert photo.shape == (8, 9, 3)  # lossy: near, not equal
    assert np.array_equal(plot, plates[1].pixels)
    assert np.array_equal(dark, plates[1].dark)
    assert np.array_equal(thin[..., 0], plates[2].pixels)  # WebP has no gray pictures
    assert [path.name for path in written.pictures] == ["photo.png", "plot.png", "filter.png"]
    for path, plate in zip(written.pictures, plates):
        assert np.array_equal(np.asarray(Image.open(path)), plate.pixels)


def test_numbers_are_stored_with_their_sources(tmp_path, sections):
    written = write_report(tmp_path, "t", [], sections)
    record = json.loads(written.records[0].read_text())
    assert record["data"] == {"raw": [1, 2]}
    assert [number["value"] for number in record["numbers"]] == [3e-9, 23.456, 28.1, -0.5]
    assert record["numbers"][1]["source"]["seed"] == "7"


def test_many_sources_have_different_marks(tmp_path):
    rows = [[Number(float(i), Source("this run", f"run {i}"))] for i in range(30)]
    page = assert_page_is_whole(write_report(tmp_path, "t", [], [Section("s", "s", [Table("t", ("n",), rows)])]).page)
    assert list(page.blocks[1].sources)[24:28] == ["y", "z", "aa", "ab"]


def test_narrow_figures_share_a_row():
    figure = Figure("f", [Plate("p", np.zeros((2, 2), np.uint8), "p")], 1, (), HERE, wide=False)
    assert render("t", [], [Section("s", "s", [figure, figure, Text(("x",))])]).count('<div class="pair">') == 1


def test_an_existing_report_is_refused(tmp_path, sections):
    write_report(tmp_path, "t", [], sections)
    with pytest.raises(OutputError, match=r"holds a report already\. Add overwrite=True or choose another folder"):
        write_report(tmp_path, "t", [], sections)
    write_report(tmp_path, "again", [], sections, overwrite=True)
    assert "again" in (tmp_path / "index.html").read_text()
    with pytest.raises(OutputError, match=r"it is a file, not a folder\. Name another folder with -o"):
        check_folder(tmp_path / "index.html", overwrite=True)


def test_two_pictures_of_one_name_are_refused(tmp_path, sections):
    again = Section("two", "two", sections[0].blocks)
    with pytest.raises(ArgumentError, match=r"share the names filter, photo, plot\. Name each plate once"):
        write_report(tmp_path, "t", [], [*sections, again])


@pytest.mark.parametrize(
    ("name", "pixels", "message"),
    [
        ("a", np.zeros((2, 2, 3)), r"must be uint8 \(h, w\) or \(h, w, 3\), got float64 \(2, 2, 3\)\. Convert it"),
        ("a", np.zeros((2, 2, 4), np.uint8), r"got uint8 \(2, 2, 4\)"),
        ("../a", np.zeros((2, 2), np.uint8), r"becomes a file name\. Use small letters, digits and hyphens"),
    ],
)
def test_plates_are_checked(name, pixels, message):
    with pytest.raises(ArgumentError, match=message):
        Plate(name, pixels, "alt")


def test_this_run_names_command_seed_date_and_machine():
    text = this_run("glocal reproduce", 3).text()
    assert text.startswith("this run: glocal reproduce, seed 3, 20")
    assert " UTC, " in text
    assert "cores, torch " in text
