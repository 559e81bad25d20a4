import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer

from glocal.cli import main
from glocal.cli.pages import commands_page
from glocal.cli.shell.lazy import load_command

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"]
LEAVES = {
    f"{name} {inner}".strip(): home
    for name, (entry, _) in main.COMMANDS.items()
    for inner, home in ({"": entry} if isinstance(entry, str) else {k: v[0] for k, v in entry.items()}).items()
}


@dataclass(frozen=True)
class Options:
    model: Literal["local", "nonlocal"] = field(default="local", metadata={"help": "Which | one."})
    seed: int = field(default=0, metadata={"help": "Seed."})
    smooth: bool = field(default=True, metadata={"help": "On."})


def command(inputs: Annotated[list[str], typer.Argument(help="Files.")], options: Options) -> None:
    """Do it.

    And more.
    """


def test_the_page_tells_what_the_command_line_takes():
    page = commands_page({"group": ({"do": (f"{__name__}:command", "Do it.")}, "A group.")})
    assert page.split("\n", 4)[4] == (
        "## glocal group\n\nA group.\n\n## glocal group do\n\nDo it.\n\nAnd more.\n\n"
        "| argument | meaning |\n|---|---|\n| `INPUTS...` | Files. |\n\n"
        "| flag | meaning |\n|---|---|\n"
        "| `--model` | Which \\| one. One of `local`, `nonlocal`. Default: `local`. |\n"
        "| `--seed` | Seed. Default: `0`. |\n"
        "| `--smooth` / `--no-smooth` | On. Default: `on`. |\n"
    )


def test_the_page_in_the_docs_is_up_to_date():
    written = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert written == commands_page(), "run `python -m glocal.cli.pages docs/commands.md`"


@pytest.mark.parametrize("name", LEAVES)
def test_help_says_what_the_page_says(name, capsys):
    section = commands_page().split(f"\n## glocal {name}\n")[1].split("\n## ")[0]
    assert main.run([*name.split(), "--help"]) == 0
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    for flag, meaning in re.findall(r"^\| `(?:-o` `)?(--[a-z-]+)`.*?\| (\w+)", section, re.MULTILINE):
        assert re.search(rf"{flag}\b.{{0,40}}?{meaning}", shown), (flag, meaning)


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_has_a_page(name):
    page = DOCS / f"{ {'eval': 'train'}.get(name, name) }.md"
    assert f"glocal {name}" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_name_flags_pictures_and_pages_that_exist(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    for line in re.findall(r"glocal [a-z][^\n`|]*", text):
        words = line.split("#")[0].split()
        name = next((" ".join(words[1 : 1 + n]) for n in (2, 1) if " ".join(words[1 : 1 + n]) in LEAVES), None)
        flags = re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)
        if name is not None and flags:
            known = {spelling for param in load_command(name, LEAVES[name]).params for spelling in param.opts}
            assert {*flags} <= {*known, "--help"}, line
