"""`glocal style` through real files: pictures, options, exit codes and texts; nothing is left behind by a failure."""

import json
import os
import re
import runpy
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from glocal.apps.style.checkpoint import checkpoint_path
from glocal.cli.main import run
from glocal.files.images.read import read_image, read_recipe

QUICK = ["--size", "24", "--iterations", "2", "--preset", "paper", "--quiet"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    blocks = {"photo": (5, 7), "painting": (6, 6), "other": (4, 8)}
    for name, shape in blocks.items():
        image = np.kron(rng.random((*shape, 3)), np.ones((6, 6, 1)))
        Image.fromarray((image * 255).astype(np.uint8)).save(tmp_path / f"{name}.png")
    mask = np.zeros((15, 21), np.uint8)
    mask[:, :10] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pixels(name):
    return np.asarray(Image.open(name)).astype(int)


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_photo_and_painting(folder, capsys):
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", "--size", "24"]) == 0
    told = capsys.readouterr()
    assert told.out == "out.png\n"
    assert "photo.png: 24 x 17 pixels, 1 levels, about" in told.err
    assert pixels("out.png").shape == (17, 24, 3)
    recipe = read_recipe("out.png")
    assert recipe["command"] == "style"
    assert recipe["options"]["preset"] == "patches"
    assert len(recipe["inputs"]) == 2
    assert files_in(folder) == ["mask.png", "other.png", "out.png", "painting.png", "photo.png"]


def test_every_flag_reaches_the_recipe(folder):
    flags = "--size keep --iterations 1 --style-scale 0.8 --keep-color match --strength 0.9 --anchor 0.2 --tv 0.003"
    flags += " --networks local --seed 5 --preset paper"
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", *flags.split()]) == 0
    options = read_recipe("out.png")["options"]
    wanted = {"size": "keep", "iterations": 1, "style_scale": 0.8, "keep_color": "match", "strength": 0.9}
    wanted |= {"anchor": 0.2, "tv": 0.003, "networks": "local", "seed": 5, "preset": "paper"}
    assert {name: options[name] for name in wanted} == wanted


def test_two_runs_and_a_replay_give_the_same_bytes(folder, capsys):
    arguments = ["style", "photo.png", "painting.png", "other.png", "--weights", "2,1", "--mask", "mask.png", *QUICK]
    for name in ("a.png", "b.png"):
        assert run([*arguments, "-o", name]) == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()
    capsys.readouterr()
    assert run(["replay", "a.png"]) == 0
    assert "the same to the bit" in capsys.readouterr().out
    assert run([*arguments, "-o", "c.png", "--seed", "1"]) == 0
    assert not np.array_equal(pixels("c.png"), pixels("a.png"))


def test_json_recipe_compare_and_preview(folder, capsys):
    extra = ["--json", "--recipe", "r.json", "--compare", "side.png", "--preview", "now.jpg"]
    assert run(["style", "photo.png", "painting.png", "-o", "out.tif", *QUICK, *extra]) == 0
    result = json.loads(capsys.readouterr().out)["results"][0]
    assert result["recipe"] == json.loads(Path("r.json").read_text()) == read_recipe("out.tif")
    assert len(result["losses"]) == 1
    side = pixels("side.png")
    assert side.shape == (17 + 18, 24 + 8 + 17 + 8 + 24, 3)
    labels = side[17:]
    assert all((part < 120).any() for part in (labels[:, :24], labels[:, 32:49], labels[:, 57:]))  # each has its own
    assert (labels[:, 24:32] == 255).all()
    assert np.abs(pixels("now.jpg") - read_image("out.tif").pixels).mean() < 20


def test_regions_and_init(folder):
    os.link("mask.png", "sky=blue.png")  # a name with the sign that joins a pair
    assert run(["style", "photo.png", "painting.png", "-o", "a.png", *QUICK, "--regions", "sky=blue.png=mask.png"]) == 0
    assert run(["style", "photo.png", "painting.png", "-o", "b.png", *QUICK, "--init", "photo"]) == 0
    assert run(["style", "photo.png", "painting.png", "-o", "c.png", *QUICK, "--init", "other.png"]) == 0
    assert len({Path(name).read_bytes() for name in ("a.png", "b.png", "c.png")}) == 3


def test_many_photos(folder, capsys):
    assert run(["style", "photo.png", "other.png", "--painting", "painting.png", "-o", "out/", *QUICK]) == 0
    assert files_in(Path("out")) == ["other.png", "photo.png"]


def test_a_mask_of_another_size_is_scaled_and_said(folder, capsys):
    arguments = [word for word in QUICK if word != "--quiet"]
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", "--mask", "mask.png", *arguments]) == 0
    assert "the mask is scaled from 21 x 15 to 42 x 30, the photo's size" in capsys.readouterr().err


def huge_png(path):
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


BAD = {
    "missing photo": (["gone.png", "painting.png"], 3, "read file (gone.png): there is no such file"),
    "missing painting": (["photo.png", "gone.png"], 3, "read image (gone.png): there is no such file"),
    "text called png": (["text.png", "painting.png"], 3, "text.png"),
    "one pixel": (["one.png", "painting.png"], 3, "the photo has 1 x 1 pixels, but needs at least 8 x 8"),
    "painting of one patch": (["photo.png", "patch.png"], 3, "the painting has 3 x 3 pixels, but needs at least"),
    "declared huge": (["huge.png", "painting.png"], 3, "declares 60000 x 60000 pixels, more than the limit"),
    "weights": (["photo.png", "painting.png", "--weights", "1,2"], 2, "--weights: 2 numbers for 1 painting(s)"),
    "no numbers": (["photo.png", "painting.png", "--weights", "much"], 2, "--weights: `much` is not a list of numbers"),
    "no painting": (["photo.png"], 2, "there is no painting"),
    "no pair": (["photo.png", "painting.png", "--regions", "mask.png"], 2, "`mask.png` names no pair"),
    "black mask": (["photo.png", "painting.png", "--mask", "black.png"], 3, "`mask` is black"),
    "bad strength": (["photo.png", "painting.png", "--strength", "2"], 2, "`strength` (=2.0) must be a number from 0"),
    "bad size": (["photo.png", "painting.png", "--size", "big"], 2, "`size` (='big') must be a whole number"),
    "no checkpoint": (
        ["photo.png", "painting.png", "--preset", "paper", "--resume"],
        3,
        "read checkpoint (out.png.checkpoint): there is",
    ),
    "never a checkpoint": (["photo.png", "painting.png", "--resume"], 2, "--resume: the preset patches has no"),
    "no memory": (["photo.png", "painting.png", "--max-memory", "100M"], 5, "a smaller --size or a larger"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_a_message_and_a_code_and_leaves_nothing(folder, capsys, case):
    Path("text.png").write_text("not a picture")
    Image.new("RGB", (1, 1)).save("one.png")
    Image.new("RGB", (3, 3)).save("patch.png")
    Image.new("L", (42, 30)).save("black.png")
    huge_png(folder / "huge.png")
    before = files_in(folder)
    arguments, code, message = BAD[case]
    assert run(["style", *arguments, "-o", "out.png"]) == code
    told = capsys.readouterr()
    assert message in told.err
    assert "Try:" in told.err
    assert told.out == ""
    assert files_in(folder) == before


def test_a_size_that_fits_into_the_memory_is_named_and_fits(folder, capsys):
    Image.new("RGB", (2000, 1500)).save("large.png")
    order = ["style", "large.png", "painting.png", "-o", "out.png", "--size", "keep", "--max-memory", "1G"]
    assert run(order) == 5
    said = capsys.readouterr().err
    size = re.search(r"Try: use --size (\d+) or a larger --max-memory", said)[1]
    order[6] = size
    assert run([*order, "--dry-run"]) == 0
    assert "more than" not in capsys.readouterr().out
    order[6] = str(int(size) + 40)
    assert run([*order, "--dry-run"]) == 0
    assert "more than the 1.0 GiB there are" in capsys.readouterr().out


def test_outputs_in_the_way(folder, capsys):
    Path("out.png").write_bytes(b"mine")
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", *QUICK]) == 4
    assert "the file exists already" in capsys.readouterr().err
    assert Path("out.png").read_bytes() == b"mine"
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", *QUICK, "--overwrite"]) == 0
    assert run(["style", "photo.png", "painting.png", "-o", "photo.png/out.png", *QUICK]) == 4
    assert run(["style", "photo.png", "painting.png", "-o", "new.xyz", *QUICK]) == 2
    assert run(["style", "photo.png", "painting.png", "-o", "new.png", "--preview", "no/where.png", *QUICK]) == 4
    assert "the folder" in capsys.readouterr().err
    assert not Path("new.png").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there(folder, capsys):
    before = files_in(folder)
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", "--device", "cuda", *QUICK]) == 7
    assert "error: stylize: the device 'cuda' is not available here. Try: use cpu." in capsys.readouterr().err
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", "--device", "tpu", *QUICK]) == 2
    assert run(["bench", "cuda", "--quick"]) == 7
    assert files_in(folder) == before


def test_too_large_for_the_memory_is_refused_before_the_work(folder, capsys, monkeypatch):
    monkeypatch.setattr("glocal.apps.style.transfer.stylize", lambda *_, **__: pytest.fail("the work began"))
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", "--size", "30000"]) == 5
    assert "GiB" in capsys.readouterr().err
    assert not Path("out.png").exists()


def test_ctrl_c_saves_the_best_so_far_and_resume_goes_on(folder):
    command = [
        sys.executable,
        "-m",
        "glocal",
        "style",
        "photo.png",
        "painting.png",
        "-o",
        "out.png",
        "--preset",
        "paper",
    ]
    command += ["--size", "96", "--iterations", "4000", "--preview", "now.png"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not Path("now.png").exists() and time.monotonic() < deadline:  # the optimisation has begun
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 130, err
    assert "the best so far is in out.png" in err
    assert pixels("out.png").shape == (69, 96, 3)
    assert checkpoint_path("out.png").exists()
    other = ["--size", "96", "--iterations", "3", "--preset", "paper", "--quiet"]
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", *other, "--resume", "--overwrite"]) == 3


def test_resume_goes_on_from_the_checkpoint(folder, capsys):

    from glocal import color_space as colors
    from glocal.apps.style.checkpoint import save_checkpoint
    from glocal.apps.style.options import style_options
    from glocal.apps.style.solve import Checkpoint
    from glocal.apps.style.transfer import StyleSources

    options = style_options("paper", {"size": 24, "iterations": 2})
    recipe = StyleSources.read("photo.png", "painting.png").recipe(options, None)
    white = colors.lab_from_rgb(torch.ones(17, 24, 3))
    save_checkpoint(checkpoint_path("out.png"), Checkpoint(0, 2, white), recipe)
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", *QUICK, "--resume"]) == 0
    assert pixels("out.png").min() == 255  # all iterations were done already, so it stays as it was
    assert not checkpoint_path("out.png").exists()
    checkpoint_path("out.png").write_bytes(b"nonsense")
    assert run(["style", "photo.png", "painting.png", "-o", "out.png", *QUICK, "--resume", "--overwrite"]) == 3
    assert "it is damaged" in capsys.readouterr().err


def test_a_disk_too_small_for_checkpoints_does_not_end_the_run(folder, capsys, monkeypatch):
    from glocal.apps.style import checkpoint, solve
    from glocal.errors import OutputError

    def full(*_):
        raise OutputError("write file (x): the disk is full. Free some space.")

    monkeypatch.setattr(checkpoint, "save_checkpoint", full)
    monkeypatch.setattr(solve, "CALL_SECONDS", 0.0)
    command = ["style", "photo.png", "painting.png", "--size", "24", "--iterations", "3", "--preset", "paper"]
    assert run([*command, "-o", "a.png"]) == 0
    assert capsys.readouterr().err.count("no checkpoint is kept: write file (x): the disk is full.") == 1
    assert run([*command, "-o", "b.png", "--no-checkpoints"]) == 0
    assert "checkpoint" not in capsys.readouterr().err
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_a_checkpoint_that_does_not_fit_is_an_output_error(tmp_path):
    import resource

    from glocal.apps.style import checkpoint
    from glocal.apps.style.solve import Checkpoint
    from glocal.errors import OutputError

    point = Checkpoint(0, 1, torch.zeros(400, 400, 3))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OutputError, match="ree some space or choose another folder"):
            checkpoint.save_checkpoint(tmp_path / "a", point, {"options": 1, "arguments": 1, "inputs": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_painting_of_one_colour(folder, capsys):
    Image.new("RGB", (30, 30), (9, 90, 200)).save("flat.png")
    assert run(["style", "photo.png", "flat.png", "-o", "out.png", *QUICK]) == 3
    assert (
        "error: stylize (flat.png): the painting has only one colour, so it has no style to transfer. "
        "Try: use a painting with strokes or texture." in capsys.readouterr().err
    )


def test_the_number_of_threads_and_jobs_does_not_change_a_byte(folder):
    """torch's sums depend on how many threads it has, so that a batch with --jobs gave other pictures."""
    before = torch.get_num_threads()
    command = ["style", "photo.png", "painting.png", "--size", "48", "--quiet"]
    networks = ["--preset", "painterly", "--iterations", "8"]
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for name, more in (("a", []), ("b", networks), ("c", [*networks, "--mask", "mask.png"])):
                assert run([*command, *more, "-o", f"{name}{threads}.png"]) == 0
    finally:
        torch.set_num_threads(before)
    for name in "abc":
        assert Path(f"{name}1.png").read_bytes() == Path(f"{name}3.png").read_bytes()


def test_the_demo_writes_the_result_and_the_comparison(tmp_path, monkeypatch):
    script = Path(__file__).parents[3] / "examples" / "demo.py"
    monkeypatch.setattr(sys, "argv", [str(script), "-o", str(tmp_path), "--size", "32"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert files_in(tmp_path) == ["style.png", "style_side_by_side.png"]
    assert pixels(tmp_path / "style.png").shape == (23, 32, 3)
