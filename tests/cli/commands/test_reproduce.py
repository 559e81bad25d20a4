"""`glocal reproduce` through real folders, and its messages."""

import pytest

from glocal.cli import main
from glocal.errors import ArgumentError
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
