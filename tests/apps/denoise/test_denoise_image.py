"""`glocal.denoise`: quality on known noise, bands equal to the whole, kinds of pictures, levels, and every message."""

import numpy as np
import pytest
import torch
from PIL import Image

import glocal
from glocal.apps.denoise import bands
from glocal.apps.denoise.calibration import calibrated
from glocal.apps.denoise.deep import DeepDenoiser, DeepShape
from glocal.apps.denoise.image import residual_picture
from glocal.apps.denoise.models import SHIPPED, levels, load_deep, load_model, save_deep, save_model
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.noise import estimate_sigma
from glocal.apps.denoise.options import DEEP_MODELS, MODELS, Architecture, DenoiseOptions
from glocal.apps.denoise.plan import OPPONENT, plan_for
from glocal.errors import ArgumentError, InputError, ModelError
from glocal.files.model_files import read_index, write_model
from glocal.options import parse_level

SHALLOW = [model for model in MODELS if model not in DEEP_MODELS]


def scene(h=64, w=72, channels=3, seed=0):
    """Smooth shading, edges and stripes, in [0.1, 0.9]."""
    y, x = np.mgrid[:h, :w]
    planes = [
        0.5 + 0.2 * np.sin(x / 9 + c) * np.cos(y / 11) + 0.15 * ((x // 16 + y // 20 + c) % 2) for c in range(channels)
    ]
    return np.clip(np.stack(planes, -1), 0.1, 0.9)


def noisy(clean, sigma, seed=0):
    return clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)


def psnr(a, b):
    return -10 * np.log10(np.mean((np.asarray(a, float) - b) ** 2))


@pytest.mark.parametrize("model", [model for model in MODELS if model != "photo"])
@pytest.mark.parametrize("sigma", [0.03, 0.1, 0.2])
def test_every_model_removes_noise_at_levels_it_was_not_trained_at(model, sigma):
    clean = scene(channels=1)
    y = noisy(clean, sigma)
    gain = psnr(glocal.denoise(y, sigma, model=model).image, clean) - psnr(y, clean)
    assert gain > {"local": 2.5, "nonlocal": 3.0, "wide": 4.0, "small": 6.0, "large": 6.0}[model]


def test_colour_gains_more_than_its_channels_alone():
    clean = scene(channels=1) * [1.0, 0.9, 0.8]  # one hue: most of the picture is in its luminance
    y = noisy(clean, 0.1)
    together = psnr(glocal.denoise(y, 0.1).image, clean)
    alone = psnr(np.stack([glocal.denoise(y[..., c], 0.1).image for c in range(3)], -1), clean)
    assert together > alone + 0.3


@pytest.mark.parametrize("model", SHALLOW)
@pytest.mark.parametrize("shape", [(61, 33, 3), (50, 47, 1)])
def test_bands_equal_the_whole_to_the_bit(model, shape):
    y = noisy(scene(*shape), 0.1).astype(np.float32)
    whole = glocal.denoise(y, 0.1, model=model, search_radius=5, rows=shape[0]).image
    for rows in (11, 40):
        assert np.array_equal(whole, glocal.denoise(y, 0.1, model=model, search_radius=5, rows=rows).image), rows


@pytest.mark.parametrize("shape", [(331, 38, 3), (330, 53, 1)])
def test_bands_of_a_deep_network_equal_the_whole_to_the_bit(shape):
    y = noisy(scene(*shape), 0.1).astype(np.float32)
    whole = glocal.denoise(y, 0.1, model="small", rows=shape[0]).image
    for rows in (1, 70):
        assert np.array_equal(whole, glocal.denoise(y, 0.1, model="small", rows=rows).image), rows


@pytest.mark.parametrize("channels", [1, 3])
def test_bfloat16_changes_next_to_nothing_and_bands_stay_equal(monkeypatch, channels):
    clean = scene(72, 80, channels)
    y, found = noisy(clean, 0.06).astype(np.float32), []
    for fast in (False, True):
        monkeypatch.setattr("glocal.apps.denoise.plan.has_bfloat16", lambda device, fast=fast: fast)
        found.append(glocal.denoise(y, 0.06, model="small").image)
        assert np.array_equal(found[-1], glocal.denoise(y, 0.06, model="small", rows=16).image), fast
    assert not np.array_equal(*found)
    assert psnr(found[1], clean) == pytest.approx(psnr(found[0], clean), abs=0.03)  # one small picture


def test_halo_is_as_small_as_it_may_be():
    """One row less and a band must differ: otherwise the test above would not notice a halo that is too small."""
    y = torch.from_numpy(noisy(scene(48, 40, 1), 0.1).astype(np.float32)).permute(2, 0, 1)
    net = calibrated(load_model("nonlocal", 0.1), low=0.0, high=1.0)

    def found(window):
        return bands.denoise_band(
            lambda part: y[:, *part.slices], (48, 40), bands.Window(*window), [net], search_radius=6
        )

    whole, enough = found((0, 48, 0, 40)), bands.halo
    assert torch.equal(found((16, 24, 15, 22)), whole[:, 16:24, 15:22])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bands, "halo", lambda *a: enough(*a) - 2)
        assert not torch.equal(found((16, 24, 15, 22)), whole[:, 16:24, 15:22])


def test_small_pictures_are_searched_everywhere_and_large_ones_near(monkeypatch):
    seen = []
    real = ImageDenoiser.graphs

    def spy(self, band, **kwargs):
        if band.shape == (44, 44):  # not those of the calibration
            seen.append(kwargs["search_radius"])
        return real(self, band, **kwargs)

    monkeypatch.setattr(ImageDenoiser, "graphs", spy)
    y = noisy(scene(44, 44, 1), 0.1)
    glocal.denoise(y, 0.1, model="wide")
    monkeypatch.setattr("glocal.apps.denoise.plan.WHOLE", 44 * 44 - 1)
    glocal.denoise(y, 0.1, model="wide")
    assert seen == [None, 10]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_result_has_the_type_and_shape_of_the_input_and_alpha_stays(dtype):
    top = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1
    clean = scene(32, 40)
    y = np.clip(noisy(clean, 0.08), 0, 1) * top
    alpha = np.linspace(0, top, 32 * 40).reshape(32, 40, 1)
    given = np.concatenate([y, alpha], -1).astype(dtype)
    found = glocal.denoise(given, 0.08).image
    assert found.dtype == dtype
    assert found.shape == (32, 40, 4)
    assert np.array_equal(found[..., 3], given[..., 3])
    assert psnr(found[..., :3] / top, clean) > psnr(given[..., :3] / top, clean) + 4


def test_pil_in_pil_out_and_paths(tmp_path):
    pixels = (255 * np.clip(noisy(scene(24, 30), 0.1), 0, 1)).astype(np.uint8)
    found = glocal.denoise(Image.fromarray(pixels), 0.1).image
    assert isinstance(found, Image.Image)
    assert found.size == (30, 24)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(found), glocal.denoise(tmp_path / "a.png", 0.1).image)


def test_float_values_outside_the_unit_interval_are_not_clipped():
    y = noisy(scene(24, 24, 1), 0.05) + 3
    found = glocal.denoise(y, 0.05).image
    assert found.min() > 2
    assert psnr(found - 3, scene(24, 24, 1)) > psnr(y - 3, scene(24, 24, 1))


@pytest.mark.parametrize("sigma", [0.004, 0.02, 0.15])
def test_brightness_stays_at_every_level_and_sign(sigma):
    """Flat areas keep their value to a thousandth, far beyond what the networks were trained on."""
    for colour in ([0.05, 0.5, 0.95], [0.9, 0.9, 0.9], [0.8, 0.2, 0.1]):
        flat = np.broadcast_to(np.array(colour), (48, 48, 3))
        y = noisy(flat, sigma)
        assert np.abs(glocal.denoise(y, sigma).image.mean((0, 1)) - y.mean((0, 1))).max() < 0.001 + 0.03 * sigma


def test_a_few_very_dark_values_do_not_change_the_treatment_of_the_others():
    """Strong noise brings some values of a dark picture far below 0; that does not make it a picture with signs."""
    y = noisy(scene(72, 72, 1) - 0.1, 0.2, seed=2)
    lowest = y.copy()
    lowest[0, 0] = -0.8
    assert y.min() > -0.6 > lowest.min()  # on both sides of -3 sigma
    far = np.abs(glocal.denoise(lowest, 0.2).image - glocal.denoise(y, 0.2).image)[24:, 24:]
    assert far.max() < 0.02


def test_pictures_with_signs_keep_their_negative_half():
    clean = scene(48, 48, 1) - 0.5
    y = noisy(clean, 0.05)
    assert psnr(glocal.denoise(y, 0.05).image, clean) > psnr(y, clean) + 3


def test_calibration_takes_away_a_known_bias():
    net = ImageDenoiser(Architecture("none", maps=1), sigma=0.1)  # a blur
    with torch.no_grad():
        net.synthesis.filters.mul_(1.05)
    y = torch.full((12, 12), 0.7)
    found = calibrated(net, low=0.0, high=1.0)(y.reshape(1, -1, 1), net.graphs(y))
    torch.testing.assert_close(found[0, :, 0], y.reshape(-1), rtol=0.005, atol=0)


def test_opponent_transform_is_orthonormal_with_luminance_first():
    torch.testing.assert_close(OPPONENT @ OPPONENT.T, torch.eye(3, dtype=torch.float64))
    gray = OPPONENT @ torch.ones(3, dtype=torch.float64)
    torch.testing.assert_close(gray, torch.tensor([3**0.5, 0, 0], dtype=torch.float64))


def test_strength_blends_and_zero_changes_nothing():
    y = noisy(scene(32, 32), 0.1).astype(np.float32)
    full, half, none = (glocal.denoise(y, 0.1, strength=s).image for s in (1.0, 0.5, 0.0))
    np.testing.assert_allclose(half, (full + y) / 2, atol=1e-5)
    np.testing.assert_allclose(none, y, atol=1e-6)


def test_progress_rises_to_one():
    seen = []
    glocal.denoise(noisy(scene(60, 40, 1), 0.1), 0.1, model="wide", search_radius=5, rows=16, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) >= 8


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.1, 0.2])
def test_estimated_noise_is_within_a_tenth_on_a_scene_with_edges(sigma):
    found = [estimate_sigma(noisy(scene(128, 128, 1), sigma, seed)[..., 0]) for seed in range(5)]
    assert np.mean(found) == pytest.approx(sigma, rel=0.1)


def test_auto_sigma_is_reported_and_used():
    y = noisy(scene(96, 96), 0.1)
    result = glocal.denoise(y)
    assert result.estimated
    assert result.sigma == pytest.approx(0.1, rel=0.1)
    given = glocal.denoise(y, result.sigma)
    assert not given.estimated
    assert np.array_equal(given.image, result.image)


def test_large_planes_are_estimated_on_a_part_of_their_rows():
    plane = np.random.default_rng(0).normal(0.5, 0.1, (3000, 3000)).astype(np.float32)
    assert estimate_sigma(plane) == pytest.approx(0.1, rel=0.01)


def test_flat_pictures_have_no_noise_and_come_back():
    flat = np.full((20, 20, 3), 77, np.uint8)
    result = glocal.denoise(flat)
    assert result.sigma == 0
    assert np.array_equal(result.image, flat)


def test_residual_shows_what_was_removed():
    y = noisy(scene(32, 32), 0.1).astype(np.float32)
    shown = residual_picture(glocal.denoise(y, 0.1)).pixels
    assert shown.dtype == np.uint8
    assert abs(float(shown.mean()) - 127.5) < 5
    assert 15 < float(shown.std()) < 50  # sigma is an eighth of the range
    nothing = glocal.denoise(y, 0.1, strength=0)
    assert set(residual_picture(nothing).pixels.ravel()) == {128}


def test_shipped_models_load_and_the_nearest_level_is_taken():
    for model in SHALLOW:
        found = levels(model)
        assert found
        for sigma in found.values():
            assert load_model(model, sigma).sigma == pytest.approx(sigma)
    near, far = load_model("wide", 14 / 255), load_model("wide", 60 / 255)
    assert not torch.equal(near.analysis.filters, far.analysis.filters)


@pytest.mark.parametrize(("model", "parameters", "size"), [("small", 1.1e6, 3e6), ("large", 7e6, 15e6)])
def test_deep_models_ship_for_gray_and_colour_and_stay_small(model, parameters, size):
    for channels in (1, 3):
        net = load_deep(model, channels)
        assert net.shape.channels == channels
        assert sum(p.numel() for p in net.parameters()) < parameters
    files = list(SHIPPED.glob(f"image-{model}-*.safetensors"))
    assert len(files) == 2
    assert all(path.stat().st_size < size for path in files)
    assert load_deep("wide", 1) is None


@pytest.mark.parametrize("size", [(8, 8), (9, 30), (64, 8)])
def test_deep_models_take_every_size(size):
    y = noisy(scene(*size, 1), 0.1)
    result = glocal.denoise(y, 0.1, model="small").image
    assert result.shape[:2] == size
    assert np.isfinite(result).all()


def test_deep_models_keep_the_mean_of_every_region():
    clean = np.full((64, 96, 3), 0.1)
    clean[:, 32:64], clean[:, 64:] = (0.7, 0.5, 0.4), 0.9
    found = glocal.denoise(noisy(clean, 0.1).astype(np.float32), 0.1, model="small").image
    for left in (0, 32, 64):
        region = found[16:48, left + 8 : left + 24].mean((0, 1))
        np.testing.assert_allclose(region, clean[0, left + 8], atol=0.02)  # 512 pixels of noise: standard error 0.0044


def test_a_deep_model_of_your_own_by_path(tmp_path):
    shape = DeepShape(widths=(2, 4, 4), blocks=(1, 1, 1, 1), graph_blocks=1, radius=3, neighbors=3, embedding=4)
    path = save_deep(DeepDenoiser(shape), "mine", tmp_path, info={"model": "mine"})
    assert glocal.denoise(np.full((20, 20), 0.5), 0.1, model=str(path)).image.shape[:2] == (20, 20)
    with pytest.raises(ArgumentError, match="is for gray pictures, and this one is colour"):
        glocal.denoise(np.full((20, 20, 3), 0.5), 0.1, model=str(path))
    write_model("image-small-gray", {"x": np.zeros(2)}, folder=tmp_path, info={"shape": {}})
    with pytest.raises(ModelError, match="does not hold a deep denoiser"):
        load_deep("small", 1, folder=tmp_path)


def test_a_search_radius_has_no_meaning_for_deep_models():
    result = glocal.denoise(noisy(scene(20, 20), 0.1), 0.1, model="small", search_radius=5)
    assert result.notes[-1] == "the model small has a window of its own: search_radius was not used"


@pytest.mark.parametrize("channels", [1, 3])
def test_any_part_of_a_deep_network_equals_the_whole_to_the_bit(channels):
    net, planes = load_deep("small", channels), torch.rand(channels, 38, 402)
    whole = bands.denoise_deep(planes, net, 0.1)
    parts = [*bands.tiles(38, 402, net.shape, pixels=10_000), bands.Window(3, 9, 0, 5), bands.Window(20, 38, 390, 402)]
    assert len(parts) > 7
    for part in parts:
        found = bands.denoise_tile(lambda place: planes[:, *place.slices], (38, 402), part, net, 0.1)
        assert torch.equal(found, whole[:, *part.slices]), part


def test_own_models_are_used_by_path(tmp_path):
    net = ImageDenoiser(Architecture("none", maps=2), sigma=0.05, seed=3)
    path = save_model(net, "mine", tmp_path, info={"model": "mine"})
    y = noisy(scene(20, 20, 1), 0.1).astype(np.float32)
    found = glocal.denoise(y, 0.1, model=str(path)).image
    own, signal = net.at_sigma(0.1), torch.from_numpy(y[..., 0])
    level = calibrated(own, low=float(signal.min()), high=float(signal.max()))
    expected = level(signal.reshape(1, -1, 1), own.graphs(signal)).detach().reshape(20, 20)
    np.testing.assert_allclose(found[..., 0], expected, atol=1e-6)


def test_damaged_and_foreign_weights_are_named(tmp_path):
    net = ImageDenoiser(Architecture("none"), sigma=0.07)
    path = save_model(net, "image-local", tmp_path, info={"model": "local"})
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ModelError, match="is damaged: its SHA-256"):
        glocal.denoise(np.zeros((20, 20), np.uint8) + 9, 0.1, model="local", models=tmp_path)
    with pytest.raises(ModelError, match=r"files of the model 'small' are missing .* Install glocal again"):
        glocal.denoise(np.zeros((20, 20), np.uint8) + 9, 0.1, model="small", models=tmp_path)
    with pytest.raises(ModelError, match=r"files of the model 'wide' are missing .* Install glocal again"):
        glocal.denoise(np.zeros((20, 20), np.uint8), 0.1, model="wide", models=tmp_path)
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="does not hold a denoising network"):
        glocal.denoise(np.zeros((20, 20), np.uint8), 0.1, model=str(tmp_path / "other.safetensors"))


@pytest.mark.parametrize(
    ("image", "settings", "error", "text"),
    [
        (np.zeros((20, 20)), {"sigma": 0}, ArgumentError, r"`sigma` \(=0\) must be above 0.*25/255"),
        (np.zeros((20, 20)), {"sigma": -0.1}, ArgumentError, r"`sigma` \(=-0.1\) must be above 0"),
        (
            np.zeros((20, 20)),
            {"sigma": 25},
            ArgumentError,
            r"`sigma` \(=25\) must be above 0 and at most 10, in units of \[0, 1\]",
        ),
        (np.zeros((5, 5)), {}, InputError, r"\(h=5, w=5\) is smaller than 8 x 8.*Use a larger one"),
        (np.full((20, 20), np.nan), {}, InputError, "400 values are NaN, infinite or beyond"),
        (
            np.zeros((20, 20)),
            {"model": "big"},
            ArgumentError,
            r"`model` \(='big'\) is unknown. Choose one of auto, local",
        ),
        (np.zeros((20, 20)), {"strength": 2}, ArgumentError, r"`strength` \(=2\) must be a number from 0 to 1"),
        (
            np.zeros((20, 20)),
            {"search_radius": 1},
            ArgumentError,
            r"`search_radius` \(=1\) must be a whole number of at least 3",
        ),
    ],
)
def test_messages(image, settings, error, text):
    with pytest.raises(error, match=text):
        glocal.denoise(image, **settings)


def test_noise_levels_as_people_write_them():
    assert parse_level("auto") is None
    assert parse_level("25/255") == pytest.approx(0.098, rel=1e-2)
    assert parse_level("0.1") == 0.1
    for text in ("loud", "1/0", ""):
        with pytest.raises(ArgumentError, match=r"is not a noise level. Write auto, 0.1 or 25/255"):
            parse_level(text)


def test_tiny_planes_have_no_estimate():
    with pytest.raises(InputError, match=r"\(h=3, w=9\) is too small to estimate its noise. Give sigma"):
        estimate_sigma(np.zeros((3, 9)))


def test_model_card_names_every_file_with_its_sum():
    card = (SHIPPED / "image.md").read_text(encoding="utf-8")
    entries = {name: entry for name, entry in read_index().items() if entry["info"].get("kind") == "image"}
    assert len(entries) == len(list(SHIPPED.glob("image-*.safetensors")))
    for name, entry in entries.items():
        row = next(line for line in card.splitlines() if line.startswith(f"| `{name}` | ") and "..." in line)
        assert entry["sha256"][:16] in row
    shallow = [entry for entry in entries.values() if "shape" not in entry["info"]]
    assert sum((SHIPPED / entry["file"]).stat().st_size for entry in shallow) < 1_000_000


@pytest.mark.parametrize("model", ["local", "nonlocal"])
def test_a_larger_range_is_only_a_larger_range(model):
    """Range 4 and four times the noise: four times the result, by the same network."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:24, 0:32]
    noisy = (
        0.5 + 0.4 * np.sin(x / 4)[:, :, None] * np.cos(y / 5)[:, :, None] + rng.normal(0, 0.03, (24, 32, 3))
    ).astype(np.float32)
    noisy[:2] = 1
    small, large = glocal.denoise(noisy, 0.03, model=model), glocal.denoise(4 * noisy, 0.12, model=model)
    np.testing.assert_allclose(large.image, 4 * small.image, atol=1e-4)
    assert large.sigma == 0.12


def test_noise_beyond_white_is_no_larger_range():
    """Strong noise reaches beyond 1. The network of this level is used all the same, as for the clipped picture."""
    clean = np.full((64, 64), 0.98)
    strong = clean + np.random.default_rng(0).normal(0, 50 / 255, clean.shape)
    found = [plan_for(y[..., None], DenoiseOptions(sigma=50 / 255, model="local")) for y in (strong, strong.clip(0, 1))]
    assert found[0].white == found[1].white == 1
    assert plan_for(4 * clean[..., None], DenoiseOptions(sigma=0.1, model="local")).white == pytest.approx(
        4 * 0.98 - 0.31
    )
