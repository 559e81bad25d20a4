"""Names of files: not UTF-8, of full length, too long. Each reader and writer takes them or says what is wrong."""

import os

import numpy as np
import pytest
import torch

import glocal
from glocal.apps.color.look import ColorMap
from glocal.apps.color.options import ColorOptions
from glocal.errors import GlocalError, InputError, ModelError, OutputError
from glocal.files.audio.audio_file import create_audio, open_audio, read_audio_recipe
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image, read_recipe
from glocal.files.images.write import write_image
from glocal.files.model_files import read_model, write_model
from glocal.files.provenance import build_recipe, sha256_of

ODD = [os.fsdecode(b"caf\xe9 \xff"), "new\nline", "[red]", "ä" * 120, "\x1b[31m"]
PIXELS = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg", ".webp"])
def test_pictures(tmp_path, name, suffix):
    path = tmp_path / (name + suffix)
    write_image(path, Picture(PIXELS))
    recipe = build_recipe("denoise", {}, inputs=[path])
    write_image(path, read_image(path), recipe=recipe, overwrite=True)
    assert read_recipe(path)["inputs"][0]["path"] == str(path)
    assert os.listdir(tmp_path) == [name + suffix]  # noqa: PTH208  names as the system gives them


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".mp3"])
def test_sounds(tmp_path, name, suffix):
    path = tmp_path / (name + suffix)
    with create_audio(path, rate=16000, channels=1, recipe=build_recipe("speech", {})) as out:
        out.write(np.zeros((4000, 1)))
    with open_audio(path) as sound:
        assert len(sound.read()) == 4000
    assert read_audio_recipe(path)["command"] == "speech"


@pytest.mark.parametrize("name", ODD)
def test_graphs_maps_and_models(tmp_path, name):
    graph = glocal.grid_graph((4, 4))
    graph.save(tmp_path / (name + ".graph"))
    assert torch.equal(glocal.Graph.load(tmp_path / (name + ".graph")).neighbors, graph.neighbors)
    look = ColorMap(torch.rand(4, 2, dtype=torch.float64), torch.rand(4, 2, dtype=torch.float64), ColorOptions())
    look.save(tmp_path / (name + ".map"))
    assert torch.equal(ColorMap.load(tmp_path / (name + ".map")).new, look.new)
    path = write_model(name, {"a": np.ones(2)}, folder=tmp_path)
    assert read_model(path).arrays["a"].tolist() == [1, 1]


LONG = "x" * 300


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda d: read_image(d / f"{LONG}.png"), InputError),
        (lambda d: open_audio(d / f"{LONG}.wav"), InputError),
        (lambda d: sha256_of(d / LONG), InputError),
        (lambda d: glocal.Graph.load(d / LONG), InputError),
        (lambda d: ColorMap.load(d / LONG), InputError),
        (lambda d: read_model(d / f"{LONG}.safetensors"), ModelError),
        (lambda d: write_image(d / f"{LONG}.png", Picture(PIXELS)), OutputError),
        (lambda d: create_audio(d / f"{LONG}.wav", rate=16000, channels=1).__enter__(), OutputError),
        (lambda d: glocal.grid_graph((4, 4)).save(d / LONG), OutputError),
        (lambda d: write_model(LONG, {"a": np.ones(2)}, folder=d), OutputError),
    ],
)
def test_names_that_are_too_long(tmp_path, work, error):
    with pytest.raises(error) as caught:
        work(tmp_path)
    assert isinstance(caught.value, GlocalError)
    assert str(caught.value).endswith(".")
    assert list(tmp_path.iterdir()) == []
