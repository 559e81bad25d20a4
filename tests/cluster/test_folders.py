"""Folders on real clusters of two processes: nothing is lost, whoever dies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import pytest
import typer

from glocal.cli import main
from glocal.cli.shell.batch import BatchOptions, run_batch
from glocal.cli.shell.console import Console, RunOptions
from glocal.cluster.manifest import NAME, Manifest
from glocal.errors import InputError
from glocal.jobs.job import Cost

HERE = Path(__file__)


def work(task, tell):
    name = task.source.stem
    if name.startswith("bad"):
        raise InputError(f"{task.source}: it is bad. Use a good one.")
    if name.startswith("kills"):
        os.kill(os.getpid(), signal.SIGKILL)
    mark = task.source.parent / f"held {name}"
    if name.startswith("held") and not mark.exists():
        mark.with_suffix(".part").write_text(str(os.getpid()))
        mark.with_suffix(".part").rename(mark)
        time.sleep(100)
    for time_of_failure in ("first", "second") if name == "fails_twice" else ():
        mark = task.source.parent / time_of_failure
        if not mark.exists():
            mark.touch()
            raise OSError("the network is down")
    if (task.source.parent / "slowly").exists():
        time.sleep(float((task.source.parent / "slowly").read_text() or 0.1))
    part = task.target.with_suffix(".part")  # outputs appear whole, as those of all commands
    part.write_bytes(task.source.read_bytes() + b"!")
    part.rename(task.target)
    return {"size": task.source.stat().st_size}


def estimate(task):
    return Cost("1 byte", 1, 0.02)


def copy(images: Annotated[list[str], typer.Argument()], batch: BatchOptions, run: RunOptions) -> None:
    """Copy files."""
    run_batch("copy", images, work, estimate=estimate, suffixes={".txt"}, options=batch, console=Console(run))


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setattr(main, "COMMANDS", {"copy": (f"{__name__}:copy", "Copy.")})
    return lambda *arguments: main.run(["copy", *map(str, arguments)])


def script(folder):
    """run.py, which is `glocal` with the command of this file alone."""
    (folder / "run.py").write_text(
        f"import sys; sys.path.insert(0, {str(HERE.parent)!r})\n"
        "from glocal.cli import main\n"
        f"main.COMMANDS = {{'copy': ('{HERE.stem}:copy', 'Copy.')}}\n"
        "if __name__ == '__main__': main.main(sys.argv[1:])\n"
    )
    return [sys.executable, "run.py", "copy"]


def fill(folder, names):
    (folder / "in").mkdir()
    for name in names:
        (folder / "in" / f"{name}.txt").write_text(name)


def outputs(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.txt")}


def kill_the_holder(folder):
    """SIGKILL the worker that works on held.txt."""
    mark, deadline = folder / "in" / "held held", time.monotonic() + 120
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(int(mark.read_text()), signal.SIGKILL)


def test_200_files_one_dead_worker_one_deadly_file_and_one_bad_file(call, tmp_path, capsys):
    fill(tmp_path, [*(f"{number:03}" for number in range(197)), "bad", "held", "kills"])
    killer = threading.Thread(target=kill_the_holder, args=(tmp_path,))
    killer.start()
    code = call(tmp_path / "in", "-o", tmp_path / "out", "--cluster", "local:2", "--batch-seconds", "1", "--json")
    killer.join()
    told = capsys.readouterr()
    assert code == 1
    assert "198 done, 0 skipped, 2 failed" in told.err
    assert "cluster local:2: 2 workers, dashboard http://127.0.0.1:" in told.err
    rows = {Path(row["input"]).stem: row for row in json.loads(told.out)["results"]}
    assert len(rows) == 200
    assert {name for name, row in rows.items() if row["state"] == "failed"} == {"bad", "kills"}
    assert rows["000"]["size"] == 3
    failed = json.loads((tmp_path / "out" / "failed.json").read_text())["failed"]
    assert {Path(row["input"]).stem: row["error"] for row in failed} == {
        "bad": f"error: {tmp_path}/in/bad.txt: it is bad. Try: use a good one.",
        "kills": f"error: {tmp_path}/in/kills.txt: it killed its worker twice, most likely because memory ran out. "
        "Try: use a smaller input or workers with more memory.",
    }
    assert {Path(name).stem: row["state"] for name, row in Manifest(tmp_path / "out").read().items()} == {
        name: row["state"] for name, row in rows.items()
    }
    (tmp_path / "in" / "kills.txt").unlink()
    assert call(tmp_path / "in", "-o", tmp_path / "plain", "--quiet") == 1
    assert outputs(tmp_path / "out") == outputs(tmp_path / "plain")
    assert not list(tmp_path.glob("out/.*"))


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(process):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(text) for text in found.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_killed_command_can_be_continued_and_ctrl_c_says_where_it_stands(tmp_path):
    fill(tmp_path, [f"{number:03}" for number in range(300)])
    (tmp_path / "in" / "slowly").touch()
    command = [*script(tmp_path), "in", "-o", "out", "--cluster", "local:2", "--batch-seconds", "1", "--skip-existing"]
    for number in (signal.SIGKILL, signal.SIGINT):
        before = len(list(tmp_path.glob("out/*.txt")))
        run = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 120
            while len(list(tmp_path.glob("out/*.txt"))) < before + 20 and time.monotonic() < deadline:
                time.sleep(0.02)
            workers = [one for child in children(run.pid) for one in (child, *children(child))]
            os.killpg(run.pid, number) if number == signal.SIGINT else run.kill()
            said = run.communicate(timeout=60)[1]
            deadline = time.monotonic() + 30
            while any(map(alive, workers)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(workers) >= 4  # two of them, the process that forked them, and Python's own tracker
            assert not any(map(alive, workers))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
        there = outputs(tmp_path / "out")
        assert before + 20 <= len(there) < 300
        assert all(data == name.removesuffix(".txt").encode() + b"!" for name, data in there.items())
    assert run.returncode == 130
    assert "stopping after the files in progress; press Ctrl-C again to stop at once" in said
    done = len(there) - before
    assert f"stopped: {done} of 300 done; go on with --skip-existing" in said
    lines = (tmp_path / "out" / NAME).read_text().splitlines()
    assert len(lines) >= done
    (tmp_path / "in" / "slowly").unlink()
    assert subprocess.run([*command, "--cluster", "local:1", "--quiet"], cwd=tmp_path, check=False).returncode == 0
    assert len(outputs(tmp_path / "out")) == 300
