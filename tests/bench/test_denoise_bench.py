"""The denoising benchmark: same noise for everyone, scores that are right, a table and JSON."""

import json

import numpy as np
import pytest
from PIL import Image

from glocal.bench import denoise as bench
from glocal.cli.main import run
from glocal.errors import InputError


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    y, x = np.mgrid[:24, :32]
    for k in (3, 5):
        Image.fromarray((128 + 90 * np.sin(x / k) * np.cos(y / k)).astype(np.uint8)).save(folder / f"{k}.png")
    return folder


def test_noise_is_as_strong_as_said_and_the_same_for_all(pictures):
    seen = []
    methods = {
        "a": lambda noisy, sigma: seen.append(noisy) or noisy,
        "b": lambda noisy, sigma: seen.append(noisy) or noisy,
    }
    scores = bench.run([pictures], methods, levels=(25,))
    assert np.array_equal(seen[1], seen[4])  # after the warm-up of each
    assert [s.psnr for s in scores] == pytest.approx([20.3] * 2, abs=0.5)
    assert [(s.set, s.level, s.pictures) for s in scores] == [("set", 25, 2)] * 2


def test_peers_improve_on_noise(pictures):
    found = {s.method: s.psnr for s in bench.run([pictures], bench.peers(), levels=(25,))}
    assert found["NL-means (scikit-image)"] > found["noisy"] + 1
    assert found["wavelet BayesShrink (scikit-image)"] > found["noisy"] + 1


def test_command_writes_the_figures(pictures, tmp_path, capsys):
    out = tmp_path / "b.json"
    assert run(["bench", "denoise", "--data", str(pictures), "--first", "1", "--methods", "local", "-o", str(out)]) == 0
    text = capsys.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    names = {row["method"] for row in rows}
    assert names == {"local, 0.07 scaled", "nonlocal, 0.07 scaled", "local", "nonlocal"}
    assert {row["level"] for row in rows} == {15, 25, 50}
    assert f"{rows[0]['psnr']:.2f}" in text


def test_quick_measures_on_a_shipped_photo(tmp_path, capsys):
    out = tmp_path / "b.json"
    assert run(["bench", "denoise", "--quick", "--methods", "noisy", "-o", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert {(row["set"], row["method"], row["pictures"]) for row in rows} == {("samples", "noisy", 1)}
    assert [row["psnr"] for row in rows] == pytest.approx([24.7, 20.5, 15.2], abs=0.3)  # noisy values are clipped


def test_messages(tmp_path, capsys):
    assert run(["bench", "denoise"]) == 2
    assert "Try: name folders with --data" in capsys.readouterr().err
    with pytest.raises(InputError, match="holds no picture"):
        bench.run([tmp_path], bench.peers())
