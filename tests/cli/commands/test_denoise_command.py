"""`glocal denoise`, `glocal train image` and `glocal eval image` through real files: results, exit codes and texts."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from glocal.apps.denoise.cost import least_memory
from glocal.cli.main import run
from glocal.errors import MissingDependencyError
from glocal.files.images.read import read_image, read_recipe


@pytest.fixture
def folder(tmp_path, monkeypatch):
    y, x = np.mgrid[:40, :48]
    clean = 128 + 60 * np.sin(x / 7)[..., None] * np.cos(y / 9)[..., None] * [1, 0.9, 0.8]
    noisy = np.clip(clean + np.random.default_rng(0).normal(0, 25, clean.shape), 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(tmp_path / "photo.png")
    Image.fromarray(noisy[..., 0]).save(tmp_path / "gray.png")
    np.save(tmp_path / "clean.npy", clean)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error(name):
    found = np.asarray(Image.open(name)).astype(float)
    return float(np.abs(found - np.load("clean.npy")).mean())


def test_denoise_writes_a_better_picture_and_says_the_noise(folder, capsys):
    assert run(["denoise", "photo.png", "-o", "out.png", "--sigma", "25/255"]) == 0
    said = capsys.readouterr()
    assert said.out == "out.png\n"
    assert "white noise, sigma 0.0980 (25.0 of 255, given), model small" in said.err
    assert error("out.png") < 0.4 * error("photo.png")
    assert read_recipe("out.png")["options"]["model"] == "auto"


def test_auto_sigma_residual_and_json(folder, capsys):
    arguments = ["denoise", "photo.png", "-o", "out.png", "--sigma", "auto", "--residual", "noise.png", "--json"]
    assert run([*arguments, "--model", "nonlocal", "--strength", "0.5"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    told = told["files"][0] if "files" in told else told
    assert "estimated)" in said.err
    text = said.out
    assert '"estimated": true' in text
    assert abs(np.asarray(Image.open("noise.png")).mean() - 127.5) < 6
    assert 0.4 * error("photo.png") < error("out.png") < 0.8 * error("photo.png")


def test_sixteen_bit_alpha_palette_and_cmyk(folder):
    rng = np.random.default_rng(1)
    pixels = rng.integers(20000, 40000, (24, 24, 4), np.uint16)
    from glocal.files.images.picture import Picture
    from glocal.files.images.write import write_image

    write_image("deep.png", Picture(pixels[..., :3], alpha=pixels[..., 3]))
    assert run(["denoise", "deep.png", "-o", "deep_out.png", "--sigma", "0.1"]) == 0
    found = read_image("deep_out.png")
    assert found.pixels.dtype == np.uint16
    assert np.array_equal(found.alpha, pixels[..., 3])
    assert found.pixels.std() < 0.7 * pixels[..., :3].std()
    Image.open("photo.png").quantize(64).save("palette.png")
    assert run(["denoise", "palette.png", "-o", "palette_out.png", "--sigma", "0.1"]) == 0
    assert error("palette_out.png") < error("photo.png")
    Image.open("photo.png").convert("CMYK").save("print.jpg")
    assert run(["denoise", "print.jpg", "-o", "print_out.png", "--sigma", "0.1"]) == 0
    assert read_image("print_out.png").pixels.shape == (40, 48, 3)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["photo.png", "--sigma", "0"], 2, "`sigma` (=0.0) must be above 0"),
        (["photo.png", "--sigma", "-0.1"], 2, "must be above 0"),
        (["photo.png", "--sigma", "loud"], 2, "is not a noise level"),
        (["photo.png", "--model", "huge"], 2, "is unknown. Try: choose one of auto, local, nonlocal, wide"),
        (["photo.png", "--model", "gone.safetensors"], 6, "no such file"),
        (["missing.png"], 3, "missing.png"),
        (["photo.png", "gray.png", "--residual", "r.png"], 2, "belongs to one input"),
    ],
)
def test_wrong_calls(folder, capsys, arguments, code, text):
    assert run(["denoise", *arguments]) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert text in said
    assert "Traceback" not in said


def test_five_by_five_and_damaged_weights(folder, capsys, monkeypatch):
    Image.new("RGB", (5, 5)).save("tiny.png")
    assert run(["denoise", "tiny.png"]) == 3
    assert "smaller than 8 x 8" in capsys.readouterr().err
    import shutil

    from glocal.apps.denoise import models

    shutil.copytree(models.SHIPPED, folder / "models")
    for path in (folder / "models").glob("image-*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    from glocal.apps.denoise import plan

    real = plan.load_deep
    damaged = folder / "models"
    monkeypatch.setattr(plan, "load_deep", lambda name, channels, folder: real(name, channels, folder=damaged))
    assert run(["denoise", "photo.png", "--sigma", "0.1"]) == 6
    assert "is damaged" in capsys.readouterr().err


@pytest.fixture
def photos(folder):
    (folder / "photos").mkdir()
    for k in range(5):
        y, x = np.mgrid[:30, :34]
        pixels = 128 + 70 * np.sin(x / (3 + k)) * np.cos(y / (2 + k))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{k}.png")
    (folder / "photos" / "bad.jpg").write_bytes(b"\xff\xd8 no")
    return folder / "photos"


def test_train_continue_evaluate_and_use(photos, capsys):
    split = ["--test", "1", "--validation", "1"]
    train = [
        "train",
        "image",
        "photos",
        "-o",
        "run",
        "--recipe",
        "nonlocal",
        "--epochs",
        "1",
        "--device",
        "cpu",
        *split,
    ]
    assert run([*train, "--json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["photos"] == {"train": 3, "validation": 1, "test": 1}
    assert told["skipped"] == 1
    assert "bad.jpg" in said.err
    assert "1 file(s) could not be read and were skipped" in said.err
    assert run(train) == 0  # finished: nothing left to do
    assert capsys.readouterr().out.strip() == told["weights"]
    assert run(["eval", "image", "photos", "--runs", "run", "--json", *split]) == 0
    methods = {row["method"]: row["mean"] for row in json.loads(capsys.readouterr().out)["methods"]}
    assert set(methods) == {"noisy", "Haar, orthonormal", "Haar, stationary", "nonlocal"}
    assert run(["eval", "image", "photos", "--sigma", "25/255", *split]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("noisy", "local", "nonlocal", "wide"))
    assert run(["denoise", "gray.png", "-o", "g.png", "--sigma", "0.1", "--model", told["weights"]]) == 0


def test_train_a_deep_network_and_use_it(photos, capsys):
    train = [
        "train",
        "image",
        "photos",
        "-o",
        "run",
        "--model",
        "small",
        "--steps",
        "3",
        "--batch",
        "1",
        "--side",
        "16",
    ]
    train += ["--validation", "1", "--device", "cpu"]
    assert run([*train, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["weights"] == "run/image-small-gray.safetensors"
    assert run(["denoise", "gray.png", "-o", "g.png", "--sigma", "0.1", "--model", told["weights"]]) == 0
    assert run(train) == 0  # finished: nothing left to do
    capsys.readouterr()
    assert run([*train, "--batch", "2"]) == 2
    assert "has a training with" in capsys.readouterr().err
    assert run([*train[:-4], "--validation", "9"]) == 3
    assert "has 5 readable photos and 9 are for validation" in capsys.readouterr().err


def test_train_messages(photos, capsys):
    assert run(["train", "image", "photos", "-o", "run", "--model", "huge"]) == 2
    assert "must be one of small, large, photo" in capsys.readouterr().err
    assert run(["train", "image", "photos", "-o", "run", "--model", "small", "--side", "30"]) == 2
    assert "must be a multiple of 4" in capsys.readouterr().err
    assert run(["train", "image", "photos", "-o", "run", "--validation", "50"]) == 3
    assert "Try: use more photos or smaller parts" in capsys.readouterr().err
    assert run(["train", "image", "nowhere", "-o", "run"]) == 3
    assert run(["train", "image", "photos", "-o", "run", "--recipe", "deep"]) == 2
    assert run(["train", "image", "photos", "-o", "run", "--sigma", "auto"]) == 2


def test_help_does_not_import_torch():
    code = (
        "import sys; from glocal.cli.main import run; run(['denoise', '--help']); run(['train', 'image', '--help']); "
    )
    code += "run(['eval', 'image', '--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("model", "more"), [("small", []), ("local", ["--mask", "gray.png", "--residual", "noise_{}.png", "--depth", "16"])]
)
@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg"])
def test_less_memory_gives_the_same_bytes_in_smaller_parts(folder, capsys, monkeypatch, suffix, model, more):
    from glocal.apps.denoise import cost

    monkeypatch.setitem(cost._LEAST, True, 900)  # so that a small picture has several parts
    monkeypatch.setitem(cost._LEAST, False, 500)
    least = cost.least_memory((40, 48), model)
    assert least < cost.memory_for((40, 48), model)
    for name, memory in (("whole", cost.memory_for((40, 48), model)), ("parts", least)):
        flags = [flag.format(name) for flag in more]
        assert run(["denoise", "photo.png", "-o", f"{name}{suffix}", "--model", model, "--sigma", "25/255",
                    "--max-memory", str(memory), *flags]) == 0  # fmt: skip
    said = capsys.readouterr().err
    assert said.count("in smaller parts, with temporary files in .") == 1
    assert (folder / f"whole{suffix}").read_bytes() == (folder / f"parts{suffix}").read_bytes()
    if more:
        assert (folder / "noise_whole.png").read_bytes() == (folder / "noise_parts.png").read_bytes()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_too_little_memory_is_refused_with_what_would_do(folder, capsys):
    least = least_memory((40, 48), "small")
    assert run(["denoise", "photo.png", "-o", "out.png", "--max-memory", "100M"]) == 5
    assert "the work needs 541 MiB, and it may take 100 MiB" in capsys.readouterr().err
    assert run(["denoise", "photo.png", "-o", "out.png", "--max-memory", str(least), "--dry-run"]) == 0
    assert "(with temporary files, in 541 MiB)" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_dry_run_misses_the_device_that_the_run_misses(folder, capsys):
    Image.open("photo.png").save("photo.tif")
    for more in ([], ["--dry-run"]):
        for output in ("out.png", "out.zarr"):
            assert run(["denoise", "photo.tif", "-o", output, "--device", "cuda", *more]) == 7
            missing = "error: denoise: the device 'cuda' is not available here. Try: use cpu."
            assert missing in capsys.readouterr().err
    assert run(["denoise", "photo.png", "gray.png", "-o", "out/", "--device", "cuda", "--dry-run"]) == 1
    Image.open("photo.png").save("there.png")
    for more in ([], ["--dry-run"]):
        assert run(["denoise", "photo.png", "-o", "there.png", "--device", "cuda", "--skip-existing", *more]) == 0


def test_a_backend_that_is_none_is_wrong_usage(folder, capsys, monkeypatch):
    monkeypatch.setenv("GLOCAL_BACKEND", "foo")
    assert run(["denoise", "photo.png", "-o", "out.png", "--model", "local"]) == 2
    assert "GLOCAL_BACKEND (='foo') is not a backend. Try: choose one of cuda, cpu," in capsys.readouterr().err


@pytest.mark.parametrize("outputs", [["-o", "out.heic"], ["-o", "out.png", "--residual", "noise.heic"]])
def test_a_missing_codec_is_noticed_before_the_work(folder, capsys, monkeypatch, outputs):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr("glocal.apps.denoise.image.plan_for", lambda *arguments, **more: pytest.fail("the work began"))
    assert run(["denoise", "photo.png", *outputs]) == MissingDependencyError.exit_code
    assert "HEIC files need pillow-heif, which is not installed." in capsys.readouterr().err
