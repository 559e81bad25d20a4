"""`glocal color` through real files: pictures, maps, LUTs, palettes, exit codes and texts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from PIL import Image

import glocal
from glocal.apps.color.options import ColorOptions
from glocal.cli.main import run
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image, read_recipe
from glocal.files.images.scratch import Scratch
from glocal.files.images.write import write_image
from glocal.jobs.color import ColorFiles, ColorJob
from glocal.jobs.job import Inputs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A photo of greens, a reference of reds, and a second frame."""
    y, x = np.mgrid[0:40, 0:60] / 60
    photo = np.stack([60 + 60 * x, 110 + 70 * y, 60 + 50 * x * y], -1)
    Image.fromarray(photo.astype(np.uint8)).save(tmp_path / "photo.png")
    Image.fromarray(photo[:, ::-1].astype(np.uint8)).save(tmp_path / "frame.png")
    reference = np.stack([150 + 90 * y, 60 + 60 * x, 70 + 60 * x * y], -1)
    Image.fromarray(reference.astype(np.uint8)).save(tmp_path / "reference.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pixels(name):
    return np.asarray(Image.open(name)).astype(int)


def test_photo_and_reference(folder, capsys):
    assert run(["color", "photo.png", "reference.png", "-o", "out.png"]) == 0
    assert capsys.readouterr().out == "out.png\n"
    red, green = pixels("out.png")[..., 0].mean(), pixels("out.png")[..., 1].mean()
    assert red > green + 20
    recipe = read_recipe("out.png")
    assert recipe["command"] == "color"
    assert recipe["arguments"]["positional"] == ["photo.png", "reference.png"]
    assert recipe["options"]["lambdas"] == [1.0, 0.1, 1.0]


def test_every_flag_reaches_the_recipe(folder):
    flags = "--method transport --mapping nearest --colors 8 --strength 0.5 --luminance match --gamut clip"
    flags += " --protect neutrals,skin --lambda 2,0.5,3 --seed 7 --slack 2 --iterations 9"
    assert run(["color", "photo.png", "reference.png", "-o", "out.png", *flags.split()]) == 0
    options = read_recipe("out.png")["options"]
    assert options["protect"] == ["neutrals", "skin"]
    assert options["lambdas"] == [2.0, 0.5, 3.0]
    wanted = {"method": "transport", "mapping": "nearest", "colors": 8, "strength": 0.5, "luminance": "match"}
    wanted |= {"gamut": "clip", "seed": 7, "slack": 2.0, "iterations": 9}
    assert {name: options[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "arguments",
    [
        "photo.png reference.png --lambda 1,0.5,2 --protect skin --method transport --mask mask.png",
        "photo.png reference.png frame.png --colors 9 --seed 5",
        "photo.png --reference reference.png --reference frame.png --luminance match",
        "photo.png --map look.cube --strength 0.5 --depth 16",
    ],
)
def test_replay_repeats_it_to_the_bit(folder, capsys, arguments):
    Image.fromarray(np.full((40, 60), 200, np.uint8)).save("mask.png")
    assert run(["color", "photo.png", "reference.png", "-o", "first.png", "--lut", "look.cube"]) == 0
    assert run(["color", *arguments.split(), "-o", "out.png"]) == 0
    assert run(["replay", "out.png"]) == 0
    assert "the same to the bit" in capsys.readouterr().out


def test_saved_map_gives_the_same_picture_and_one_map_to_all_frames(folder, capsys):
    assert run(["color", "photo.png", "reference.png", "-o", "a.png", "--save-map", "look.glocal"]) == 0
    (folder / "frames").mkdir()
    for name in ("photo.png", "frame.png"):
        shutil.copy(name, folder / "frames" / name)
    assert run(["color", "--map", "look.glocal", "frames", "-o", "out/"]) == 0
    assert np.array_equal(pixels("out/photo.png"), pixels("a.png"))
    assert np.array_equal(pixels("out/frame.png"), pixels("a.png")[:, ::-1])  # the same colours become the same
    assert run(["color", "--map", "look.glocal", "photo.png", "-o", "none.png", "--strength", "0"]) == 0
    assert np.array_equal(pixels("none.png"), pixels("photo.png"))
    assert "2 done, 0 skipped, 0 failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "flags", "size"), [("l.cube", [], 33), ("l.cube", ["--lut-size", "65"], 65), ("l.png", [], 64)]
)
def test_lut_tells_how_near_it_is_and_can_be_applied(folder, capsys, name, flags, size):
    assert run(["color", "photo.png", "reference.png", "-o", "a.png", "--lut", name, *flags]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: {size} points, differs from the map by ")
    assert float(out.split(" by ")[1].split()[0]) < 0.5
    assert run(["color", "--map", name, "photo.png", "-o", "b.png"]) == 0
    assert np.abs(pixels("a.png") - pixels("b.png")).max() <= 4
    assert run(["color", "--map", name, "photo.png", "-o", "half.png", "--strength", "0.5"]) == 0
    assert np.abs(pixels("half.png") - (pixels("photo.png") + pixels("b.png")) / 2).max() <= 1


def test_json(folder, capsys):
    assert run(["color", "photo.png", "reference.png", "-o", "a.png", "--lut", "l.cube", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["results"][0]
    assert result["losses"][1] < result["losses"][0]
    assert result["luts"][0]["size"] == 33
    assert 0 < result["luts"][0]["mean"] < result["luts"][0]["max"]


def test_palettes_are_drawn(folder):
    assert run(["color", "photo.png", "reference.png", "-o", "a.png", "--palette-out", "p.png"]) == 0
    drawn = pixels("p.png")
    assert drawn.shape[0] > 600
    assert drawn.shape[1] > 800
    swatch = drawn[45:60, 18:30].reshape(-1, 3)
    assert len(np.unique(swatch, axis=0)) == 1
    assert swatch[0].min() < 200


def test_several_references_masks_and_photos(folder, capsys):
    mask = np.zeros((40, 60), np.uint8)
    mask[:20] = 255
    Image.fromarray(mask).save("mask.png")
    assert run(["color", "photo.png", "reference.png", "frame.png", "-o", "a.png", "--mask", "mask.png"]) == 0
    assert np.array_equal(pixels("a.png")[20:], pixels("photo.png")[20:])
    assert not np.array_equal(pixels("a.png")[:20], pixels("photo.png")[:20])
    assert run(["color", "photo.png", "frame.png", "--reference", "reference.png", "-o", "many/"]) == 0
    assert sorted(p.name for p in (folder / "many").iterdir()) == ["frame.png", "photo.png"]


def test_gray_photo_is_tinted_with_a_note(folder, capsys):
    Image.open("photo.png").convert("L").save("gray.png")
    assert run(["color", "gray.png", "reference.png", "-o", "a.png"]) == 0
    assert "gets one tint" in capsys.readouterr().err
    assert read_image("a.png").pixels.shape == (40, 60, 3)


def damaged(folder):
    (folder / "bad.glocal").write_bytes(b"not a map")
    (folder / "bad.cube").write_text("LUT_3D_SIZE 33\n0 0 0\n")
    Image.fromarray(np.zeros((40, 60), np.uint8)).save(folder / "black.png")
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(folder / "small.png")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("photo.png", 2, "there is no reference. Try: name a photo and a reference, or use --reference."),
        ("photo.png missing.png -o a.png", 3, "there is no such file"),
        ("photo.png reference.png -o photo.png", 4, "exists already"),
        ("photo.png reference.png -o a.png --mask black.png", 3, "selects nothing"),
        ("photo.png reference.png -o a.png --mask small.png", 3, "selects nothing"),
        (
            "--map bad.glocal photo.png -o a.png",
            3,
            "it is damaged or not a color map. Try: make it again with --save-map.",
        ),
        ("--map bad.cube photo.png -o a.png", 3, "it has 1 points"),
        ("--map no.glocal photo.png -o a.png", 3, "Try: check the name."),
        ("--map bad.glocal photo.png --colors 3", 2, "--colors has no effect with --map"),
        ("--map bad.glocal photo.png --save-map b.glocal", 2, "--map has no palettes. Try: leave"),
        ("--map bad.glocal photo.png --reference photo.png", 2, "contradict each other"),
        ("photo.png reference.png -o a.png --lut a.3dl", 2, "the suffix '.3dl' is unknown"),
        (
            "photo.png reference.png -o a.png --save-map a.png",
            2,
            "suffix '.png' is that of a LUT or a picture. Try: use",
        ),
        ("photo.png reference.png -o a.png --save-map a.cube", 2, "suffix '.cube' is that of a LUT or a picture"),
        (
            "photo.png frame.png --reference reference.png -o x/ --lut a.cube",
            2,
            "belongs to one input, and there are several. Try: make it from one photo",
        ),
        ("photo.png reference.png -o a.zarr --save-map a.png", 2, "suffix '.png' is that of a LUT or a picture"),
        ("photo.png reference.png --lambda 1,2", 2, "must be three numbers"),
        ("photo.png reference.png --lambda a,b,c", 2, "`a,b,c` is not a list of numbers. Try: write it like"),
        ("photo.png reference.png --protect cats", 2, "is unknown. Try: choose among neutrals, skin"),
        ("photo.png reference.png --method magic", 2, "magic"),
    ],
)
def test_what_goes_wrong(folder, capsys, arguments, code, text):
    damaged(folder)
    assert run(["color", *arguments.split()]) == code
    assert text in capsys.readouterr().err


def test_help_does_not_wait_for_torch(folder, capsys):
    import os
    import subprocess
    import sys

    import glocal

    home = str(Path(glocal.__file__).parents[1])
    code = "import sys; from glocal.cli.main import run; run(['color', '--help']); sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=False, env={**os.environ, "PYTHONPATH": home}
        ).returncode
        == 0
    )


def test_dry_run_tells_memory_and_time(folder, capsys):
    assert run(["color", "photo.png", "reference.png", "-o", "a.png", "--dry-run"]) == 0
    assert "60 x 40" in capsys.readouterr().out
    assert not (folder / "a.png").exists()


PROFILE = bytes(imagecodecs.cms_profile("adobergb"))
PHOTOS = {
    "plain.png keep": {},
    "wide.tif keep": {"icc": PROFILE},
    "plain.jpg 16": {},
    "deep.png 8": {"pixels": lambda p: p.astype(np.uint16) * 257, "icc": PROFILE},
    "alpha.png 16": {"alpha": lambda p: p[:, :, 0] // 8 % 2 * 255},
    "gray.tif keep": {"pixels": lambda p: p[:, :, :1].copy()},
    "float.tif keep": {
        "pixels": lambda p: p.astype(np.float32) / 64 - 0.1,
        "alpha": lambda p: p[:, :, 1] / np.float32(255),
    },
}


@pytest.mark.parametrize("photo", PHOTOS)
def test_temporary_files_give_the_same_bytes(folder, monkeypatch, photo):
    name, depth = photo.split()
    mask = "small mask.png" if name in ("alpha.png", "gray.tif") else None
    plain = read_image("photo.png")
    changes = {key: make(plain.pixels) if callable(make) else make for key, make in PHOTOS[photo].items()}
    write_image(name, replace(plain, **changes))
    write_image("small mask.png", Picture(plain.pixels[10:21, 5:30, :1].copy()))
    glocal.recolor(name, "reference.png", mask=mask).save("whole.tif", depth=depth)
    monkeypatch.setattr("glocal.files.images.picture.BAND_ROWS", 7)
    for module in ("fit", "recolor"):
        monkeypatch.setattr(f"glocal.apps.color.{module}.BAND", 16)
    scratch = Scratch(folder, memory=1)
    glocal.recolor(name, "reference.png", mask=mask, scratch=scratch).save("parts.tif", depth=depth)
    assert Path("whole.tif").read_bytes() == Path("parts.tif").read_bytes()


def test_memory_that_is_enough_with_temporary_files_and_what_needs_more(folder, capsys):
    Image.new("RGB", (6000, 4000)).save("large.png")
    order = ["color", "large.png", "reference.png", "-o", "out.png", "--dry-run", "--max-memory", "1G"]
    assert run(order) == 0
    assert "2.3 GiB (with temporary files, in 1.0 GiB)" in capsys.readouterr().out
    assert run([*order, "--mask", "large.png", "--lut", "a.cube"]) == 0
    assert "2.7 GiB (with temporary files, in 1.0 GiB)" in capsys.readouterr().out
    job = ColorJob(ColorOptions(), ColorFiles(lut=("a.cube",)), others=("reference.png",))
    inputs = Inputs(Path("photo.png"), job.others, Path("a.png"), overwrite=True)
    whole = job.run_file(inputs, None)["luts"]
    assert job.run_file(replace(inputs, scratch=Scratch(folder, memory=1)), None)["luts"] == whole
