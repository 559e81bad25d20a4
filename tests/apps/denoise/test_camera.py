"""Camera noise: JPEG and the synthetic camera, the estimate of the noise, and what is taken away of it."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import glocal
import glocal.apps.denoise.image
from glocal.apps.denoise.camera import Camera, shoot
from glocal.apps.denoise.camera_pairs import CameraPairs
from glocal.apps.denoise.choice import Noise, choose, measure
from glocal.apps.denoise.crops import Crops, PackedPhotos
from glocal.apps.denoise.deep import SHAPES, DeepShape
from glocal.apps.denoise.deep_recipe import train_deep
from glocal.apps.denoise.deep_training import Plan, Training
from glocal.apps.denoise.jpeg import through_jpeg
from glocal.apps.denoise.models import load_deep
from glocal.apps.denoise.options import DeepTrainOptions
from glocal.apps.denoise.parts import removed_parts
from glocal.apps.denoise.profile import noise_maps, noise_profile
from glocal.color_space import lab_from_rgb, luma
from glocal.errors import ArgumentError
from glocal.files.model_files import write_model


def photo(h: int = 160, w: int = 160) -> np.ndarray:
    """Shading and edges in three colours, (h, w, 3) in [0.15, 0.85]."""
    y, x = np.mgrid[:h, :w]
    planes = [0.5 + 0.2 * np.sin(x / 31 + c) * np.cos(y / 37) + 0.15 * ((x // 50 + y // 40) % 2) for c in range(3)]
    return np.stack(planes, -1).astype(np.float32)


def tensor(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous()


@pytest.fixture(scope="module")
def shot() -> tuple[np.ndarray, np.ndarray]:
    """A noisy photo of a synthetic camera, and its clean twin."""
    generator = torch.Generator().manual_seed(3)
    camera = Camera.draw(1, generator)
    settings = {**vars(camera), "gain": torch.tensor([0.003]), "read": torch.tensor([0.004])}
    settings |= {"quality": torch.tensor([92.0]), "chroma": torch.tensor([1.2]), "halved": torch.tensor([True])}
    noisy, clean = shoot(tensor(photo()), Camera(**settings), generator)
    return noisy[0].permute(1, 2, 0).numpy(), clean[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize(("quality", "halved"), [(60, True), (85, False), (96, True)])
def test_jpeg_equals_pillow_up_to_rounding(quality: int, halved: bool) -> None:
    rng = np.random.default_rng(0)
    pixels = (255 * photo(64, 64) + rng.normal(0, 6, (64, 64, 3))).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=quality, subsampling=2 if halved else 0)
    expected = np.asarray(Image.open(file)).astype(float)
    given = tensor(pixels.astype(np.float32) / 255)
    found = (
        255 * through_jpeg(given, torch.tensor([float(quality)]), torch.tensor([halved]))[0].permute(1, 2, 0).numpy()
    )
    assert np.abs(found - expected).mean() < 0.2 * np.abs(expected - pixels).mean() < 2


def test_a_camera_without_noise_gives_the_clean_twin() -> None:
    generator = torch.Generator().manual_seed(0)
    camera = Camera.draw(3, generator)
    quiet = Camera(
        **{**vars(camera), "gain": torch.zeros(3), "read": torch.zeros(3), "quality": torch.full((3,), 100.0)}
    )
    given = tensor(photo(64, 64)).expand(3, -1, -1, -1)
    noisy, clean = shoot(given, quiet, generator)
    assert (noisy - clean).abs().mean() < 0.01  # JPEG alone
    assert (clean - given).abs().mean() < 0.03  # the tone curve is undone and applied again


def test_the_noise_of_a_camera_is_coarse_and_grows_with_the_gain() -> None:
    levels = []
    for gain in (0.001, 0.004):
        generator = torch.Generator().manual_seed(1)
        camera = Camera.draw(1, generator)
        settings = {**vars(camera), "gain": torch.tensor([gain]), "chroma": torch.tensor([1.5])}
        noisy, clean = shoot(torch.full((1, 3, 64, 64), 0.5), Camera(**settings), generator)
        noise = noisy - clean
        colors = noise[:, 0] - noise[:, 2]
        near = (colors[:, :, 1:] * colors[:, :, :-1]).mean() / colors.square().mean()
        assert near > 0.4  # neighbouring pixels are alike
        levels.append(float(noise.std()))
    assert 1.5 < levels[1] / levels[0] < 2.5  # the square root of four


def test_demosaicing_keeps_constants_and_slopes() -> None:
    from glocal.apps.denoise.camera import bayer, demosaic_bilinear, demosaic_exact

    ramp = torch.linspace(0, 1, 16).expand(1, 3, 16, 16)
    masks = bayer(ramp)
    mosaic = (ramp * masks).sum(1, keepdim=True)
    for fill in (demosaic_exact, demosaic_bilinear):
        torch.testing.assert_close(fill(mosaic, masks)[:, :, 3:-3, 3:-3], ramp[:, :, 3:-3, 3:-3])


@pytest.mark.parametrize("sigma", [0.02, 0.08])
def test_white_noise_reads_its_level_at_every_scale(sigma: float) -> None:
    noise = torch.randn(1, 3, 320, 320, generator=torch.Generator().manual_seed(0))
    found = noise_profile(tensor(photo(320, 320)) + sigma * noise)[0]
    torch.testing.assert_close(found[:, :2], torch.full_like(found[:, :2], sigma), rtol=0.12, atol=0)


def test_the_profile_follows_the_brightness() -> None:
    y = torch.linspace(0.05, 0.95, 256).view(1, 1, 256, 1).expand(1, 3, 256, 256)
    noisy = y + 0.1 * y * torch.randn(1, 3, 256, 256, generator=torch.Generator().manual_seed(0))
    profile = noise_profile(noisy)
    assert profile[0, 0, 0, 6] > 2.5 * profile[0, 0, 0, 1]
    maps = noise_maps(noisy, profile)[0, 0]
    torch.testing.assert_close(maps[30:230].mean(1), 0.1 * y[0, 0, 30:230, 0], rtol=0.35, atol=0.002)


def test_large_pictures_are_read_on_strips_and_tiny_ones_reflected(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = np.random.default_rng(0).normal(0.5, 0.05, (400, 300, 3)).astype(np.float32)
    whole = measure(noisy).profile
    monkeypatch.setattr("glocal.apps.denoise.choice._PIXELS", 60_000)
    torch.testing.assert_close(measure(noisy).profile[:, :, :2], whole[:, :, :2], rtol=0.1, atol=0)
    assert measure(noisy[:9, :8]).profile.shape == (1, 2, 3, 8)


def test_camera_noise_and_white_noise_are_told_apart(shot: tuple[np.ndarray, np.ndarray]) -> None:
    assert measure(shot[0]).camera
    assert measure(shot[0][:, :, 1:2]).camera
    for sigma in (0.02, 0.1):
        noisy = photo() + np.random.default_rng(0).normal(0, sigma, (160, 160, 3)).astype(np.float32)
        found = measure(noisy)
        assert not found.camera
        assert found.sigma == pytest.approx(sigma, rel=0.15)


def test_white_noise_networks_get_a_level_that_suits_coarse_noise(shot: tuple[np.ndarray, np.ndarray]) -> None:
    noisy, clean = shot
    result = glocal.denoise(noisy, model="small")
    assert result.camera
    assert gain(result.image, noisy, clean) > 2


def gain(result: np.ndarray, noisy: np.ndarray, clean: np.ndarray) -> float:
    before, after = (np.mean((x - clean) ** 2) for x in (noisy, result))
    return float(10 * np.log10(before / after))


@pytest.fixture(scope="module")
def denoised(shot: tuple[np.ndarray, np.ndarray]) -> glocal.apps.denoise.image.Denoised:
    return glocal.denoise(shot[0])


def test_photo_is_chosen_for_camera_noise_and_removes_it(
    shot: tuple[np.ndarray, np.ndarray], denoised: glocal.apps.denoise.image.Denoised
) -> None:
    noisy, clean = shot
    assert denoised.model == "photo"
    assert gain(denoised.image, noisy, clean) > 6
    gray = glocal.denoise(noisy[:, :, 1])
    assert gray.model == "photo"
    assert gain(gray.image, noisy[:, :, 1], clean[:, :, 1]) > 0.5
    assert glocal.denoise(noisy[:32, :32, 1], model="photo").image.shape == (32, 32)


def test_photo_keeps_the_brightness_and_hue_of_every_region(
    shot: tuple[np.ndarray, np.ndarray], denoised: glocal.apps.denoise.image.Denoised
) -> None:
    """The mean colour of 32 x 32 pixels moves by less than what people can just see, 2.3 units of Lab.

    The mean of the noise itself is up to 1.7.
    """

    def means(pixels: np.ndarray) -> torch.Tensor:
        planes = tensor(np.ascontiguousarray(pixels))
        blocks = torch.nn.functional.avg_pool2d(planes, 32)[0].flatten(1).T
        return lab_from_rgb(blocks)

    difference = means(denoised.image) - means(shot[0])
    assert difference.norm(dim=1).max() < 1.8
    assert difference.norm(dim=1).mean() < 0.95
    assert difference.mean(0).abs().max() < 0.4


def test_a_clean_photo_with_texture_stays_nearly_as_it_is() -> None:
    """Its texture reads like strong noise, but flat places have none."""
    rng = np.random.default_rng(3)
    strength = np.where(np.arange(128) < 12, 0.0005, 0.06)[None, :, None]
    clean = (0.5 + strength * rng.normal(size=(128, 128, 1)) + 0.001 * rng.normal(size=(128, 128, 3))).astype(
        np.float32
    )
    found = measure(clean)
    assert found.camera
    assert found.share < 0.2
    rest = glocal.denoise(clean, model="photo").image - clean
    assert float(np.sqrt(np.mean(rest**2))) < 0.01  # of a texture of 0.06


def test_photo_leaves_grain_but_no_coloured_noise(
    shot: tuple[np.ndarray, np.ndarray], denoised: glocal.apps.denoise.image.Denoised
) -> None:
    none, much = (glocal.denoise(shot[0], grain=grain).image for grain in (0.0, 1.0))
    with_grain, fine = luma(denoised.image - none), luma(much - none)
    np.testing.assert_allclose(with_grain, 0.1 * fine, atol=1e-4)
    assert fine.std() > 0.2 * luma(shot[0] - shot[1]).std()
    colors = much - none - fine[:, :, None]
    assert np.abs(colors).max() < 1e-5


def test_bands_of_photo_equal_the_whole_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    noisy = (photo(330, 40) + rng.normal(0, 0.03, (330, 40, 3))).astype(np.float32)
    whole = glocal.denoise(noisy, model="photo", rows=330).image
    for rows in (1, 70):
        assert np.array_equal(glocal.denoise(noisy, model="photo", rows=rows).image, whole), rows


def test_auto_chooses_by_noise_device_and_size(tmp_path) -> None:
    white, camera = Noise.white(0.1), Noise(0.02, camera=True, profile=torch.ones(1, 2, 3, 8))
    assert choose("wide", camera, 100, "cpu", tmp_path) == "wide"
    for name in ("image-small-color", "image-large-color", "image-photo"):
        write_model(name, {"x": np.zeros(2)}, folder=tmp_path, info={})
    assert choose("auto", white, 10**6, "cpu", tmp_path) == "small"
    assert choose("auto", white, 10**6, "cuda", tmp_path) == "large"
    assert choose("auto", white, 10**8, "cuda", tmp_path) == "small"
    assert choose("auto", camera, 10**6, "cpu", tmp_path) == "photo"


def test_parts_of_the_noise() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (70, 90, 3)).astype(np.float32)
    everything = {"luma": 1.0, "chroma": 1.0, "grain": 0.0}
    assert np.array_equal(removed_parts(noise, **everything), noise)
    light = removed_parts(noise, **{**everything, "chroma": 0.0})
    np.testing.assert_allclose(light, luma(noise)[:, :, None].repeat(3, 2), atol=1e-6)
    colors = removed_parts(noise, **{**everything, "luma": 0.0})
    np.testing.assert_allclose(light + colors, noise, atol=1e-6)
    soft = removed_parts(noise, **{**everything, "grain": 1.0})
    assert luma(soft).std() < 0.5 * luma(noise).std()
    np.testing.assert_allclose(soft - luma(soft)[:, :, None], noise - luma(noise)[:, :, None], atol=1e-6)
    gray = removed_parts(noise[:, :, :1], **{**everything, "luma": 0.5})
    np.testing.assert_allclose(gray, noise[:, :, :1] / 2, atol=1e-6)


def test_a_flat_photo_gives_the_noise(shot: tuple[np.ndarray, np.ndarray], tmp_path) -> None:
    flat = 0.5 + np.random.default_rng(0).normal(0, 0.05, (96, 96, 3))
    Image.fromarray((255 * flat).clip(0, 255).astype(np.uint8)).save(tmp_path / "flat.png")
    result = glocal.denoise(shot[0], noise_profile=tmp_path / "flat.png")
    assert result.sigma == pytest.approx(0.05, rel=0.1)
    assert not result.camera


def test_training_on_camera_pairs_starts_from_a_network_of_white_noise() -> None:
    tiny = DeepShape(
        channels=3, widths=(2, 4, 4), blocks=(1, 1, 1, 1), graph_blocks=1, radius=2, neighbors=3, embedding=4, maps=6
    )
    crops = Crops([("a", (255 * photo(60, 60)).astype(np.uint8))], side=48, shares={"a": 1.0}, device="cpu")
    pairs = CameraPairs(crops, 3, seed=1)
    again = CameraPairs(crops, 3, seed=1)
    assert torch.equal(pairs.pixels, again.pixels)
    plan = Plan(steps=3, decay=1, warm=1, batch=2, side=16)
    white = Training(DeepShape(**{**vars(tiny), "maps": 1}), crops_of(crops), plan).averaged()
    training = Training(tiny, pairs, plan, start=white)
    head = dict(training.net.named_parameters())["head.weight"]
    torch.testing.assert_close(head[:, 3:].sum(1), white["head.weight"][:, 3])
    before, after = training.validate_pairs(pairs)
    assert before > 15
    assert np.isfinite(after)
    assert training.run(3)


def crops_of(crops: Crops) -> Crops:
    pixels = crops.pixels.view(60, 60, 3).numpy()
    return Crops([("a", pixels)], side=16, shares={"a": 1.0}, device="cpu")


def test_an_example_of_pairs_is_a_crop_of_them() -> None:
    crops = Crops([("a", (255 * photo(60, 60)).astype(np.uint8))], side=48, shares={"a": 1.0}, device="cpu")
    pairs = CameraPairs(crops, 2, seed=1)
    draws = torch.tensor([[0.6, 0.5, 0.0, 0.9, 0.9, 0.9, 0.0]])
    found = pairs.example(draws, torch.empty(1, 3, 16, 16), 0.0)
    stored = pairs.pixels[1, :, 16:32, :16].float() / 255
    torch.testing.assert_close(found.noisy[0], stored[:3])
    torch.testing.assert_close(found.clean[0], stored[3:])
    assert found.noise.shape == (1, 6, 16, 16)


def test_a_stopped_deep_training_ends_with_the_same_bits(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        pixels = (255 * photo(40, 44)).astype(np.uint8) + np.uint8(number)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    tiny = {"widths": (2, 4, 4), "blocks": (1, 1, 1, 1), "graph_blocks": 1, "radius": 2, "neighbors": 3, "embedding": 4}
    monkeypatch.setitem(SHAPES, "photo", DeepShape(channels=3, maps=6, **tiny))
    packed = PackedPhotos.of_folder(tmp_path, validation=1)
    options = DeepTrainOptions(model="photo", steps=4, batch=2, side=16, pairs=8, every=2)
    whole = train_deep(packed, options, tmp_path / "a")
    assert train_deep(packed, options, tmp_path / "b", progress=lambda progress: progress.step == 2) is None
    again = train_deep(packed, options, tmp_path / "b")
    assert whole is not None
    assert again is not None
    assert whole.read_bytes() == again.read_bytes()
    net = load_deep(str(whole), 3)
    assert net is not None
    assert net.shape.maps == 6
    with pytest.raises(
        ArgumentError, match=r"has a training with .*'steps': 4.*, not .*'steps': 5.* Use another folder"
    ):
        train_deep(packed, replace(options, steps=5), tmp_path / "b")
