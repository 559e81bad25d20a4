"""Every kind of file that version 0.1 wrote can still be read: graphs, models, colour maps, and recipes in all formats."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import glocal
from glocal.apps.color.look import ColorMap
from glocal.apps.color.lut import read_lut
from glocal.apps.denoise.models import load_model
from glocal.apps.speech.models import load_frames, load_samples
from glocal.files.audio.audio_file import open_audio
from glocal.files.embedded import recipe_of
from glocal.files.images.read import read_image
from glocal.files.model_files import check_models
from glocal.files.provenance import from_json

OLD = Path(__file__).parent / "written_by_0_1"
SPEECH = ["wav", "flac", "ogg", "opus", "mp3"]


def photo() -> np.ndarray:
    y, x = np.mgrid[0:24, 0:32]
    return np.stack([x * 8, y * 10, (x + y) * 4], -1).astype(np.uint8)


def test_graphs():
    grid = glocal.Graph.load(OLD / "grid.graph.safetensors")
    assert torch.equal(grid.neighbors, glocal.grid_graph((4, 5), size=3, boundary="reflect").neighbors)
    found = glocal.Graph.load(OLD / "patch.graph.safetensors")
    image = torch.from_numpy(photo()[:6, :7].astype(np.float32) / 255)
    now = glocal.patch_graph(image, k=4, patch=3)
    torch.testing.assert_close(found.distances, now.distances)
    torch.testing.assert_close(found.weights, torch.softmax(-now.distances, 1))


@pytest.mark.parametrize("middle", ["none", "local", "nonlocal"])
def test_networks_for_pictures(middle):
    net = load_model(str(OLD / "models" / f"image-{middle}.safetensors"), 0.1)
    noisy = torch.rand(12, 10, generator=torch.Generator().manual_seed(0))
    denoised = net(noisy.reshape(-1, 1), net.graphs(noisy))
    assert denoised.shape == (120, 1)
    assert torch.isfinite(denoised).all()
    assert net.architecture.middle == middle


def test_networks_for_speech():
    frames = load_frames(str(OLD / "models" / "speech-frames.safetensors"))
    assert (frames.shape.window, frames.shape.hidden, frames.shape.neighbors) == (64, 8, 4)
    for name in ("local", "nonlocal"):
        net = load_samples(name, str(OLD / "models" / f"speech-{name}.safetensors"))
        assert all(torch.isfinite(p).all() for p in net.parameters())


def test_the_index_of_models():
    checks = check_models(OLD / "models")
    assert [one.ok for one in checks] == [True] * 6


def test_color_maps():
    look = ColorMap.load(OLD / "look.glocal")
    assert (look.options.luminance, len(look.palette)) == ("match", 16)
    table = read_lut(OLD / "look.cube")
    colors = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.25, 1.0], [1.0, 1.0, 1.0]])  # points of the table
    torch.testing.assert_close(table(colors), look(colors), atol=1e-3, rtol=0)


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg", "webp", "avif", "heic", "bmp"])
def test_pictures(suffix):
    picture = read_image(OLD / f"denoise.{suffix}")
    reference = read_image(OLD / "denoise.png").pixels.astype(float) / 255
    values = picture.pixels.astype(float) / (255 if picture.pixels.dtype == np.uint8 else 1)
    assert np.abs(values - reference).mean() < {"png": 1e-9, "bmp": 1e-9, "tif": 0.002}.get(suffix, 0.02)
    if suffix != "bmp":
        recipe = recipe_of(OLD / f"denoise.{suffix}")
        assert (recipe["command"], recipe["options"]["sigma"]) == ("denoise", 0.07)
        assert recipe["versions"]["glocal"] == "0.1.0"


@pytest.mark.parametrize("suffix", [*SPEECH, "aiff"])
def test_sounds(suffix):
    with open_audio(OLD / f"speech_out.{suffix}") as sound:
        assert len(sound.read()) == 8000
    if suffix != "aiff":
        assert recipe_of(OLD / f"speech_out.{suffix}")["command"] == "speech"


def test_recipes_as_text():
    recipe = from_json((OLD / "style.json").read_text(), "style.json")
    assert recipe == recipe_of(OLD / "style.png")


@pytest.mark.parametrize("name", ["denoise.png", "color.png"])
def test_replaying(tmp_path, name, capsys):
    from glocal.cli.main import run

    for path in (OLD / name, OLD / "photo.png", OLD / "painting.png"):
        shutil.copy(path, tmp_path)
    assert run(["replay", str(tmp_path / name), "--json", "--quiet"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["mean_difference"] < 0.01
