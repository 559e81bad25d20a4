"""The deep denoiser: its laws, its reach, and a training that can be stopped anywhere."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from glocal.apps.denoise.crops import Crops, PackedPhotos, reduced
from glocal.apps.denoise.deep import SHAPES, DeepDenoiser, DeepShape
from glocal.apps.denoise.deep_training import Plan, Training
from glocal.errors import ArgumentError, InputError, OutputError
from glocal.optim.muon import FlatMuon, orthogonalize

TINY = DeepShape(
    widths=(2, 4, 4), blocks=(1, 1, 1, 1), graph_blocks=2, redraw=1, radius=2, neighbors=3, exclude=1, embedding=4
)


def net(shape: DeepShape = TINY, seed: int = 0) -> DeepDenoiser:
    torch.manual_seed(seed)
    return DeepDenoiser(shape)


@pytest.mark.parametrize(("name", "most"), [("small", 1_100_000), ("large", 7_000_000)])
def test_parameters(name: str, most: int) -> None:
    assert 0.9 * most < sum(p.numel() for p in DeepDenoiser(SHAPES[name]).parameters()) < most


def test_homogeneous_in_picture_and_noise_together() -> None:
    model, noisy, sigma = net(), torch.rand(2, 1, 16, 20), torch.tensor([0.1, 0.2])
    torch.testing.assert_close(model(4 * noisy, 4 * sigma), 4 * model(noisy, sigma))


def test_a_batch_equals_its_pictures() -> None:
    model, noisy, sigma = net(), torch.rand(3, 1, 16, 12), torch.tensor([0.1, 0.2, 0.3])
    single = torch.cat([model(noisy[i : i + 1], sigma[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(model(noisy, sigma), single)


def test_nothing_beyond_the_halo_matters() -> None:
    model, halo = net().double(), TINY.halo
    noisy = torch.rand(1, 1, halo + 48, 16, dtype=torch.float64)
    other = noisy.clone()
    other[:, :, halo + 4 :] = torch.rand(1, 1, 44, 16)
    sigma = torch.tensor([0.1], dtype=torch.float64)
    with torch.no_grad():
        first, second = model(noisy, sigma), model(other, sigma)
    assert torch.equal(first[:, :, :4], second[:, :, :4])
    assert not torch.equal(first, second)


def test_the_first_layer_sees_the_picture_unrounded() -> None:
    short, noisy, sigma = net().to(torch.bfloat16), torch.rand(1, 1, 16, 16), torch.tensor([0.1])
    same = deepcopy(short).in_bfloat16()  # the same parameters, the first of them in float32
    assert torch.equal(short(noisy, sigma), same(noisy, sigma))
    assert not torch.equal(short(noisy, sigma), short(noisy.to(torch.bfloat16).float(), sigma))


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"must be \(b, 1, h, w\) with h and w multiples of 4"):
        net()(torch.rand(1, 1, 15, 16), torch.tensor([0.1]))
    with pytest.raises(ArgumentError, match=r"`channels` \(=2\) must be 1 \(gray\) or 3"):
        DeepShape(channels=2)


def crops(channels: int = 1) -> Crops:
    rng = np.random.default_rng(0)
    pictures = [("a", rng.integers(0, 256, (24, 30, channels), np.uint8)) for _ in range(3)]
    return Crops(pictures, side=16, shares={"a": 1.0}, device="cpu")


PLAN = Plan(steps=6, decay=3, warm=2, batch=2, side=16)


def test_two_and_two_steps_equal_four(tmp_path: Path) -> None:
    whole = Training(TINY, crops(), PLAN, seed=3)
    assert whole.run(4)
    part = Training(TINY, crops(), PLAN, seed=3)
    part.run(2)
    part.save(tmp_path)
    again = Training(TINY, crops(), PLAN, seed=3)
    torch.rand(5)  # the global generator has no say
    again.load(tmp_path)
    again.run(4)
    for name, value in whole.optimizer.state().items():
        assert torch.equal(value, again.optimizer.state()[name]), name
    assert torch.equal(whole.total, again.total)
    assert torch.equal(whole.generator.get_state(), again.generator.get_state())
    assert [part["steps"] for part in again.history] == [[0, 2], [2, 4]]


def test_large_states_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glocal.apps.denoise.deep_training._PIECE", 700)
    training = Training(TINY, crops(), PLAN)
    training.run(1)
    training.save(tmp_path)
    assert len(list(tmp_path.glob("state-*.npz"))) > 3
    again = Training(TINY, crops(), PLAN)
    again.load(tmp_path)
    assert torch.equal(again.optimizer.mean, training.optimizer.mean)
    again.run(2)
    monkeypatch.setattr("glocal.apps.denoise.deep_training.json.dumps", _full_disk)
    with pytest.raises(OutputError, match="the disk is full"):
        again.save(tmp_path)
    older = Training(TINY, crops(), PLAN)
    older.load(tmp_path)  # a state that was not written to its end does not count
    assert older.done == 1
    assert torch.equal(older.optimizer.mean, training.optimizer.mean)


def test_the_average_is_not_rounded_to_the_numbers_of_the_network() -> None:
    training = Training(TINY, crops(), PLAN, dtype=torch.bfloat16)
    training.run(2)
    found = training.averaged()
    assert {name: p.shape for name, p in net().named_parameters()} == {name: t.shape for name, t in found.items()}
    order = [
        found[name].permute(0, 2, 3, 1) if found[name].ndim == 4 else found[name] for name in training.optimizer.names
    ]
    assert torch.equal(torch.cat([t.flatten() for t in order]), training.optimizer.mean)


def _full_disk(*given: object, **more: object) -> str:
    raise OSError("the disk is full")


def test_states_of_earlier_trainings_are_read(tmp_path: Path) -> None:
    training = Training(TINY, crops(), PLAN)
    training.run(1)
    training.save(tmp_path)
    (tmp_path / "state-1-0.npz").rename(tmp_path / "state-0.npz")
    about = json.loads((tmp_path / "training.json").read_text())
    about.pop("files")
    (tmp_path / "training.json").write_text(json.dumps(about))
    again = Training(TINY, crops(), PLAN)
    again.load(tmp_path)
    assert torch.equal(again.optimizer.mean, training.optimizer.mean)


def test_a_state_of_another_network_is_refused(tmp_path: Path) -> None:
    Training(TINY, crops(), PLAN).save(tmp_path)
    with pytest.raises(InputError, match="does not hold a state of this training"):
        Training(replace(TINY, neighbors=4), crops(), PLAN).load(tmp_path)
    with pytest.raises(ArgumentError, match=r"`until` \(=9\) lies beyond the plan's 6 steps"):
        Training(TINY, crops(), PLAN).run(9)


def test_training_lowers_the_error() -> None:
    smooth = np.linspace(0, 255, 32).astype(np.uint8)[:, None, None].repeat(32, 1)
    flat = Crops([("a", smooth)], side=16, shares={"a": 1.0}, device="cpu")
    training = Training(TINY, flat, Plan(steps=30, decay=10, warm=3, batch=4, side=16, rate=1e-2))
    before = training.validate([smooth])
    training.run(30)
    after = training.validate([smooth])
    assert all(b + 1 < a for b, a in zip(before, after, strict=True))
    assert training.averaged().keys() == dict(DeepDenoiser(TINY).named_parameters()).keys()


def test_crops_are_pieces_of_the_photos() -> None:
    rng = np.random.default_rng(1)
    picture = rng.integers(0, 256, (20, 24, 3), np.uint8)
    source = Crops([("a", picture)], side=16, shares={"a": 1.0}, device="cpu")
    draws = torch.tensor([[0.0, 0.5, 0.5, 0.9, 0.9, 0.9, 0.0], [0.0, 0.5, 0.5, 0.1, 0.9, 0.1, 0.0]])
    found = (source.batch(draws) * 255).round().permute(0, 2, 3, 1).numpy()
    piece = picture[2:18, 4:20]
    assert np.array_equal(found[0], piece)
    assert np.array_equal(found[1], piece.transpose(1, 0, 2)[::-1])
    with pytest.raises(InputError, match="no picture is at least 99 pixels"):
        Crops([("a", picture)], side=99, shares={"a": 1.0}, device="cpu")


def test_reduced_keeps_constants() -> None:
    assert (reduced(np.full((20, 30, 1), 77, np.uint8), 0.5) == 77).all()


def test_packed_photos_that_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "p.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="is not a file of packed photos"):
        PackedPhotos.load(tmp_path / "p.npz")


def test_orthogonalize_gives_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((2, 5, 9), (2, 9, 5)):
        values = torch.linalg.svdvals(orthogonalize(torch.randn(*shape)))
        assert values.min() > 0.5
        assert values.max() < 1.4


def test_the_decay_shrinks_matrices_and_nothing_else() -> None:
    layer = torch.nn.Linear(3, 2)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    FlatMuon(layer, decay=0.0, matrix_decay=0.5).step(0 * layer(torch.ones(1, 3)).sum(), torch.tensor(0.1))
    torch.testing.assert_close((layer.weight.data, layer.bias.data), (0.95 * weight, bias))
    plan = replace(PLAN, matrix_decay=0.5)
    assert Training(TINY, crops(), plan).optimizer.matrix_decay == 0.5


def test_flat_muon_solves_a_regression_and_ignores_nan() -> None:
    torch.manual_seed(0)
    layer, wanted = torch.nn.Linear(6, 4), torch.randn(4, 6)
    optimizer = FlatMuon(layer, average=0.9)
    x = torch.randn(64, 6)
    losses = []
    for step in range(200):
        loss = (layer(x) - x @ wanted.T).square().mean()
        losses.append(float(loss.detach()))
        optimizer.step(loss, torch.tensor(0.3 * (1 - step / 200)))
    assert losses[-1] < 1e-3 * losses[0]
    optimizer.step(layer(x).sum() * float("nan"), torch.tensor(0.1))
    assert all(torch.isfinite(p).all() for p in layer.parameters())
