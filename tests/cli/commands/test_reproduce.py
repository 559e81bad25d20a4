"""`glocal reproduce` through real folders, and its messages."""

import sys

import pytest

from glocal.cli import main
from glocal.errors import ArgumentError, MissingDependencyError, OutputError
from glocal.paper import options


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(options, "QUICK", options.Effort("tiny", 24, 24, 2, 1, 2, 24, 1))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--only", "style,musik"], 2, "error: reproduce: `only` (='style,musik') must name parts of the paper. "),
        (["--only", ","], 2, "Try: choose from style, color, image, speech."),
        (["--quick", "--full"], 2, "error: reproduce: `quick` and `full` exclude each other. Try: give one of them."),
        (["--data", "no/such"], 2, "error: reproduce: `data` (=no/such) is no folder. Try: check the path."),
    ],
)
def test_wrong_usage(arguments, code, message, tmp_path, capsys):
    assert main.run(["reproduce", "-o", str(tmp_path / "r"), *arguments]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_an_existing_report_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "index.html").write_text("mine")
    assert main.run(["reproduce", "-o", str(tmp_path)]) == 4
    assert "it holds a report already. Try: add --overwrite or choose another folder." in capsys.readouterr().err
    assert (tmp_path / "index.html").read_text() == "mine"


def test_parts_are_put_in_order():
    assert options.parse_parts(" speech ,style") == ("style", "speech")
    with pytest.raises(ArgumentError):
        options.parse_parts("")


def test_a_missing_matplotlib_is_noticed_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # so that its import fails
    monkeypatch.setattr("glocal.paper.reproduce.make_section", lambda *arguments: pytest.fail("the work began"))
    assert main.run(["reproduce", "-o", str(tmp_path / "r")]) == MissingDependencyError.exit_code
    said = capsys.readouterr().err
    assert "the page needs matplotlib, which cannot be imported (" in said
    assert said.endswith("Try: run `pip install 'glocal[plot]'`.\n")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("command", [["reproduce"], ["train", "image", "."], ["train", "speech", "."]])
def test_a_folder_that_cannot_be_made_is_noticed_before_the_work(tmp_path, capsys, monkeypatch, command):
    monkeypatch.setattr("glocal.paper.reproduce.make_section", lambda *arguments: pytest.fail("the work began"))
    (tmp_path / "file").write_text("")
    assert main.run([*command, "-o", str(tmp_path / "file" / "r")]) == OutputError.exit_code
    assert f"make folder ({tmp_path}/file/r): it is a file, or inside of one. Try: choose" in capsys.readouterr().err
