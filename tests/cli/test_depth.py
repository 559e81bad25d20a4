"""`--depth 16` on an 8-bit photo writes what was computed, not 8 bits in a wider file."""

import numpy as np
import pytest
from PIL import Image

from glocal.cli.main import run
from glocal.files.images.read import read_image


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name in ("photo.png", "other.png"):
        Image.fromarray(rng.integers(60, 200, (24, 32, 3)).astype(np.uint8)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        ["denoise", "photo.png", "--sigma", "0.05"],
        ["color", "photo.png", "other.png"],
        ["style", "photo.png", "other.png", "--preset", "paper", "--size", "32", "--iterations", "1"],
    ],
    ids=lambda command: command[0],
)
def test_sixteen_bits_are_real(folder, command):
    assert run([*command, "-o", "out.png", "--depth", "16", "--quiet"]) == 0
    pixels = read_image("out.png").pixels
    assert pixels.dtype == np.uint16
    assert np.mean(pixels % 257 != 0) > 0.5
    assert run(["replay", "out.png", "--quiet"]) == 0


def test_replay_knows_the_quality(folder, capsys):
    assert run(["denoise", "photo.png", "--sigma", "0.05", "-o", "out.jpg", "--quality", "60", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["replay", "out.jpg", "--quiet"]) == 0
    assert capsys.readouterr().out == "out.jpg: the same to the bit\n"
