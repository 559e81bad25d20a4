"""Replay through a small command that scales a picture and writes down how."""

import functools
import json
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import pytest
import typer

from glocal.cli import main
from glocal.cli.commands.replay import replay
from glocal.cli.shell.batch import BatchOptions, run_batch
from glocal.cli.shell.console import Console, RunOptions
from glocal.cli.shell.flags import arguments_for
from glocal.errors import InputError
from glocal.files.images.colors import from_srgb, to_srgb
from glocal.files.images.formats import SUFFIXES
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image, read_recipe
from glocal.files.images.write import write_image
from glocal.files.provenance import build_recipe
from glocal.jobs.job import Cost, ImageOutput

DRIFT = {"now": 0.0}


@dataclass(frozen=True)
class ScaleOptions:
    factor: float = field(default=1.0, metadata={"help": "Multiplied with."})
    mode: Literal["plain", "other"] = field(default="plain", metadata={"help": "Nothing."})
    soft: bool = field(default=True, metadata={"help": "Nothing."})
    weights: tuple[float, ...] = field(default=(), metadata={"help": "Nothing."})
    mask: str | None = field(default=None, metadata={"help": "A file."})
    thumbnail: str | None = field(default=None, metadata={"help": "One more output.", "writes": True})


def work(task, tell, *, options, files, batch):
    picture = read_image(task.source)
    result = from_srgb(picture, to_srgb(picture) * options.factor + DRIFT["now"], depth=files.depth)
    inputs = [task.source, *([options.mask] if options.mask else [])]
    arguments = {"positional": [str(task.source)], "depth": files.depth, "quality": files.quality}
    recipe = build_recipe("scale", options, inputs=inputs, arguments=arguments)
    write_image(task.target, result, depth=files.depth, recipe=recipe, overwrite=batch.overwrite)
    if options.thumbnail:
        write_image(options.thumbnail, result)
    return {}


def estimate(task):
    return Cost("any", 1, 1)


def scale(
    images: Annotated[list[str], typer.Argument()],
    options: ScaleOptions,
    files: ImageOutput,
    batch: BatchOptions,
    run: RunOptions,
) -> None:
    """Scale."""
    done = functools.partial(work, options=options, files=files, batch=batch)
    run_batch("scale", images, done, estimate=estimate, suffixes=SUFFIXES, options=batch, console=Console(run))


@pytest.fixture
def made(monkeypatch, tmp_path):
    """in.png and mask.png, and out.png made of them in tmp_path, which is the current folder."""
    table = {"scale": (f"{__name__}:scale", "Scale."), "replay": ("glocal.cli.commands.replay:replay", "Replay.")}
    monkeypatch.setattr(main, "COMMANDS", table)
    monkeypatch.setitem(DRIFT, "now", 0.0)
    monkeypatch.chdir(tmp_path)
    for name in ("in.png", "mask.png"):
        write_image(name, Picture(np.random.default_rng(3).integers(0, 255, (9, 8, 3), np.uint8)))
    flags = (
        "scale in.png -o out.png --factor 0.5 --no-soft --weights 1 --weights 2 --mode other --mask mask.png --depth 16"
    )
    assert main.run(flags.split()) == 0
    return tmp_path


def test_the_same_again(made, capsys):
    capsys.readouterr()
    assert main.run(["replay", "out.png"]) == 0
    assert capsys.readouterr().out == "out.png: the same to the bit\n"
    assert read_image("out.png").depth == "16"
    recipe = read_recipe("out.png")
    assert [entry["path"] for entry in recipe["inputs"]] == ["in.png", "mask.png"]


def test_something_else_now(made, monkeypatch, capsys):
    monkeypatch.setitem(DRIFT, "now", 0.1)
    capsys.readouterr()
    assert main.run(["replay", "out.png", "--json", "-o", "again.png"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert not data["same_content"]
    assert data["largest_difference"] == pytest.approx(0.1, abs=1e-3)
    assert read_image("again.png").size == (9, 8)
    assert main.run(["replay", "out.png"]) == 1
    assert capsys.readouterr().out == "out.png: different, by 0.1 of full scale at most and 0.1 on average\n"


def test_same_content_with_another_version(made, capsys):
    picture, recipe = read_image("out.png"), read_recipe("out.png")
    recipe["versions"]["numpy"] = "0.1"
    write_image("old.png", picture, recipe=recipe)
    capsys.readouterr()
    assert main.run(["replay", "old.png"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("old.png: the same content; only the metadata differ (changed since: numpy 0.1 -> ")


def test_inputs_that_moved_or_changed(made, capsys):
    (made / "elsewhere").mkdir()
    (made / "in.png").rename(made / "elsewhere" / "in.png")
    assert main.run(["replay", "out.png"]) == 3
    assert capsys.readouterr().err == (
        "error: replay (out.png): the input in.png is not there. Try: name its folder with --inputs.\n"
    )
    assert main.run(["replay", "out.png", "--inputs", "elsewhere"]) == 0
    write_image("in.png", Picture(np.zeros((3, 3, 3), np.uint8)))
    (made / "elsewhere" / "in.png").unlink()
    assert main.run(["replay", "out.png"]) == 3
    assert "the input in.png is not the file it was." in capsys.readouterr().err


def test_files_that_cannot_be_replayed(made, capsys):
    assert main.run(["replay", "in.png"]) == 3
    assert "it carries no recipe" in capsys.readouterr().err
    assert main.run(["replay", "missing.png"]) == 3
    write_image("foreign.png", read_image("in.png"), recipe=build_recipe("unknown", {}))
    with pytest.raises(InputError) as caught:
        main.invoke(["replay", "foreign.png"])
    assert str(caught.value) == (
        "replay: there is no command `unknown` that makes files. Use the glocal version that wrote it."
    )


def test_a_recipe_of_a_stranger_does_no_harm(made, capsys):
    honest = read_recipe("out.png")
    picture = read_image("out.png")
    damaged = [{"inputs": [1]}, {"inputs": [{"path": 3}]}, {"options": []}, {"arguments": {"positional": 1}}]
    for index, change in enumerate(damaged):
        write_image(f"{index}.png", picture, recipe=honest | change)
        assert main.run(["replay", f"{index}.png"]) == 3
        assert "its fields are damaged. Try: use the file as glocal wrote it." in capsys.readouterr().err
    write_image("loop.png", picture, recipe=honest | {"command": "replay"})
    assert main.run(["replay", "loop.png"]) == 3
    assert "there is no command `replay` that makes files" in capsys.readouterr().err
    extra = {"positional": ["in.png", "--overwrite", "--thumbnail=evil.png"], "thumbnail": "evil.png", "depth": "16"}
    write_image("flags.png", picture, recipe=honest | {"arguments": extra})
    assert main.run(["replay", "flags.png"]) == 0
    assert not (made / "evil.png").exists()


def test_a_recipe_cannot_talk_to_the_terminal(made, capsys):
    recipe = read_recipe("out.png")
    recipe["versions"]["\x1b[2Jnumpy"] = "\x1b]0;owned\x07"
    write_image("evil.png", read_image("out.png"), recipe=recipe)
    write_image("command.png", read_image("out.png"), recipe=recipe | {"command": "\x1b[31mred"})
    assert main.run(["replay", "evil.png"]) == 0
    assert main.run(["replay", "command.png"]) == 3
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\\x1b[2Jnumpy" in shown.out


def test_flags_from_values():
    values = {
        "factor": 0.5,
        "mode": "plain",
        "soft": False,
        "weights": [1.0, 2.0],
        "mask": None,
        "unknown": 3,
        "depth": "8",
    }
    assert arguments_for(scale, values, leave_out=(BatchOptions, RunOptions)) == [
        "--factor=0.5",
        "--no-soft",
        "--weights=1.0",
        "--weights=2.0",
        "--depth=8",
    ]
    assert replay.__doc__
