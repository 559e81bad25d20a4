"""Batches under bad conditions: parents that die, other batches, odd names, files of others, full disks."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer

from glocal.cli import main
from glocal.cli.shell.batch import BatchOptions, run_batch
from glocal.cli.shell.console import Console, RunOptions
from glocal.files.images.formats import SUFFIXES
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image
from glocal.jobs.batch import claimed
from glocal.jobs.failures import describe, exit_code_of, visible
from glocal.jobs.job import Cost

SMALL = Picture(np.full((8, 9, 3), 50, np.uint8))


def work(task, tell):
    if (task.source.parent / "slow").exists():
        (task.target.parent / f"started {os.getpid()}").touch()
        time.sleep(120)
    write_image(task.target, read_image(task.source))
    following = task.source.parent / "fill"
    if following.exists():  # as if another batch had done it meanwhile
        write_image(task.target.with_name(following.read_text()), SMALL)
        following.unlink()
    return {}


def estimate(task):
    return Cost("9 x 8", 1, 1)


def copy(images: Annotated[list[str], typer.Argument()], batch: BatchOptions, run: RunOptions) -> None:
    """Copy pictures."""
    run_batch("copy", images, work, estimate=estimate, suffixes=SUFFIXES, options=batch, console=Console(run))


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setattr(main, "COMMANDS", {"copy": (f"{__name__}:copy", "Copy pictures.")})
    return lambda *arguments: main.run(["copy", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.png", "c.png"):
        write_image(tmp_path / "in" / name, SMALL)
    return tmp_path


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def script(folder):
    """run.py, which is `glocal` with the command of this file alone."""
    (folder / "run.py").write_text(
        f"import signal, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored\n"
        "from glocal.cli import main\n"
        f"main.COMMANDS = {{'copy': ('{Path(__file__).stem}:copy', 'Copy.')}}\n"
        "if __name__ == '__main__': main.main(sys.argv[1:])\n"
    )


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_workers_end_when_their_parent_is_gone(folder, number):
    (folder / "in" / "slow").touch()
    script(folder)
    command = [sys.executable, "run.py", "copy", "in", "-o", "out", "--jobs", "2", "--quiet"]
    parent = subprocess.Popen(command, cwd=folder, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while len(started := list(folder.glob("out/started *"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        workers = [int(path.name.split()[1]) for path in started]
        assert len(workers) == 2
        assert all(alive(process) for process in workers)
        parent.send_signal(number)
        parent.wait(30)
        deadline = time.monotonic() + 30
        while any(alive(process) for process in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(alive(process) for process in workers)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_list_of_failures_of_somebody_else_is_not_replaced(call, folder):
    (folder / "in" / "bad.png").write_text("this is text")
    (folder / "out").mkdir()
    for text in ('{"mine": 1}', '["glocal"]', "no json"):
        (folder / "out" / "failed.json").write_text(text)
        assert call(folder / "in", "-o", folder / "out", "--skip-existing") == 1
        assert (folder / "out" / "failed.json").read_text() == text
        listed = json.loads((folder / "out" / "failed.glocal.json").read_text())
        assert [Path(row["input"]).name for row in listed["failed"]] == ["bad.png"]
    (folder / "in" / "bad.png").unlink()
    assert call(folder / "in", "-o", folder / "out", "--skip-existing") == 0
    assert files(folder / "out") == ["a.png", "b.png", "c.png", "failed.json"]


def test_what_another_batch_has_done_meanwhile_is_skipped(call, folder, capsys):
    (folder / "in" / "fill").write_text("c.png")
    assert call(folder / "in", "-o", folder / "out", "--skip-existing", "--json") == 0
    states = {Path(row["input"]).name: row["state"] for row in json.loads(capsys.readouterr().out)["results"]}
    assert states == {"a.png": "done", "b.png": "done", "c.png": "skipped"}


def test_what_another_batch_is_working_on_is_left_to_it(call, folder, capsys):
    (folder / "out").mkdir()
    code = (
        "import sys, time; from pathlib import Path; from glocal.jobs.batch import claimed\n"
        "with claimed(Path('out/b.png')) as mine: print(mine, flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "True\n"
        assert call(folder / "in", "-o", folder / "out", "--skip-existing") == 0
        assert [name for name in files(folder / "out") if name[0] != "."] == ["a.png", "c.png"]
        assert "2 done, 1 skipped, 0 failed" in capsys.readouterr().err
        other.kill()  # its claim ends with it
        other.wait()
        assert call(folder / "in", "-o", folder / "out", "--skip-existing") == 0
        assert files(folder / "out") == ["a.png", "b.png", "c.png"]
    finally:
        other.kill()
        other.communicate()


def test_a_claim_is_held_once(tmp_path):
    with claimed(tmp_path / "a.png") as mine, claimed(tmp_path / "a.png") as again:
        assert (mine, again) == (True, False)
    assert files(tmp_path) == []


def test_results_inside_the_inputs_are_no_inputs(call, folder):
    for _ in range(2):
        assert call(folder / "in", "-o", f"{folder}/in/out/", "--recursive", "--skip-existing") == 0
    assert files(folder / "in" / "out") == ["a.png", "b.png", "c.png"]
    assert not (folder / "in" / "out" / "out").exists()
    for _ in range(2):  # and what is next to them does not become an input of the second run either
        assert call(folder / "in", "-o", f"{folder}/in/{{stem}}_new{{ext}}", "--skip-existing") == 0
    assert files(folder / "in") == ["a.png", "a_new.png", "b.png", "b_new.png", "c.png", "c_new.png"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_odd_names_cost_only_themselves(folder, jobs):
    odd = os.fsdecode(b"caf\xe9.png")  # Latin-1, not UTF-8
    write_image(folder / "in" / odd, SMALL)
    long = "x" * 300 + ".png"
    deep = "/".join(["y" * 200] * 25) + "/z.png"
    script(folder)

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "run.py", "copy", *arguments], cwd=folder, capture_output=True, check=False
        )

    done = call("in", f"in/{long}", deep, "-o", "out", "--jobs", jobs)
    assert done.returncode == 1, done.stderr
    assert b"unexpected" not in done.stderr
    assert b"out/caf\xe9.png\n" in done.stdout  # the name as it is, for the next program
    assert {name for name in files(folder / "out") if name != "failed.json"} == {"a.png", "b.png", "c.png", odd}
    rows = json.loads((folder / "out" / "failed.json").read_text())["failed"]
    assert sorted(row["exit_code"] for row in rows) == [3, 3]
    assert all("file name too long" in row["error"] for row in rows)
    done = call("in/a.png", "-o", f"out/{long}")
    assert done.returncode == 4
    assert b"file name too long. Try: choose another -o." in done.stderr


def test_names_cannot_talk_to_the_terminal(call, folder, capsys):
    assert visible("a\x1b[31m\x07\x9b\u202eb\nc") == "a\\x1b[31m\\x07\\x9b\\u202eb\nc"
    wicked = folder / "in" / "\x1b]0;title\x07[red].png"
    wicked.write_text("no picture")
    assert call(folder / "in", "-o", folder / "out") == 1
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "\\x1b]0;title\\x07[red].png" in shown


@pytest.mark.parametrize("width", [20, 50, 120])
def test_the_bar_takes_names_as_they_are_and_fits_narrow_terminals(monkeypatch, capsys, width):
    from glocal.progress import Progress

    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Console().progress("[red]a[/red].png") as tell:
        tell(Progress(0.5, level=1, levels=3, iteration=5, iterations=9, loss=0.1, seconds_left=70))
        time.sleep(0.15)
    shown = capsys.readouterr().err
    lines = [line for line in shown.replace("\r", "\n").split("\n") if "%" in line]
    assert lines
    import re

    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in lines]
    assert all(len(line) <= width for line in plain)
    assert any("50%" in line for line in plain)
    if width > 40:
        assert any("[red]a" in line for line in plain)
        assert any("1 min 10 s left"[:8] in line for line in plain)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", shown)  # NO_COLOR


def test_lack_of_memory_and_full_disks_have_their_exit_codes():
    torch_cpu = RuntimeError(
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
    )
    assert exit_code_of(torch_cpu) == 5
    assert describe(torch_cpu) == "error: there is not enough memory. Try: a smaller input or --max-memory."
    full = OSError(errno.ENOSPC, "No space left on device")
    assert (exit_code_of(full), describe(full)) == (
        4, "error: the disk is full. Try: free some space or choose another folder.",
    )  # fmt: skip
    assert exit_code_of(RuntimeError("other")) == 1
