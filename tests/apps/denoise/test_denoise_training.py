"""Photos, their split, the two-stage training and the evaluation, on pictures small enough for seconds."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import glocal
from glocal.apps.denoise.comparison import compare, table, trained
from glocal.apps.denoise.data import Photos, corner_crops, load_photos, split_parts, with_crops
from glocal.apps.denoise.evaluation import noisy_pictures, score
from glocal.apps.denoise.options import RECIPES, EvalOptions, TrainOptions
from glocal.apps.denoise.training import train, weights_file
from glocal.errors import ArgumentError, InputError
from glocal.training.scores import psnr


def small_photos(count=14, side=16):
    """Shaded squares and stripes; enough structure for a validation curve to rise."""
    y, x = np.mgrid[:side, :side]
    rng = np.random.default_rng(0)
    images = [
        127 + 60 * np.sin((x * rng.uniform(0.1, 0.5) + y * rng.uniform(0.1, 0.5)) + k) + 40 * ((x > 4 + k % 8) - 0.5)
        for k in range(count)
    ]
    parts = np.array(["train"] * (count - 4) + ["validation"] * 2 + ["test"] * 2)
    return Photos(np.clip(images, 0, 255).astype(np.uint8), parts, tuple(map(str, range(count))))


def stopped_after(steps):
    return lambda progress: progress.step >= steps


def test_training_improves_validation_and_nonlocal_starts_from_the_pretrained_layers(tmp_path):
    photos = small_photos()
    net = train(photos, TrainOptions("nonlocal", epochs=8, every=20, device="cpu"), tmp_path)
    log = [json.loads(line) for line in (tmp_path / "pretrain.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [0, 20, 40, 60, 80]
    assert log[-1]["validation"] > log[0]["validation"] + 0.5
    second = json.loads((tmp_path / "nonlocal.jsonl").read_text().splitlines()[0])
    assert second["validation"] > log[0]["validation"]
    assert float(net.rule.beta.detach()) != pytest.approx(2 * 0.07**2)
    assert bool((net.threshold.upper >= 0).all())
    assert bool((net.threshold.lower <= 0).all())


def test_stopped_training_ends_like_an_uninterrupted_one(tmp_path):
    photos, options = small_photos(), TrainOptions("nonlocal", epochs=2, every=7, device="cpu")
    whole = train(photos, options, tmp_path / "whole")
    import glocal.training.loop as loop

    with pytest.MonkeyPatch.context() as patch:  # progress is told at every step, so that it can stop anywhere
        ticks = iter(range(10**6))
        patch.setattr(loop.time, "perf_counter", lambda: float(next(ticks)))
        assert train(photos, options, tmp_path / "parts", progress=stopped_after(11)) is None
        assert train(photos, options, tmp_path / "parts", progress=stopped_after(13)) is None
    again = train(photos, options, tmp_path / "parts")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_seeds_differ_and_recipes_have_the_papers_numbers():
    assert {name: (RECIPES[name].epochs, RECIPES[name].rate) for name in ("pretrain", "nonlocal", "local")} == {
        "pretrain": (1, 1e-3),
        "nonlocal": (2, 1e-4),
        "local": (10, 1e-4),
    }
    a, b = (noisy_pictures(small_photos().part("test"), sigma=0.1, seed=s, stream="x", device="cpu") for s in (0, 1))
    assert not torch.equal(a[0].noisy, b[0].noisy)
    assert float((a[0].noisy - a[0].truth).std()) == pytest.approx(0.1, rel=0.15)


def test_folder_holds_one_training(tmp_path):
    train(small_photos(), TrainOptions("pretrain", epochs=1, device="cpu"), tmp_path)
    with pytest.raises(ArgumentError, match=r"has a training with .*, not .*'seed': 5.* Use another folder"):
        train(small_photos(), TrainOptions("pretrain", epochs=1, seed=5, device="cpu"), tmp_path)


def test_training_without_photos_is_named(tmp_path):
    only = Photos(np.zeros((2, 16, 16), np.uint8), np.array(["test", "test"]), ("a", "b"))
    with pytest.raises(InputError, match="0 training and 0 validation photos; both are needed"):
        train(only, TrainOptions(device="cpu"), tmp_path)


@pytest.fixture
def folder(tmp_path):
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    rng = np.random.default_rng(1)
    for k in range(6):
        pixels = rng.integers(0, 255, (40 + k, 60, 3), np.uint8)
        Image.fromarray(pixels).save(photos / ("more" if k % 2 else ".") / f"{k}.png")
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff not a photo")
    (photos / "notes.txt").write_text("not a photo")
    return photos


def test_folder_is_read_split_and_unreadable_files_are_listed(folder):
    photos = load_photos(folder, side=16, test=2, validation=1)
    assert photos.images.shape == (6, 16, 16)
    assert photos.counts() == {"train": 3, "validation": 1, "test": 2}
    assert [name.rsplit("/", 1)[-1] for name, _ in photos.skipped] == ["broken.jpg"]
    again = load_photos(folder, side=16, test=2, validation=1)
    assert np.array_equal(photos.parts, again.parts)
    assert not np.array_equal(photos.parts, load_photos(folder, side=16, test=2, validation=1, seed=1).parts)


def test_gray_is_the_luma_of_the_centre_square(tmp_path):
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = (200, 100, 50)  # the centre square; the rest must not be seen
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = load_photos(_list(tmp_path, {"a.png": "test"})).images[0]
    assert image.shape == (128, 128)
    assert set(np.unique(image[8:-8, 8:-8])) == {round(0.299 * 200 + 0.587 * 100 + 0.114 * 50)}


def _list(folder, rows):
    path = folder / "list.csv"
    path.write_text("file,split\n" + "".join(f"{name},{part}\n" for name, part in rows.items()))
    return path


def test_list_names_the_parts(folder):
    path = _list(folder, {"0.png": "train", "more/1.png": "val", "2.png": "test", "more/3.png": "unused"})
    assert load_photos(path, side=8).parts.tolist() == ["train", "validation", "test", ""]


def test_prepared_photos_come_back(folder, tmp_path):
    photos = load_photos(folder, side=16, test=2, validation=1)
    photos.save(tmp_path / "p.npz")
    back = load_photos(tmp_path / "p.npz")
    assert np.array_equal(back.images, photos.images)
    assert back.counts() == photos.counts()


def test_crops_are_the_four_corners_at_full_size(tmp_path):
    (tmp_path / "c").mkdir()
    pixels = np.arange(30 * 40, dtype=np.uint32).reshape(30, 40) % 251
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "c" / "a.png")
    crops = corner_crops(tmp_path / "c", side=16)
    assert np.array_equal(crops[0], pixels[:16, :16])
    assert np.array_equal(crops[3], pixels[-16:, -16:])
    both = with_crops(small_photos(), [crops])
    assert both.counts()["train"] == small_photos().counts()["train"] + 4
    with pytest.raises(InputError, match="is smaller than 64 x 64"):
        corner_crops(tmp_path / "c", side=64)
    with pytest.raises(ArgumentError, match="differ in size"):
        with_crops(small_photos(side=8), [crops])


def test_messages_about_data(tmp_path, folder):
    with pytest.raises(InputError, match=r"is not a folder, a .csv list or a prepared .npz"):
        load_photos(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no photo. Give a folder of JPEG"):
        load_photos(tmp_path / "empty")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"no photo that can be read \(1 file\(s\) skipped\)"):
        load_photos(tmp_path / "bad")
    with pytest.raises(InputError, match=r"`validation` \(=15\) must be positive and leave photos .* there are 6"):
        load_photos(folder, test=2, validation=15)
    with pytest.raises(InputError, match="must be positive"):
        split_parts(10, test=0, validation=1, seed=0)
    (tmp_path / "x.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="is not a file of prepared photos"):
        load_photos(tmp_path / "x.npz")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="has no columns `file` and `split`"):
        load_photos(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("split,file\ntrain,a.png\ntest\n")
    with pytest.raises(InputError, match=r"row 2 of .*x.csv' lacks its file or its split. Complete the row"):
        load_photos(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text(f"split,file\ntrain,{'a' * 300}\n")
    with pytest.raises(InputError, match="names a file that cannot be used: File name too long"):
        load_photos(tmp_path / "x.csv")


def test_comparison_of_two_seeds_lists_every_method(tmp_path):
    photos = small_photos()
    for seed in (0, 1):
        for recipe in ("local", "local-middle", "nonlocal"):
            train(photos, TrainOptions(recipe, epochs=3, seed=seed, device="cpu"), tmp_path / str(seed))
    found = compare(photos, EvalOptions(runs=(str(tmp_path / "0"), str(tmp_path / "1"))))
    assert list(found.scores) == ["noisy", "Haar, orthonormal", "Haar, stationary", "local", "local-middle", "nonlocal"]
    assert found.scores["noisy"].mean == pytest.approx(-20 * np.log10(0.07), abs=0.6)
    assert all(len(row.by_seed) == 2 for row in found.scores.values())
    text = table(found)
    assert "local-middle" in text
    assert f"{found.scores['nonlocal'].mean:.2f}" in text
    with pytest.raises(InputError, match="has no finished training"):
        trained(tmp_path, 0.07)
    with pytest.raises(InputError, match="0 test photos"):
        compare(Photos(photos.images[:2], np.array(["train", "validation"]), ("a", "b")), EvalOptions())
    with pytest.raises(ArgumentError, match=r"eval: `sigma` \(=0\) must be above 0"):
        EvalOptions(sigma=0)


def test_eval_and_denoise_read_the_file_that_a_training_leaves(tmp_path):
    photos = small_photos()
    net = train(photos, TrainOptions("local", epochs=1, device="cpu"), tmp_path)
    path = weights_file(tmp_path, "local")
    assert sorted(p.name for p in tmp_path.glob("image-*")) == ["image-local.safetensors", "image-pretrain.safetensors"]
    noisy = noisy_pictures(photos.part("test"), sigma=0.07, seed=0, stream="test", device="cpu")
    direct = score(net, noisy)
    assert score(trained(tmp_path, 0.07)["local"], noisy) == direct
    cleaned = glocal.denoise(noisy[0].noisy.numpy(), 0.07, model=str(path)).image
    assert psnr(cleaned, noisy[0].truth) > psnr(noisy[0].noisy, noisy[0].truth) + 2


def test_a_finished_training_without_its_file_writes_it_again_without_training(tmp_path):
    """As in a folder of version 0.1, which had the weights under another name."""
    options = TrainOptions("local", epochs=1, device="cpu")
    before = train(small_photos(), options, tmp_path)
    for path in tmp_path.glob("image-*"):
        path.unlink()
    logs = {path: path.read_text() for path in tmp_path.glob("*.jsonl")}
    after = train(small_photos(), options, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert weights_file(tmp_path, "local").exists()
    assert {path: path.read_text() for path in tmp_path.glob("*.jsonl")} == logs
