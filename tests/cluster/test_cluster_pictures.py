"""Pictures in tiles: the same pixels as without tiles, in Zarr and TIFF, interrupted and continued."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
import zarr

from glocal import samples
from glocal.apps.color.look import ColorMap
from glocal.cli import main
from glocal.cli.shell import tiles as shell_tiles
from glocal.cluster.pictures import run_picture
from glocal.cluster.sources import open_source
from glocal.cluster.stores import ZarrPixels, chunk_file, level_shapes
from glocal.cluster.tiles import halved
from glocal.errors import InputError, MemoryLimitError, OutputError
from glocal.files.images.read import read_image, read_recipe
from glocal.jobs.batch import failure, perform
from glocal.jobs.denoise import DenoiseFiles, DenoiseJob, DenoiseOptions
from glocal.jobs.job import ImageOutput

pytestmark = pytest.mark.xdist_group("pictures")  # the folder is made once


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A noisy scan in tiles, as TIFF with alpha and profile and as OME-Zarr with five axes, and its untiled results."""
    folder = tmp_path_factory.mktemp("pictures")
    photo = read_image(samples.path("citrus.jpg")).pixels[
        100:332, 200:500
    ]  # 232 x 300: larger than what is searched whole
    noise = np.random.default_rng(0).normal(0, 12, photo.shape)
    noisy = np.clip(photo + noise, 0, 255).astype(np.uint8)
    alpha = np.arange(232 * 300, dtype=np.uint32).reshape(232, 300, 1).astype(np.uint8)
    tifffile.imwrite(
        folder / "scan.tif", np.concatenate([noisy, alpha], 2), tile=(64, 96), photometric="rgb", compression="zlib",
        extrasamples=["unassalpha"],
    )  # fmt: skip
    tifffile.imwrite(folder / "plain.tif", noisy, photometric="rgb")
    ramp = np.clip(np.arange(300) * 2 - 200, 0, 255).astype(np.uint8)
    tifffile.imwrite(folder / "mask.tif", np.broadcast_to(ramp, (232, 300)), photometric="minisblack")
    flat = np.random.default_rng(1).normal(128, 20, (64, 64, 3))
    tifffile.imwrite(folder / "flat.tif", flat.astype(np.uint8), photometric="rgb")
    group = zarr.open_group(folder / "five.zarr", mode="w", zarr_format=2)
    group.create_array("full", shape=(1, 3, 1, 232, 300), chunks=(1, 1, 1, 50, 70), dtype=np.uint8)[:] = np.moveaxis(
        noisy, 2, 0
    )[None, :, None]
    axes = [{"name": name} for name in "tczyx"]
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [{"path": "full"}]}]
    assert (
        main.run(["denoise", str(folder / "scan.tif"), "-o", str(folder / "whole.tif"), "--model", "local", "--quiet"])
        == 0
    )
    return folder


def call(*arguments):
    return main.run([*map(str, arguments), "--quiet"])


def level(store, number=0):
    return np.moveaxis(zarr.open_array(store / str(number), mode="r")[:], 0, 2)


def whole(folder):
    picture = read_image(folder / "whole.tif")
    return np.concatenate([picture.pixels, picture.alpha[:, :, None]], 2)


@pytest.mark.parametrize("flags", [["--tile", 80], ["--tile", 112, "--jobs", 2], ["--tile", 512]])
def test_tiles_of_any_size_give_the_untiled_pixels(folder, tmp_path, flags):
    assert call("denoise", folder / "scan.tif", "-o", tmp_path / "a.zarr", "--model", "local", *flags) == 0
    assert np.array_equal(level(tmp_path / "a.zarr"), whole(folder))


def test_a_cluster_gives_the_untiled_pixels_and_a_pyramid_that_viewers_know(folder, tmp_path):
    target = tmp_path / "a.ome.zarr"
    code = call("denoise", folder / "scan.tif", "-o", target, "--model", "local", "--tile", 64, "--cluster", "local:2")
    assert code == 0
    assert np.array_equal(level(target), whole(folder))
    described = zarr.open_group(target, mode="r").attrs
    scales = described["ome"]["multiscales"][0]
    assert described["ome"]["version"] == "0.5"
    assert [axis["name"] for axis in scales["axes"]] == ["c", "y", "x"]
    assert [entry["path"] for entry in scales["datasets"]] == ["0", "1", "2", "3"]
    assert scales["datasets"][1]["coordinateTransformations"] == [{"type": "scale", "scale": [1.0, 2.0, 2.0]}]
    assert described["glocal"]["recipe"]["options"]["model"] == "local"
    for number in (1, 2, 3):
        above = np.moveaxis(level(target, number - 1), 2, 0)
        assert np.array_equal(np.moveaxis(level(target, number), 2, 0), halved(above))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ome.zarr"]
    assert not (target / "glocal.json").exists()


def test_the_deep_model_gives_the_untiled_pixels(tmp_path):
    gray = read_image(samples.path("citrus.jpg")).pixels[:148, :170, 1]
    tifffile.imwrite(tmp_path / "gray.tif", gray.astype(np.uint16) * 257, tile=(64, 64))
    assert call("denoise", tmp_path / "gray.tif", "-o", tmp_path / "whole.tif") == 0
    assert call("denoise", tmp_path / "gray.tif", "-o", tmp_path / "tiles.zarr", "--tile", 96) == 0
    assert np.array_equal(level(tmp_path / "tiles.zarr"), read_image(tmp_path / "whole.tif").pixels)


def test_colours_from_zarr_to_a_tiff_pyramid(folder, tmp_path):
    reference = samples.path("sunset.jpg")
    assert call("color", folder / "plain.tif", reference, "-o", tmp_path / "whole.tif") == 0
    assert call("color", folder / "five.zarr", reference, "-o", tmp_path / "a.ome.tif", "--tile", 64) == 0
    expected = read_image(tmp_path / "whole.tif").pixels
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as file:
        assert file.is_ome
        assert [one.shape for one in file.series[0].levels] == [(232, 300, 3), (116, 150, 3), (58, 75, 3), (29, 38, 3)]
        assert np.array_equal(file.series[0].levels[0].asarray(), expected)
        small = np.moveaxis(file.series[0].levels[1].asarray(), 2, 0)
    assert np.array_equal(small, halved(np.moveaxis(expected, 2, 0)))
    assert read_recipe(tmp_path / "a.ome.tif")["command"] == "color"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ome.tif", "whole.tif"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["color", "scan.tif", samples.path("sunset.jpg"), "--mask", "mask.tif"],
        ["denoise", "scan.tif", "--model", "local", "--mask", "mask.tif", "--noise-profile", "flat.tif"],
    ],
)
def test_masks_alpha_and_further_files_give_the_untiled_pixels(folder, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(folder)
    maps = {name: ["--save-map", tmp_path / f"{name}.glocal", "--lut", tmp_path / f"{name}.cube"] for name in "ab"}
    more = maps if arguments[0] == "color" else {"a": [], "b": []}
    assert call(*arguments, "-o", tmp_path / "whole.tif", *more["a"]) == 0
    assert call(*arguments, "-o", tmp_path / "tiles.zarr", "--tile", 80, *more["b"]) == 0
    found, expected = level(tmp_path / "tiles.zarr"), read_image(tmp_path / "whole.tif")
    assert np.array_equal(found, np.concatenate([expected.pixels, expected.alpha[:, :, None]], 2))
    before, dark = read_image("scan.tif").pixels, read_image("mask.tif").pixels[:, :, 0] == 0
    assert np.array_equal(found[dark][:, :3], before[dark])
    assert not np.array_equal(found[:, :, :3], before)
    if more is maps:
        cubes = [(tmp_path / name).read_text().splitlines()[1:] for name in ("a.cube", "b.cube")]  # without the title
        assert cubes[0] == cubes[1]
        assert torch.equal(ColorMap.load(tmp_path / "a.glocal").new, ColorMap.load(tmp_path / "b.glocal").new)


def test_a_tiff_with_too_many_pixels_is_done_in_tiles(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(shell_tiles, "_LOOKED_AT", 0)
    monkeypatch.setattr("glocal.files.images.read.MAX_PIXELS", 1000)
    assert call("denoise", folder / "scan.tif", "-o", tmp_path / "a.tif", "--model", "local", "--tile", 128) == 0
    monkeypatch.undo()
    found = read_image(tmp_path / "a.tif")
    assert np.array_equal(np.concatenate([found.pixels, found.alpha[:, :, None]], 2), whole(folder))


def test_an_interrupted_run_continues_with_the_tiles_that_are_missing(folder, tmp_path, capsys):
    job = DenoiseJob(DenoiseOptions(model="local"), DenoiseFiles(), ImageOutput())
    target = tmp_path / "a.zarr"

    def run(tasks, work, estimate, title):
        work = pickle.loads(pickle.dumps(work))  # as for another process
        for task in tasks[:5]:
            yield perform(task, work, estimate, None)
        raise KeyboardInterrupt

    settings = {"tile": 64, "skip": False, "overwrite": False, "say": lambda text: None}
    with pytest.raises(KeyboardInterrupt):
        run_picture(job, folder / "scan.tif", target, run, **settings)
    first = [chunk_file(target, 0, 0, column) for column in range(5)]
    times = [path.stat().st_mtime_ns for path in first]
    same = ["denoise", folder / "scan.tif", "-o", target, "--model", "local", "--tile"]
    assert call(*same, 64) == 4
    assert "an interrupted run left it. Try: add --skip-existing to go on" in capsys.readouterr().err
    assert call(*same, 128, "--skip-existing") == 4
    assert "it exists already by a run with other settings. Try: add --overwrite" in capsys.readouterr().err
    assert call(*same, 64, "--skip-existing") == 0
    assert [path.stat().st_mtime_ns for path in first] == times
    assert np.array_equal(level(target), whole(folder))
    assert call(*same, 64, "--skip-existing", "--json") == 0
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1])["results"][0]["state"] == "skipped"
    assert call(*same, 64) == 4
    assert call(*same, 128, "--overwrite") == 0
    (tmp_path / "mine.zarr").mkdir()
    assert call(*same[:3], tmp_path / "mine.zarr", "--overwrite") == 4
    assert "it was not made by glocal, so it stays" in capsys.readouterr().err


def test_a_tile_that_fails_is_named_and_the_store_can_be_continued(folder, tmp_path):
    shutil.copy(folder / "scan.tif", tmp_path / "scan.tif")
    job = DenoiseJob(DenoiseOptions(model="local"), DenoiseFiles(), ImageOutput())

    def run(tasks, work, estimate, title):
        for task in tasks:
            try:
                yield perform(replace(task, memory=1), work, estimate, lambda value: None)
            except MemoryLimitError as error:
                yield failure(task, error)

    with pytest.raises(OutputError, match=r"20 tile\(s\) failed; the first: error: .*memory.*Run it again with --skip"):
        run_picture(
            job, tmp_path / "scan.tif", tmp_path / "a.zarr", run, tile=64, skip=False, overwrite=False, say=print
        )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ["style", "scan.tif", "plain.tif", "-o", "a.zarr"],
            2,
            "so tiles would have seams. Try: use a smaller picture",
        ),
        (
            ["denoise", "scan.tif", "-o", "a.zarr", "--residual", "r.tif"],
            2,
            "--residual is not possible for a picture in tiles: what was removed is a second picture of the same size.",
        ),
        (
            ["color", "scan.tif", "plain.tif", "-o", "a.zarr", "--palette-out", "p.png"],
            2,
            "--palette-out is not possible for a picture in tiles: it is a drawing of two transfers, for which a small",
        ),
        (
            ["denoise", "scan.tif", "-o", "a.zarr", "--mask", "a.png"],
            3,
            "mask (a.png): the mask of a picture in tiles is",
        ),
        (
            ["denoise", "scan.tif", "-o", "a.zarr", "--mask", "flat.tif"],
            3,
            "mask (flat.tif): it is 64 x 64 of uint8, and the picture 300 x 232. In tiles it must have the size",
        ),
        (["denoise", "five.zarr", "-o", "a.png"], 2, "-o (a.png): a picture in tiles is written as .zarr or .tif"),
        (["denoise", "five.zarr"], 2, "-o: a picture in tiles needs the name of its output"),
        (["denoise", "none.zarr", "-o", "a.zarr"], 3, "there is no such folder"),
        (
            ["denoise", "s3://bucket/a.zarr", "-o", "a.zarr"],
            3,
            "file (s3://bucket/a.zarr): it is an address, and files",
        ),
        (["denoise", "five.zarr", "-o", "a.zarr", "--tile", "100"], 2, "--tile (=100) must be a multiple of 16"),
    ],
)
def test_what_is_refused(folder, monkeypatch, capsys, arguments, code, text):
    monkeypatch.chdir(folder)
    assert main.run(arguments) == code
    assert text in capsys.readouterr().err
    assert not (folder / "a.zarr").exists()


def test_pictures_that_cannot_be_cut(tmp_path):
    def refused(text, **settings):
        shape = settings.pop("shape", (32, 32))
        tifffile.imwrite(tmp_path / "a.tif", np.zeros(shape, settings.pop("dtype", np.uint8)), **settings)
        with pytest.raises(InputError, match=text):
            open_source(tmp_path / "a.tif")

    refused("only upright gray and RGB", photometric="miniswhite")
    refused("only upright gray and RGB", extratags=[(274, 3, 1, 6, True)])
    refused(
        "it has 5 pages or channels", shape=(5, 32, 32), photometric="minisblack", metadata={"axes": "CYX"}, ome=True
    )
    refused(
        r"it has 1 more channel\(s\) that are not plain alpha", shape=(32, 32, 4), photometric="rgb", extrasamples=[0]
    )
    refused("its values are int32", dtype=np.int32)
    zarr.open_array(tmp_path / "a.zarr", mode="w", shape=(2, 1, 3, 32, 32), dtype="u1")
    with pytest.raises(InputError, match="not one picture"):
        open_source(tmp_path / "a.zarr")
    zarr.open_array(tmp_path / "b.zarr", mode="w", shape=(7, 32, 32), dtype="u1")
    with pytest.raises(InputError, match="it has 7 channels"):
        open_source(tmp_path / "b.zarr")
    (tmp_path / "c.zarr").mkdir()
    with pytest.raises(InputError, match="it is not a Zarr picture"):
        open_source(tmp_path / "c.zarr")


def test_levels_and_plain_arrays(tmp_path):
    assert level_shapes((100, 20, 1), 64) == [(100, 20, 1), (50, 10, 1)]
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(halved(values[None]), np.array([[[2.0, 3.5]]], np.float32))
    zarr.open_array(tmp_path / "a.zarr", mode="w", shape=(2, 3), dtype="f4")[:] = values
    pixels = ZarrPixels(tmp_path / "a.zarr")
    assert (pixels.shape, pixels.dtype) == ((2, 3, 1), np.float32)
    assert np.array_equal(pixels[0:2, 1:3][:, :, 0], values[:, 1:])
    assert Path(pixels.path).name == "a.zarr"
