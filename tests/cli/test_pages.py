from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from glocal.cli.pages import commands_page

DOCS = Path(__file__).parents[2] / "docs"


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
