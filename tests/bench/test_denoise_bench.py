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


def test_real_pairs_and_colour(pictures, tmp_path, capsys):
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    rng = np.random.default_rng(0)
    for k, path in enumerate(sorted(pictures.glob("*"))):
        truth = np.asarray(Image.open(path).convert("RGB")).astype(float)
        Image.fromarray(truth.astype(np.uint8)).save(pairs / f"{k}_mean.png")
        noisy = np.clip(truth + rng.normal(0, 20, truth.shape), 0, 255)
        Image.fromarray(noisy.astype(np.uint8)).save(pairs / f"{k}_real.png")
    out = tmp_path / "b.json"
    command = ["bench", "denoise", "--data", str(pictures), "--color", "--pairs", str(pairs), "--methods", "small"]
    assert run([*command, "--first", "1", "-o", str(out)]) == 0
    rows = {(row["set"], row["level"], row["method"]): row for row in json.loads(out.read_text())["rows"]}
    assert set(rows) == {("set", n, "small") for n in (15, 25, 50)} | {("pairs", 0, m) for m in ("noisy", "small")}
    noisy, small = rows["pairs", 0, "noisy"], rows["pairs", 0, "small"]
    assert small["psnr"] > noisy["psnr"] + 2
    assert small["ssim"] > noisy["ssim"]
    assert (small["pictures"], small["worse"]) == (1, 0)
    assert "pairs pairs" in capsys.readouterr().out


def test_ssim_equals_scikit_image():
    from skimage.metrics import structural_similarity

    rng = np.random.default_rng(0)
    truth = rng.random((40, 48, 3))
    found = np.clip(truth + rng.normal(0, 0.1, truth.shape), 0, 1)
    settings = {"data_range": 1, "gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected = structural_similarity(found, truth, channel_axis=2, **settings)
    assert bench.ssim(found, truth) == pytest.approx(expected, abs=1e-6)


def test_messages(tmp_path, capsys):
    assert run(["bench", "denoise"]) == 2
    assert "Try: name folders with --data" in capsys.readouterr().err
    with pytest.raises(InputError, match="holds no picture"):
        bench.run([tmp_path], bench.peers())
    with pytest.raises(InputError, match=r"holds no pair. Name the files A_real.jpg and A_mean.jpg"):
        bench.run_pairs([tmp_path], {})
