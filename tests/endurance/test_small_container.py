"""Every command with half a core and 1 GiB, as in a small container.

A container needs rights that a test does not have. Instead, the process gets one core, is stopped half of the time, and its
own memory (without what it maps from files, which a container reclaims) is measured.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from glocal.files.images.picture import Picture
from glocal.files.images.write import write_image

LIMIT = 1 << 30
COMMANDS = {
    "denoise": ["denoise", "photo.jpg", "-o", "out.jpg", "--max-memory", "1G"],
    "denoise wide": ["denoise", "photo.jpg", "-o", "out.png", "--model", "wide", "--max-memory", "1G"],
    "color": ["color", "photo.jpg", "small.png", "-o", "out.jpg", "--max-memory", "1G"],
    "style": ["style", "small.png", "photo.jpg", "-o", "out.png", "--size", "96", "--preset", "paper", "--iterations", "3", "--max-memory", "1G"],
    "speech": ["speech", "sound.wav", "-o", "out.wav", "--max-memory", "1G"],
    "speech --jobs 2": ["speech", "sound.wav", "sound2.wav", "-o", "out/", "--jobs", "2", "--max-memory", "1G"],
    "doctor": ["doctor"],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("container")
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:1000, :1200]
    scene = 128 + 60 * np.sin(x / 70)[..., None] * np.cos(y / 90)[..., None] * [1, 0.9, 0.8]
    noisy = np.clip(scene + rng.normal(0, 15, scene.shape), 0, 255).astype(np.uint8)
    write_image(place / "photo.jpg", Picture(noisy))
    write_image(place / "small.png", Picture(noisy[::8, ::8].copy()))
    for name in ("sound.wav", "sound2.wav"):
        soundfile.write(place / name, rng.normal(0, 0.1, 48000), 16000)
    return place


def own_memory(pid):
    """The bytes of a process and its children that no file backs."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    mine = next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon")), 0)
    return mine + sum(own_memory(int(child)) for child in children)


def run_small(command, folder):
    """Run with half of one core; returns the exit code, what was said and the largest memory."""
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"})  # fmt: skip
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    most = 0
    while process.poll() is None:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            most = max(most, own_memory(process.pid))
            time.sleep(0.05)
    return process.returncode, process.communicate()[0], most


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_works_with_half_a_core_and_one_gibibyte(folder, name):
    more = [] if name == "doctor" else ["--overwrite"]
    code, said, most = run_small([sys.executable, "-m", "glocal", *COMMANDS[name], *more], folder)
    assert code == 0, said
    assert most < LIMIT, f"{most / 2**20:.0f} MiB"
