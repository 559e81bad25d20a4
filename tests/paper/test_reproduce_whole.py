"""The whole report at sizes that take seconds: every part, trained on a few pictures and clips made here."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from page_reading import assert_page_is_whole
from PIL import Image

from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import Architecture
from glocal.errors import InputError
from glocal.paper import denoise, folders, paintings
from glocal.paper.job import Job
from glocal.paper.options import Effort, ReproduceOptions
from glocal.paper.reproduce import reproduce
from glocal.paper.source import Source

HERE = Source("this run", "test")
TINY = Effort("tiny", 24, 24, 1, 1, 1, 24, 1, image_size=32, speech_seconds=0.1)
TRAINS = replace(TINY, trains=True, epochs=1, speech_steps=2, every=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Eight pictures in a list with its split, and six clips of noise with theirs."""
    import soundfile

    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for folder in ("photos", "speech/librispeech"):
        (root / folder).mkdir(parents=True)
    splits = ["train"] * 3 + ["val"] * 2 + ["test"] * 3
    with (root / "photos/holidays_like.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "split"])
        for i, split in enumerate(splits):
            Image.fromarray(paintings.mosaic(i)).resize((40, 30)).save(root / f"photos/{i}.png")
            rows.writerow([f"{i}.png", split])
    with (root / "speech/librispeech/clips.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "split", "start", "length"])
        for i, split in enumerate(["train", "val", "test", "test"]):
            tone = np.sin(np.arange(16000) * (0.05 + 0.02 * i)) * 0.3 + 0.01 * rng.standard_normal(16000)
            soundfile.write(root / f"speech/librispeech/{i}.wav", tone.astype(np.float32), 16000)
            rows.writerow([f"{i}.wav", split, 0, 16000])
    return root


def test_everything_is_trained_and_shown(data, tmp_path):
    told = []
    options = ReproduceOptions(data=data)
    written = reproduce(tmp_path / "r", options, command="glocal reproduce", effort=TRAINS, progress=told.append)
    page = assert_page_is_whole(written.page)
    assert page.anchors >= {"layer", "style", "color", "image", "speech"}
    alts = [alt for alt, _ in page.images]
    for start in ("Impulse response", "Neighbours", "Result: ", "Palette: ", "Validation curves: images",
                  "Validation curves: speech", "The photo, noisy", "Feature maps", "Spectrogram"):  # fmt: skip
        assert any(alt.startswith(start) for alt in alts), start
    assert len(page.sounds) == 4
    assert all(sound.startswith(b"RIFF") for sound in page.sounds)
    kinds = {line.partition(":")[0] for block in page.blocks for line in block.sources.values()}
    assert kinds == {"this run", "paper"}  # nothing is read from a store when everything is trained
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    scores = json.loads((tmp_path / "r/json/image.json").read_text())["data"]["run"]["scores"]
    assert set(scores) == {"noisy", "haar", "haar-stationary", "local", "local-middle", "nonlocal", "gain"}
    assert scores["noisy"]["mean"] == pytest.approx(23.1, abs=0.3)  # sigma 0.07
    assert (tmp_path / "r/training/image/nonlocal.jsonl").exists()


def test_the_quick_version_reads_stored_runs(tmp_path):
    options = ReproduceOptions(only="image,speech")
    page = assert_page_is_whole(reproduce(tmp_path, options, command="glocal reproduce", effort=TINY).page)
    tables = [block for block in page.blocks if "paper: " in " ".join(block.sources.values())]
    assert len(tables) >= 2
    for table in tables:
        stored = [line for line in table.sources.values() if line.startswith("stored run: ")]
        assert len(stored) == 1
        assert ", seed 0" in stored[0]
    values = [value for block in tables for _, value, _ in block.numbers]
    assert {23.1, 26.78, 29.13, 29.42, 0.29, 0.85, 5.8, 8.44, 8.79, 0.35} <= set(values)


def test_full_needs_data_and_says_so_before_the_work(tmp_path, data):
    with pytest.raises(
        InputError, match=r"`full` trains on photos, which are not shipped\. Name their folder with --data"
    ):
        reproduce(tmp_path, ReproduceOptions(full=True))
    with pytest.raises(
        InputError, match=r"there is no speech to train on; looked for timit, TIMIT, .* leave speech out"
    ):
        folders.speech_in(tmp_path)
    with pytest.raises(InputError, match=r"there is no photos to train on"):
        folders.photos_in(tmp_path)
    assert not (tmp_path / "index.html").exists()
    assert folders.photos_in(data) == data / "photos/holidays_like.csv"
    assert folders.speech_in(data) == data / "speech/librispeech"


def test_stored_trainings_replace_training():
    assert ReproduceOptions(full=True).effort.trains
    assert not ReproduceOptions(full=True, stored=True).effort.trains
    assert ReproduceOptions(full=True, stored=True).effort.style_size == 256


def test_the_papers_own_data_come_first(tmp_path):
    for name in ("timit", "librispeech", "holidays", "photos"):
        (tmp_path / name).mkdir()
    assert folders.photos_in(tmp_path).name == "holidays"
    assert folders.speech_in(tmp_path).name == "timit"


@pytest.fixture
def nets():
    return {
        name: ImageDenoiser(Architecture(middle), seed=1)
        for name, middle in (("local", "none"), ("nonlocal", "nonlocal"))
    }


def test_the_adjoint_of_the_synthesis_layer(nets):
    net = nets["local"]
    generator = torch.Generator().manual_seed(0)
    x, z = torch.randn(48, 1, generator=generator), torch.randn(48, 18, generator=generator)
    grid = net.graphs(x.reshape(6, 8))["local"]
    left = float((net.synthesis(z, grid) * x).sum().detach())
    right = float((z * denoise.adjoint(net, x, grid)).sum())
    assert left == pytest.approx(right, rel=1e-4)


def test_figures_6_and_7_show_both_networks(nets):
    from glocal.paper.runs import load_runs

    found = denoise.Trained(nets["local"], nets["nonlocal"], load_runs("image")[0])
    job = Job(TINY, HERE, ReproduceOptions())
    figure, values = denoise.figure_6(found, job)
    assert list(values) == ["noisy", "local network", "non-local network"]
    assert values["noisy"] == pytest.approx(23.1, abs=0.6)
    assert [plate.caption[0] for plate in figure.plates][-1] == "original"
    maps = denoise.figure_7(found, job)
    assert len(maps.plates) == 4
    assert maps.plates[0].pixels.shape == (6 * 34 - 2, 3 * 34 - 2, 3)
