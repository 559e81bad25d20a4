"""A scheduler that somebody else started: its file, retries, a scheduler that is lost, and what is refused."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_folders import HERE, fill, outputs

from glocal.cli import main
from glocal.cluster import connection
from glocal.cluster.options import ClusterOptions, parse_cluster
from glocal.errors import ArgumentError


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setattr(main, "COMMANDS", {"copy": ("test_folders:copy", "Copy.")})
    return lambda *arguments: main.run(["copy", *map(str, arguments)])


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler and one worker, as on a cluster; the path of the scheduler file and the process of the scheduler."""
    file = tmp_path / "scheduler.json"
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": settings}
    begin = [sys.executable, "-c", "from dask.__main__ import main; main()"]
    first = subprocess.Popen(
        [*begin, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file], **quiet
    )
    second = subprocess.Popen(
        [*begin, "worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard"], **quiet
    )
    yield file, first
    for process in (second, first):
        process.kill()  # a worker that is asked to end waits for its scheduler, which may be gone; its child ends with it
        process.wait(30)


def test_the_file_of_a_scheduler_retries_and_a_scheduler_that_is_lost(call, scheduler, tmp_path, capsys, monkeypatch):
    file, process = scheduler
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    fill(tmp_path, ["a", "b", "fails_twice"])
    monkeypatch.chdir(tmp_path)
    assert call("in", "-o", "out", "--scheduler-file", "scheduler.json", "--retries", "2") == 0
    assert "cluster scheduler.json: 1 worker, dashboard" in capsys.readouterr().err
    assert sorted(outputs(tmp_path / "out")) == ["a.txt", "b.txt", "fails_twice.txt"]
    states = (tmp_path / "out" / "glocal-manifest.jsonl").read_text()
    assert states.count('"failed"') == 2

    def lose():
        while not list((tmp_path / "again").glob("a.txt")):
            time.sleep(0.02)
        process.kill()

    (tmp_path / "in" / "slowly").touch()
    for number in range(100):
        (tmp_path / "in" / f"n{number}.txt").write_text("1")
    thread = threading.Thread(target=lose)
    thread.start()
    assert call("in", "-o", "again", "--scheduler-file", "scheduler.json", "--batch-seconds", "0.5") == 7
    thread.join()
    said = capsys.readouterr().err
    assert "error: cluster: the connection to the scheduler was lost with " in said
    assert "of 103 files done. Try: start it again and go on with --skip-existing." in said


def test_what_is_refused(call, tmp_path, capsys, monkeypatch):
    fill(tmp_path, ["a", "b"])
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.2)
    for flags, code, text in [
        (["--cluster", "local:0"], 2, "`local:0` must be local:N with N processes"),
        (
            ["--scheduler", "foo"],
            2,
            "--scheduler: `foo` must be an address with a port. Try: write it like tcp://HOST:8786",
        ),
        (["--cluster", "local:2", "--scheduler", "tcp://h:1"], 2, "--scheduler and --cluster name two clusters"),
        (["--cluster", "local:2", "--jobs", "2"], 2, "--jobs (=2) is for one machine, and --cluster names a cluster"),
        (
            ["--scheduler-file", tmp_path / "none.json"],
            3,
            "none.json): there is no such file. Try: start the scheduler",
        ),
        (
            ["--scheduler-file", tmp_path / "in" / "a.txt"],
            3,
            "a.txt): it is not the file of a scheduler. Try: start the",
        ),
        (
            ["--scheduler", "tcp://127.0.0.1:9"],
            7,
            "cluster (tcp://127.0.0.1:9): there is no answer, or no worker, within",
        ),
    ]:
        assert call(tmp_path / "in", "-o", tmp_path / "out", *flags) == code
        assert text in capsys.readouterr().err
    assert call(tmp_path / "in", "-o", "s3://bucket/out") == 3
    assert "Try: mount the storage, for example with rclone or s3fs, and give the path." in capsys.readouterr().err
    starts = []

    def fails(processes, memory):
        starts.append(processes)
        raise RuntimeError("Nanny failed to start")

    monkeypatch.setattr(connection, "_local", fails)
    assert call(tmp_path / "in", "-o", tmp_path / "out", "--cluster", "local:2") == 7
    assert "cluster (local:2): its processes cannot be started (Nanny failed to start)" in capsys.readouterr().err
    assert starts == [2, 2, 2]
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert call(tmp_path / "in", "-o", tmp_path / "out", "--cluster", "local:2") == 1
    said = capsys.readouterr().err
    assert "the cluster needs distributed, which cannot be imported (" in said
    assert said.endswith("Try: run `pip install 'glocal[cluster]'`.\n")
    with pytest.raises(ArgumentError, match="Write it like local:4"):
        parse_cluster("slurm")
    assert ClusterOptions().processes == 0


def test_without_the_flags_dask_is_not_imported(tmp_path):
    fill(tmp_path, ["a", "b"])
    code = (
        f"import sys; sys.path.insert(0, {str(HERE.parent)!r})\n"
        "from glocal.cli import main\n"
        "main.COMMANDS = {'copy': ('test_folders:copy', 'Copy.')}\n"
        "assert main.run(['copy', 'in', '-o', 'out', '--quiet']) == 0\n"
        "assert not {'dask', 'distributed', 'zarr'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
    assert len(outputs(Path(tmp_path, "out"))) == 2


def test_dask_and_zarr_are_imported_in_one_package():
    source = Path(main.__file__).parents[1]
    named = re.compile(r"^\s*(?:import|from) (?:dask|distributed|zarr)\b", re.MULTILINE)
    found = {path.relative_to(source).parts[0] for path in source.rglob("*.py") if named.search(path.read_text())}
    assert found == {"cluster"}
