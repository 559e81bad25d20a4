"""Half an hour of chaos (`make slow`): workers and the command itself are killed at random, and no file is lost."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_folders import children, fill, outputs, script

from glocal.cluster.manifest import Manifest
from glocal.errors import DeviceError

FILES = 2000


def workers(process):
    """The workers of a local cluster: what the process forked that imported their libraries."""

    def forks(child):
        try:
            return b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            return False

    return [worker for child in children(process) if forks(child) for worker in children(child)]


@pytest.mark.slow
def test_2000_files_survive_workers_and_commands_that_are_killed(tmp_path):
    minutes = float(os.environ.get("GLOCAL_CHAOS_MINUTES", "30"))
    fill(tmp_path, [f"{number:04}" for number in range(FILES)])
    (tmp_path / "in" / "slowly").write_text(str(minutes * 60 / FILES))  # on two workers half of the time without kills
    command = [*script(tmp_path), "in", "-o", "out", "--cluster", "local:2", "--batch-seconds", "5", "--retries", "9"]
    draw = random.Random(0)
    killed = {"workers": 0, "commands": 0, "starts": 0}
    end = time.monotonic() + 60 * minutes
    run, before = None, 0
    while True:
        if run is None:
            run = subprocess.Popen([*command, "--skip-existing"], cwd=tmp_path, start_new_session=True)
        try:
            code = run.wait(max(3.0, draw.uniform(0.2, 1.0) * minutes))
        except subprocess.TimeoutExpired:
            code = None
        if code == DeviceError.exit_code:  # its processes were killed before they had started, three times
            run, killed["starts"] = None, killed["starts"] + 1
            continue
        if code is not None:
            break
        now = len(list((tmp_path / "out").glob("*.txt")))
        if time.monotonic() > end or now == before:
            continue  # let it finish, or at least start
        before = now
        alive = workers(run.pid)
        if draw.random() < 0.05:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            run, killed["commands"] = None, killed["commands"] + 1
        elif alive:
            os.kill(draw.choice(alive), signal.SIGKILL)
            killed["workers"] += 1
    assert code == 0
    assert killed["workers"] > 5
    assert outputs(tmp_path / "out") == {f"{n:04}.txt": f"{n:04}!".encode() for n in range(FILES)}
    assert not list((tmp_path / "out").glob(".*"))
    assert not (tmp_path / "out" / "failed.json").exists()
    states = [row["state"] for row in Manifest(tmp_path / "out").read().values()]
    print(f"killed {killed}; the manifest has {len(states)} files")  # noqa: T201
