"""Exit codes and messages of the command line, through real processes and through `run`."""

import subprocess
import sys

import pytest

from glocal import errors
from glocal.cli import main
from glocal.cli.shell import lazy
from glocal.jobs.failures import Stopped, describe, exit_code_of


def glocal(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "glocal", *arguments], capture_output=True, text=True, check=False)


def test_help_and_wrong_usage_import_nothing_heavy():
    """One process for all of them, in which none may load what takes long."""
    code = """if True:
        import sys
        from glocal.cli import main
        calls = [([], 2), (["--help"], 0), (["nonsense"], 2), (["doctor", "--nonsense"], 2)]
        for call, code in calls + [([name, "--help"], 0) for name in main.COMMANDS]:
            assert main.run([*call]) == code, call
            heavy = [m for m in ("torch", "numba", "scipy", "matplotlib", "jinja2") if m in sys.modules]
            assert not heavy, (call, heavy)
        """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_list_of_commands_imports_none_of_them(monkeypatch, capsys):
    monkeypatch.setattr(lazy, "load_command", lambda *_: pytest.fail("a command was imported"))
    assert main.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(line in shown for _, line in main.COMMANDS.values())


def test_wrong_usage():
    done = glocal("nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: No such command 'nonsense'. Try: `glocal --help`.\n"
    done = glocal("doctor", "--nonsense")
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such option: --nonsense")
    assert done.stderr.endswith("Try: `glocal doctor --help`.\n")


@pytest.mark.parametrize(
    ("arguments", "meant"), [(["stlye"], "style"), (["denose"], "denoise"), (["bench", "sytle"], "style")]
)
def test_mistyped_commands(capsys, arguments, meant):
    assert main.run(arguments) == 2
    assert f"No such command '{arguments[-1]}'. Did you mean '{meant}'? Try: `" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-h"], ["style", "-h"], ["bench", "-h"], ["bench", "graph", "-h"]])
def test_short_help(capsys, arguments):
    assert main.run(arguments) == 0
    assert capsys.readouterr().out.startswith("Usage: ")


def test_version(capsys):
    assert main.run(["-h"]) == 0
    assert "--version" in capsys.readouterr().out
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("glocal ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ArgumentError("x"), 2),
        (errors.InputError("x"), 3),
        (errors.OutputError("x"), 4),
        (errors.MemoryLimitError("x"), 5),
        (MemoryError(), 5),
        (errors.ModelError("x"), 6),
        (errors.DeviceError("x"), 7),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), 1),
    ],
)
def test_exit_codes(error, code):
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            errors.ArgumentError("patch_graph: `k` (=64) is too large. Use a larger image or a smaller k."),
            "error: patch_graph: `k` (=64) is too large. Try: use a larger image or a smaller k.",
        ),
        (
            errors.InputError("read image (a. B.png): empty"),
            "error: read image (a. B.png): empty. Try: `glocal --help`.",
        ),
        (Stopped("the best so far is in a.png"), "stopped: the best so far is in a.png"),
        (KeyboardInterrupt(), "stopped"),
        (MemoryError(), "error: there is not enough memory. Try: a smaller input or --max-memory."),
        (
            ZeroDivisionError("by zero"),
            "error: unexpected ZeroDivisionError: by zero. Try: run it again with --debug and report the text.",
        ),
    ],
)
def test_lines_for_people(error, line):
    assert describe(error) == line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["denoise", "a.png", "--device", "foo"],
            "denoise: `device` (='foo') must be cpu, cuda or cuda:N. Try: use cpu.",
        ),
        (
            ["denoise", "a.png", "--sigma", "abc"],
            "--sigma: `abc` is not a noise level. Try: write auto, 0.1 or 25/255.",
        ),
        (
            ["style", "a.png", "b.png", "--size", "abc"],
            "stylize: `size` (='abc') must be a whole number from 8 to 65536, or 'keep'. Try: leave it out for the preset's.",
        ),
        (["color", "a.png", "b.png", "--depth", "9"], "Invalid value for '--depth': '9' is not one of"),
    ],
)
def test_values_that_a_flag_refuses(capsys, arguments, line):
    assert main.run(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {line}")
    assert said.count("Try: ") == 1


def test_traceback_only_with_debug(monkeypatch, capsys):
    def fail(*_):
        message = "thing (a.png): is broken. Fix it."
        raise errors.ModelError(message)

    monkeypatch.setattr(lazy, "load_command", fail)
    assert main.run(["doctor"]) == 6
    assert capsys.readouterr().err == "error: thing (a.png): is broken. Try: fix it.\n"
    assert main.run(["doctor", "--debug"]) == 6
    assert "Traceback" in capsys.readouterr().err
