"""Training by one process and by two (gloo, through torchrun): the same losses, checkpoints that fit both, one writer."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from glocal.apps.denoise import data
from glocal.apps.denoise.crops import Crops, PackedPhotos
from glocal.apps.denoise.data import Photos
from glocal.apps.denoise.deep import DeepShape
from glocal.apps.denoise.deep_training import Plan, Training
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import Architecture
from glocal.cli import main
from glocal.errors import ArgumentError
from glocal.training.draws import Draws
from glocal.training.loop import Stage, fit, read_log
from glocal.training.ranks import Ranks, joined, local_device

pytestmark = pytest.mark.xdist_group("ranks")  # what two processes leave is made once
STAGE = Stage("demo", 40, 1e-3, every=8, batch=4)


def train(folder, ranks, *, stop=False):
    """Train a small network in float64; with `stop`, until step 16."""
    model = ImageDenoiser(Architecture("local"), sigma=0.1, seed=0).double()
    noise = Draws(0, "noise")
    clean = torch.linspace(0, 1, 144, dtype=torch.float64)
    graphs = model.graphs(clean.view(12, 12))

    def loss(example):
        time.sleep(0.02 * stop)  # progress is told after a quarter of a second: before step 16
        noisy = clean + 0.1 * noise.normal(example, (144,)).double()
        return (model(noisy.view(-1, 1), graphs) - clean.view(-1, 1)).square().mean()

    ended = fit(
        model, loss, STAGE, validate=lambda: float(loss(10_000).detach()), folder=folder, ranks=ranks,
        progress=(lambda progress: True) if stop else None,
    )  # fmt: skip
    return model, ended


def deep_training(ranks):
    """A deep network with a small shape, trained on noise."""
    pictures = [("", np.random.default_rng(1).integers(0, 256, (40, 40, 1), dtype=np.uint8))]
    crops = Crops(pictures, side=16, shares={"": 1.0}, device="cpu")
    shape = DeepShape(widths=(4, 8, 8), blocks=(1, 1, 1, 1), graph_blocks=1, radius=3, neighbors=4, embedding=4)
    return Training(shape, crops, Plan(8, 2, warm=1, batch=4, side=16), ranks=ranks)


def run_command(folder):
    arguments = [
        "train",
        "image",
        str(folder / "photos.npz"),
        "-o",
        str(folder / "net"),
        "--recipe",
        "pretrain",
        "--quiet",
    ]
    return main.run([*arguments, "--batch", "2", "--every", "3", "--device", "cpu"])


if __name__ == "__main__":  # in each of two processes
    place = Path(sys.argv[1])
    with joined() as both:
        assert both.count == 2
        train(place / "whole", both)
        _, ended = train(place / "stopped", both, stop=True)
        assert not ended.finished, ended
        (place / f"process{both.rank}").write_text(str(ended.step))
        assert run_command(place) == 0
        with pytest.MonkeyPatch.context() as patch:
            read, square = [], data.gray_square
            patch.setattr(data, "gray_square", lambda path, side: (read.append(path.name), square(path, side))[1])
            photos = data.load_photos(place / "files", side=8, test=1, validation=1, ranks=both)
        packed = PackedPhotos.of_folder(place / "files", validation=1, ranks=both)
        assert packed == PackedPhotos.of_folder(place / "files", validation=1)
        assert len(packed.files) == 5
        photos.save(place / f"photos{both.rank}.npz")
        (place / f"read{both.rank}").write_text(" ".join(read))
        deep = deep_training(both)
        deep.run(4)
        deep.save(place / "deep")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes left."""
    folder = tmp_path_factory.mktemp("ranks")
    images = np.random.default_rng(0).integers(0, 256, (14, 24, 24), dtype=np.uint8)
    parts = np.array(["train"] * 12 + ["validation"] * 2)
    Photos(images, parts, tuple(map(str, range(14)))).save(folder / "photos.npz")
    (folder / "files").mkdir()
    for number, image in enumerate(images[:5]):
        Image.fromarray(image).save(folder / "files" / f"{number}.png")
    (folder / "files" / "damaged.png").write_bytes(b"no picture")
    settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, folder]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_losses_do_not_depend_on_the_number_of_processes(two, tmp_path):
    _, alone = train(tmp_path, Ranks())
    shared = read_log(two / "whole" / "demo.jsonl")
    assert [record.step for record in shared] == [0, 8, 16, 24, 32, 40]
    for one, both in zip(alone.records, shared):
        assert one.validation == pytest.approx(both.validation, rel=1e-9)
        assert one.loss == (None if both.loss is None else pytest.approx(both.loss, rel=1e-9))
    assert shared[-1].loss < shared[1].loss


def test_a_checkpoint_of_two_processes_is_continued_by_one(two, tmp_path):
    steps = {int((two / f"process{rank}").read_text()) for rank in (0, 1)}
    assert steps == {16}
    model, ended = train(two / "stopped", Ranks())
    whole, _ = train(tmp_path, Ranks())
    assert ended.finished
    assert len(read_log(two / "stopped" / "demo.jsonl")) == 6  # each line once: one process wrote
    for one, both in zip(model.parameters(), whole.parameters()):
        assert torch.allclose(one, both, rtol=1e-9, atol=1e-12)


def test_each_process_reads_its_share_of_the_files_and_gets_all_photos(two):
    assert (two / "read0").read_text() == "0.png 2.png 4.png"
    assert (two / "read1").read_text() == "1.png 3.png damaged.png"
    alone = data.load_photos(two / "files", side=8, test=1, validation=1)
    assert [Path(name).name for name, _ in alone.skipped] == ["damaged.png"]
    for rank in (0, 1):
        photos = data.load_photos(two / f"photos{rank}.npz")
        assert np.array_equal(photos.images, alone.images)
        assert (photos.parts.tolist(), photos.names) == (alone.parts.tolist(), alone.names)


def test_the_command_gives_the_same_network(two, tmp_path):
    (tmp_path / "photos.npz").write_bytes((two / "photos.npz").read_bytes())
    assert run_command(tmp_path) == 0
    alone, shared = (read_log(folder / "net" / "pretrain.jsonl") for folder in (tmp_path, two))
    assert [record.step for record in shared] == [record.step for record in alone] == [0, 3, 6]
    assert [record.loss for record in shared[1:]] == pytest.approx([record.loss for record in alone[1:]], rel=1e-5)
    assert (two / "net" / "image-pretrain.safetensors").exists()
    assert json.loads((two / "net" / "options.json").read_text())["batch"] == 2


def test_a_deep_network_has_the_same_losses_and_is_continued_by_one_process(two):
    alone, shared = deep_training(Ranks()), deep_training(Ranks())
    alone.run(4)
    shared.load(two / "deep")
    assert float(shared.total) == pytest.approx(float(alone.total), rel=1e-5)
    alone.run(8)
    shared.run(8)
    assert float(shared.total) == pytest.approx(float(alone.total), rel=1e-4)


def test_batches_that_cannot_be_shared_are_refused(monkeypatch):
    with pytest.raises(ArgumentError, match=r"`batch` \(=3\) must be a multiple of the number of processes \(=2\)"):
        Ranks(0, 2).share(3)
    assert [list(Ranks(rank, 2).share(4)) for rank in (0, 1)] == [[0, 2], [1, 3]]
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (local_device("cuda"), local_device("cpu")) == ("cuda:1", "cpu")
