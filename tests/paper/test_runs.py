"""Stored runs: scores and their errors, reading and writing, what is refused."""

import json
from dataclasses import replace

import pytest

from glocal.errors import InputError
from glocal.paper.results import figure_5, table_b3
from glocal.paper.runs import Run, load_runs, log_points, store_runs
from glocal.paper.source import Source
from glocal.paper.store import origin
from glocal.training.scores import Score

TRAINED = Source("stored run", "train", "0", "2026-01-01", "a GPU")
TESTED = Source("stored run", "test", "0", "2026-01-02", "a CPU")


@pytest.fixture
def run():
    scores = {
        "noisy": Score(23.0, 0.1),
        "local": Score(28.0, 0.2, 0.03),
        "nonlocal": Score(28.5, 0.2),
        "gain": Score(0.5, 0.01),
    }
    curves = {"pretrain": ((0.0, 20.0), (10.0, 25.0)), "nonlocal": ((10.0, 25.0), (30.0, 27.0))}
    return Run(TRAINED, TESTED, "some photos", curves, 10, scores)


def test_runs_come_back_as_they_were(tmp_path, run):
    store_runs([run, run], tmp_path / "image.json")
    assert load_runs("image", folder=tmp_path) == (run, run)


@pytest.mark.parametrize("part", ["image", "speech"])
def test_the_stored_runs_say_where_they_come_from(part):
    for run in load_runs(part):
        for source in (run.source, run.tested):
            assert source.kind == "stored run"
            assert all((source.command, source.seed, source.machine))
            assert source.date.startswith("20")
        assert run.data
        assert {"noisy", "haar", "local", "nonlocal", "gain"} <= set(run.scores)
        assert run.scores["gain"].mean == pytest.approx(run.scores["nonlocal"].mean - run.scores["local"].mean)
        assert all(score.error > 0 for score in run.scores.values())


def test_a_run_without_its_machine_is_refused(tmp_path, run):
    store_runs([run], tmp_path / "image.json")
    record = json.loads((tmp_path / "image.json").read_text())
    record[0]["trained"]["machine"] = ""
    (tmp_path / "image.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"cannot be read \(a stored run needs its command, seed, date and machine\)"):
        load_runs("image", folder=tmp_path)
    with pytest.raises(InputError, match=r"speech\.json\): it cannot be read .* Install glocal again"):
        load_runs("speech", folder=tmp_path)


def test_the_table_has_paper_ours_difference_and_error(run):
    table = table_b3(run, title="t", published={"noisy": 23.1, "local": 29.13, "nonlocal": 29.42, "gain": 0.29})
    assert table.head == ("method", "paper", "ours", "difference", "standard error", "over seeds")
    local = table.rows[1]
    assert local[0] == "local network"
    assert [part.text() for part in local[1:]] == ["29.13", "28.00", "-1.13", "0.200", "0.030"]
    assert [part.source.kind for part in local[1:3]] == ["paper", "stored run"]
    assert local[2].source == TESTED
    assert table.rows[3][3].text() == "+0.21"
    assert "some photos" in table.caption[0]
    assert TRAINED.text() in table.caption[0]


def test_a_method_that_the_paper_lacks_has_no_difference(run):
    table = table_b3(run, title="t", published={})
    assert [row[1] for row in table.rows] == ["–"] * 4


def test_figure_5_ends_where_the_log_ends(run):
    figure = figure_5(run, part="images", name="fig5", measure="PSNR")
    assert figure.source == TRAINED
    assert [part.value for part in figure.caption if not isinstance(part, str)] == [25.0, 27.0]
    assert figure.plates[0].pixels.shape == figure.plates[0].dark.shape
    assert figure.plates[0].pixels.mean() > 200 > 100 > figure.plates[0].dark.mean()


def test_figure_5_names_the_seed_it_shows(run):
    several = replace(run, source=replace(TRAINED, seed="3, 4"))
    assert "Curves of seed 3. " in figure_5(several, part="images", name="fig5", measure="PSNR").caption[0]
    assert "Curves of" not in figure_5(run, part="images", name="fig5", measure="PSNR").caption[0]


def test_logs_are_read_with_their_offset(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"step": 0, "validation": 1.5}\n{"step": 100, "validation": 2.5}\n')
    assert log_points(tmp_path / "a.jsonl", offset=10) == ((10, 1.5), (110, 2.5))


def test_the_origin_of_trainings_is_what_they_noted_themselves(tmp_path):
    for seed, day in ((1, "2026-01-02"), (0, "2026-01-03")):
        (tmp_path / f"run-{seed}").mkdir()
        for name in ("local", "nonlocal"):
            note = {"date": f"{day} 10:00 UTC", "machine": f"chip {seed}"}
            (tmp_path / f"run-{seed}" / f"{name}.origin.json").write_text(json.dumps(note))
    found = origin(tmp_path, "glocal train speech")
    assert found == Source("stored run", "glocal train speech", "0, 1", "2026-01-02 10:00 UTC", "chip 0; chip 1")


def test_trainings_without_a_note_or_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no folder of a training. Name the folder"):
        origin(tmp_path, "train")
    (tmp_path / "run-0").mkdir()
    with pytest.raises(InputError, match=r"do not say when and on what they ran. Train them again"):
        origin(tmp_path, "train")
