"""SIGKILL at any moment, to the parent alone or to the whole group: nothing half, nothing lost, no process left.

1,000 kills over all commands: batches of one and two processes, style transfers with checkpoints, graph files.
After each round the command runs again to its end, and its outputs must equal those of a run that nobody disturbed.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from endurance_scale import scaled
from safetensors.numpy import load_file

import glocal
from glocal.files.images.picture import Picture
from glocal.files.images.write import write_image

KILLS = 1_000
ROUND = 8  # kills before the work may end
GRAPHS = """
import sys, torch, glocal
for i in range(40):
    graph = glocal.Graph((torch.arange(200_000).reshape(20_000, 10) + i % 4) % 20_000)
    graph.save(sys.argv[1] + f"/{i % 4}.graph", overwrite=True)
"""
COMMANDS = {
    "denoise": ["denoise", "photos", "-o", "out/", "--model", "local", "--skip-existing"],
    "denoise --jobs 2": ["denoise", "photos", "-o", "out/", "--model", "local", "--skip-existing", "--jobs", "2"],
    "denoise in parts": ["denoise", "photos", "-o", "out/", "--model", "local", "--skip-existing", "--max-memory", "545M"],
    "color": ["color", "photos", "--reference", "photos/0.png", "-o", "out/", "--skip-existing", "--jobs", "2"],
    "speech": ["speech", "sounds", "-o", "out/", "--skip-existing", "--jobs", "2"],
    "style": ["style", "photos/0.png", "photos/1.png", "-o", "out/a.png", "--preset", "painterly", "--size", "32", "--iterations", "60"],
    "graphs": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "photos").mkdir()
    (folder / "sounds").mkdir()
    rng = np.random.default_rng(0)
    for i in range(6):
        write_image(folder / f"photos/{i}.png", Picture(rng.integers(0, 256, (40, 50, 3), np.uint8)))
        soundfile.write(folder / f"sounds/{i}.wav", rng.normal(0, 0.1, 6000), 16000)
    return folder


def start(name, folder):
    command = COMMANDS[name]
    arguments = ["-c", GRAPHS, "out"] if command is None else ["-m", "glocal", *command, "--quiet"]
    if name == "style" and (folder / "out/a.png.checkpoint").exists():
        arguments.append("--resume")
    return subprocess.Popen([sys.executable, *arguments], cwd=folder, start_new_session=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip


def left_of(group):
    """The living processes of a session, whoever their parent is."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == group and fields[0] != "Z":
                found.append(int(place.name))
    return found


def sums(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def undisturbed(name, inputs, folder):
    """The sums of the outputs without kills, and the seconds that it took."""
    link(inputs, folder)
    began = time.monotonic()
    process = start(name, folder)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    return sums(folder / "out"), time.monotonic() - began


def link(inputs, folder):
    (folder / "out").mkdir(parents=True)
    for name in ("photos", "sounds"):
        (folder / name).symlink_to(inputs / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_kills_at_any_moment_lose_nothing(tmp_path, inputs, name):
    wanted, seconds = undisturbed(name, inputs, tmp_path / "calm")
    wanted, seconds = undisturbed(name, inputs, tmp_path / "again")  # kernels are compiled by now
    rng = random.Random(name)
    kills, rounds = 0, 0
    while kills < scaled(KILLS // len(COMMANDS) + 1):
        folder = tmp_path / f"round {rounds}"
        rounds += 1
        link(inputs, folder)
        for attempt in range(ROUND):
            process, began = start(name, folder), time.monotonic()
            try:
                process.wait(rng.uniform(0.2, 1.0) * seconds)
                if attempt == 0:  # a whole run ended before its kill: the machine has become faster
                    seconds = time.monotonic() - began
            except subprocess.TimeoutExpired:
                whole = rng.random() < 0.5
                (os.killpg if whole else os.kill)(process.pid, signal.SIGKILL)
                kills += 1
            process.communicate()
            wait_for_none(process.pid)
            seen = sums(folder / "out")
            partial = {path: value for path, value in seen.items() if path in wanted and value != wanted[path]}
            assert not partial, f"after {kills} kills: {partial}"
            assert set(seen) <= {*wanted, "a.png.checkpoint"}
            if seen == wanted:
                break
        process = start(name, folder)
        said = process.communicate()[1]
        assert process.returncode == (4 if name == "style" and seen == wanted else 0), said
        assert sums(folder / "out") == wanted
        print(f"{name}: {kills} kills in {rounds} rounds", flush=True)  # noqa: T201  shown with -s
        hidden = [path.name for path in (folder / "out").iterdir() if path.name.startswith(".")]
        assert not hidden, hidden


TRAININGS = {
    "image": ["photos", "--recipe", "nonlocal", "--epochs", "12", "--test", "1", "--validation", "1"],
    "speech": ["../voices", "--model", "local", "--steps", "300", "--every", "20"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_a_killed_training_ends_with_the_same_weights(tmp_path, inputs, name):
    """The same command continues it, whenever it was killed: 40 kills for each training."""
    (tmp_path / "voices").mkdir()
    rows = [f"{i}.wav,{split},0" for i, split in enumerate(["train", "train", "val", "test"])]
    for i in range(4):
        soundfile.write(tmp_path / f"voices/{i}.wav", np.random.default_rng(i).normal(0, 0.1, 20_000), 16000)
    (tmp_path / "voices" / "clips.csv").write_text("\n".join(["file,split,start", *rows]) + "\n")

    def start(folder):
        command = [sys.executable, "-m", "glocal", "train", name, *TRAININGS[name], "-o", "out/run", "--quiet"]
        return subprocess.Popen(command, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)  # fmt: skip

    def trained(folder):
        return load_file(folder / "out/run" / f"{name}-{TRAININGS[name][2]}.safetensors")

    link(inputs, tmp_path / "calm")
    began = time.monotonic()
    process = start(tmp_path / "calm")
    said = process.communicate()[1]
    assert process.returncode == 0, said
    seconds, wanted = time.monotonic() - began, trained(tmp_path / "calm")
    rng, kills, rounds = random.Random(name), 0, 0
    while kills < scaled(40):
        folder = tmp_path / f"round {rounds}"
        rounds += 1
        link(inputs, folder)
        for _ in range(ROUND):
            process = start(folder)
            time.sleep(rng.uniform(0.3, 1.0) * seconds)
            if process.poll() is not None:
                break
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
            process.communicate()
        process.communicate()
        process = start(folder)
        said = process.communicate()[1]
        assert process.returncode == 0, said
        found = trained(folder)
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[key], wanted[key]) for key in wanted), f"after {kills} kills"


def wait_for_none(group):
    """Workers end within seconds of their parent."""
    end = time.monotonic() + 20
    while left_of(group):
        assert time.monotonic() < end, f"processes left: {left_of(group)}"
        time.sleep(0.05)


def test_the_graphs_that_are_written_can_be_read(tmp_path):
    """The script of the test above, in short."""
    exec(GRAPHS.replace("range(40)", "range(4)").replace("sys.argv[1]", repr(str(tmp_path))), {})
    assert glocal.Graph.load(tmp_path / "2.graph").neighbors[0, 0] == 2
