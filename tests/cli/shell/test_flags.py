from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer

from glocal.cli import main
from glocal.cli.shell.flags import with_flags
from glocal.errors import ArgumentError
from glocal.jobs.memory import available_memory, parse_bytes


def size(text: str) -> int | str:
    return text if text == "keep" else int(text)


@dataclass(frozen=True)
class Options:
    sigma: float | None = field(default=None, metadata={"help": "Noise.", "min": 0.0})
    model: Literal["local", "nonlocal"] = field(default="nonlocal", metadata={"help": "Network."})
    size: int | str = field(default=512, metadata={"help": "Longer side.", "parse": size})
    lambda_1: float = field(default=1.5, metadata={"help": "First.", "flag": "--lambda1"})
    weights: tuple[float, ...] = field(default=(), metadata={"help": "Many."})
    smooth: bool = field(default=True, metadata={"help": "On."})
    plain: bool = field(default=False, metadata={"help": "Off."})
    mask: Path | None = field(default=None, metadata={"help": "Where."})
    secret: int = field(default=3, metadata={"hidden": True})


SEEN = []


def command(inputs: Annotated[list[str], typer.Argument(help="Files.")], options: Options) -> None:
    """Do it."""
    SEEN.append((inputs, options))


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setattr(main, "COMMANDS", {"command": (f"{__name__}:command", "Do it.")})
    SEEN.clear()
    return lambda *arguments: main.run(["command", *arguments])


def test_defaults_come_from_the_dataclass(call):
    assert call("a", "b") == 0
    assert [(["a", "b"], Options())] == SEEN


def test_every_kind_of_field(call):
    flags = (
        "a --sigma 0.5 --model local --size keep --lambda1 2 --weights 1 --weights 2 --no-smooth --plain --mask m.png"
    )
    assert call(*flags.split()) == 0
    assert SEEN[0][1] == Options(0.5, "local", "keep", 2.0, (1.0, 2.0), False, True, Path("m.png"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--model other", "local"),
        ("--sigma -1", "sigma"),
        ("--size wide", "size"),
        ("--secret 4", "--secret"),
    ],
)
def test_wrong_values_are_wrong_usage(call, capsys, flags, words):
    assert call("a", *flags.split()) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert words in shown
    assert shown.endswith("Try: `glocal command --help`.\n")
    assert SEEN == []


def test_help_shows_text_and_default(call, capsys):
    assert call("--help") == 0
    shown = capsys.readouterr().out
    assert "--sigma" in shown
    assert "Longer side." in shown
    assert "default: 512" in shown
    assert "local|nonlocal" in shown


def test_two_flags_of_one_name_are_a_mistake_of_ours():
    def twice(one: Options, two: Options) -> None:
        """Do it."""

    with pytest.raises(TypeError, match="more than one flag named"):
        with_flags(twice)


def test_sizes_of_memory():
    assert parse_bytes("4G") == parse_bytes("4 GiB") == 4 << 30
    assert parse_bytes("512m") == 512 << 20
    assert available_memory() > 1 << 20
    with pytest.raises(ArgumentError) as caught:
        parse_bytes("much")
    assert str(caught.value) == "`much` is not a size. Write it like 4G or 512M."
