"""`glocal.stylize` as people call it."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from PIL import Image

import glocal
from glocal import samples
from glocal.apps.style import solve as core
from glocal.apps.style.checkpoint import load_checkpoint, save_checkpoint
from glocal.apps.style.options import PRESETS, Preset, StyleOptions, style_options
from glocal.apps.style.solve import Checkpoint
from glocal.errors import ArgumentError, InputError


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    photo = np.kron(rng.random((5, 7, 3)), np.ones((6, 6, 1)))
    painting = np.kron(rng.random((11, 9, 3)), np.ones((4, 4, 1)))
    return (photo * 255).astype(np.uint8), (painting * 255).astype(np.uint8)


def run(photo, painting, **changes):
    defaults = {"preset": "paper", "size": 32, "iterations": 5}
    return glocal.stylize(photo, painting, **{**defaults, **changes})


def test_the_result_has_the_photos_kind_and_shape(pictures):
    photo, painting = pictures
    result = run(photo, painting)
    assert result.image.dtype == np.uint8
    assert result.image.shape == (23, 32, 3)
    assert result.losses[0][-1] < result.losses[0][0]
    assert result.seconds > 0
    assert set(result.phases) >= {"graph", "painting", "local 5x5", "nonlocal", "tv", "optimise"}
    assert run(photo, painting, size="keep").image.shape == photo.shape
    assert run(photo.astype(np.uint16) * 257, painting).image.dtype == np.uint16
    assert isinstance(run(Image.fromarray(photo), painting).image, Image.Image)


@pytest.fixture(params=["float64", "float32"])
def precision(request, monkeypatch):
    """Small levels are computed in float64: their pictures go through what large ones go through as well."""
    if request.param == "float32":
        monkeypatch.setattr(core, "COARSE", 0)


@pytest.mark.usefixtures("precision")
def test_one_seed_one_picture(pictures):
    first, again, other = (run(*pictures, seed=seed).image for seed in (0, 0, 1))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_the_recipe_names_everything(pictures):
    recipe = run(*pictures, tv=0.002, seed=3).recipe
    assert recipe["command"] == "style"
    assert recipe["seed"] == 3
    assert recipe["options"]["tv"] == 0.002
    assert recipe["options"]["maps"] == 50
    assert len(recipe["arguments"]["pixels_sha256"]) == 2
    assert "torch" in recipe["versions"]


def test_several_paintings_and_weights(pictures):
    photo, painting = pictures
    other = np.ascontiguousarray(painting[::-1, :, ::-1])
    alone = run(photo, painting).image
    assert np.array_equal(run(photo, [painting, other], weights=[1, 0]).image, alone)
    assert not np.array_equal(run(photo, [painting, other]).image, alone)
    with pytest.raises(ArgumentError, match=r"`weights` \(=\[1\]\) has 1 numbers for 2 painting"):
        run(photo, [painting, other], weights=[1])
    with pytest.raises(ArgumentError, match="must be positive numbers"):
        run(photo, [painting, other], weights=[-1, 2])
    with pytest.raises(ArgumentError, match="there is no painting"):
        run(photo, [])


def test_strength_goes_from_the_photo_to_the_full_effect(pictures):
    photo, painting = pictures
    none, half, full = (run(photo, painting, size="keep", strength=s).rgb for s in (0, 0.5, 1))
    assert np.array_equal((none * 255).round().astype(np.uint8), photo)
    distances = [np.abs(r - none).mean() for r in (half, full)]
    assert 0 < distances[0] < distances[1]


def test_another_strength_needs_no_new_run_and_gives_the_same_picture_and_recipe(pictures):
    photo, painting = pictures
    mask = np.zeros(photo.shape[:2], np.uint8)
    mask[:, :21] = 255
    for changes in ({}, {"keep_color": "luma", "mask": mask}):
        whole = run(photo, painting, **changes)
        for strength in (0, 0.3):
            other = run(photo, painting, strength=strength, **changes)
            mixed = whole.at_strength(strength)
            assert np.array_equal(mixed.image, other.image)
            assert mixed.recipe == other.recipe
            assert np.array_equal(mixed.at_strength(1).rgb, whole.rgb)
    with pytest.raises(ArgumentError, match=r"`strength` \(=2\) must be a number from 0 to 1"):
        whole.at_strength(2)


def test_a_mask_leaves_the_rest_alone(pictures):
    photo, painting = pictures
    mask = np.zeros(photo.shape[:2], np.uint8)
    mask[:, :21] = 255
    result = run(photo, painting, size="keep", mask=mask).image
    assert np.array_equal(result[:, 21:], photo[:, 21:])
    assert not np.array_equal(result[:, :21], photo[:, :21])
    with pytest.raises(InputError, match="`mask` is black"):
        run(photo, painting, mask=np.zeros((4, 4), np.uint8))


def test_regions_take_their_part_of_the_painting():
    photo = np.full((24, 32, 3), 128, np.uint8)
    painting = np.zeros((24, 32, 3), np.uint8)
    painting[:, :16, 0], painting[:, 16:, 2] = 220, 220  # red on the left, blue on the right
    left = np.zeros((24, 32), np.uint8)
    left[:, :16] = 255
    noise = np.random.default_rng(0).integers(-20, 20, photo.shape)
    photo = (photo + noise).astype(np.uint8)
    image = run(photo, painting, regions=[(left, left)], size="keep", iterations=60).rgb
    assert image[:, 2:14, 0].mean() > image[:, 2:14, 2].mean() + 0.1
    assert image[:, 18:30, 2].mean() > image[:, 18:30, 0].mean() + 0.1
    with pytest.raises(InputError, match="painting mask of region 1 is black"):
        run(photo, painting, regions=[(left, left * 0)])
    with pytest.raises(ArgumentError, match="region 1 has 2 painting masks for 1"):
        run(photo, painting, regions=[(left, [left, left])])


def test_colors_can_be_kept(pictures):
    from skimage.color import rgb2lab

    photo, painting = pictures
    luma = run(photo, painting, size="keep", keep_color="luma", iterations=3).rgb
    off = run(photo, painting, size="keep", iterations=3).rgb
    own = rgb2lab(photo)[..., 1:]
    assert np.abs(rgb2lab(luma)[..., 1:] - own).mean() < 0.5 * np.abs(rgb2lab(off)[..., 1:] - own).mean()
    match = run(photo, painting, size="keep", keep_color="match", iterations=40).rgb
    means = [np.abs(rgb2lab(r).mean((0, 1)) - rgb2lab(photo).mean((0, 1))).max() for r in (match, off)]
    assert means[0] < means[1]


def test_starts(pictures):
    photo, painting = pictures
    begun = run(photo, painting, init="photo", iterations=1, size="keep")  # the first step is a small one
    assert np.abs(begun.rgb - photo / 255).mean() < 0.02
    given = run(photo, painting, init=painting, iterations=1).rgb
    assert abs(given.mean() - painting.mean() / 255) < 0.03


def test_the_callback_sees_progress_and_can_stop(pictures):
    seen = []
    result = run(*pictures, size=64, iterations=10, progress=lambda p: seen.append(p) or p.level == 0)
    assert result.stopped
    assert seen[0].levels == 2
    assert seen[0].image.shape == (23, 32, 3)
    assert result.image.shape == (46, 64, 3)
    assert len(result.losses) == 1
    full = []
    with pytest.warns(DeprecationWarning, match="`callback` is now `progress`"):
        assert not run(*pictures, size=64, iterations=3, callback=lambda p: full.append(p.level) and None).stopped
    assert full[-1] == 1


def test_a_run_goes_on_from_its_checkpoint(pictures):
    seen = []
    run(*pictures, size=64, iterations=6, progress=lambda p: seen.append(p) or p.iteration == 6)
    point = Checkpoint(seen[-1].level + 1, 0, seen[-1].image)
    rest = run(*pictures, size=64, iterations=6, checkpoint=point)
    whole = run(*pictures, size=64, iterations=6)
    assert len(rest.losses) == 1
    assert rest.losses[0][0] == pytest.approx(whole.losses[1][0], rel=1e-3)


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("preset", ["painterly", "paper"])
def test_a_run_that_goes_on_from_any_checkpoint_gives_the_same_bytes(pictures, tmp_path, monkeypatch, preset):
    monkeypatch.setattr(core, "CALL_SECONDS", 0.0)
    points = dict.fromkeys([(0, 9), (1, 1), (1, 12), (1, 15)])

    def keep(progress):
        if (progress.level, progress.iteration) in points:
            points[progress.level, progress.iteration] = progress.snapshot()

    options = style_options(preset, {"size": 48, "iterations": 15, "coarsest": 12, "ease": 1.0})
    whole = glocal.stylize(*pictures, options=options, progress=keep)
    recipe = {"options": {}, "arguments": {}, "inputs": []}
    for at, point in points.items():
        save_checkpoint(tmp_path / f"{at}.checkpoint", point, recipe)
        points[at] = load_checkpoint(tmp_path / f"{at}.checkpoint", recipe)
        rest = glocal.stylize(*pictures, options=options, checkpoint=points[at])
        assert rest.rgb.tobytes() == whole.rgb.tobytes(), at
    point = points[1, 1]
    # Without the history of L-BFGS it would be another picture: the test can fail.
    other = glocal.stylize(*pictures, options=options, checkpoint=replace(point, exact=None))
    assert other.rgb.tobytes() != whole.rgb.tobytes()
    short = replace(point, exact=point.exact | {"rows": point.exact["rows"][:, 1:].contiguous()})
    save_checkpoint(tmp_path / "short.checkpoint", short, recipe)
    with pytest.raises(InputError, match="it is damaged"):
        load_checkpoint(tmp_path / "short.checkpoint", recipe)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "magic"}, r"`preset` \(='magic'\) is unknown. Choose one of .*paper"),
        ({"size": 4}, r"`size` \(=4\) must be a whole number from 8 to 65536"),
        ({"strength": 1.5}, r"`strength` \(=1.5\) must be a number from 0 to 1"),
        ({"structure": 1.5}, r"`structure` \(=1.5\) must be a number from 0 to 1. Leave it out for the preset's"),
        ({"structure": "much"}, r"`structure` \(='much'\) must be a number from 0 to 1"),
        ({"networks": "all"}, r"`networks` \(='all'\) is unknown. Choose one of both, local, nonlocal"),
        ({"keep_color": "yes"}, r"`keep_color` \(='yes'\) is unknown"),
        ({"tv": float("nan")}, r"`tv` \(=nan\) must be a number"),
        ({"iterations": 2.5}, r"`iterations` \(=2.5\) must be a whole number"),
        ({"options": {"tv": 0.1}}, r"`options` \(={'tv': 0.1}\) must be a StyleOptions"),
        ({"device": "tpu"}, r"`device` \(='tpu'\) must be cpu, cuda or cuda:N. Use cpu"),
    ],
)
def test_wrong_options_are_named(pictures, changes, message):
    with pytest.raises(ArgumentError, match=message):
        glocal.stylize(*pictures, **changes)


def test_presets_differ():
    assert tuple(PRESETS) == get_args(Preset)
    plain = {repr(replace(options, preset="", size=512)) for options in PRESETS.values()}
    assert len(plain) == len(PRESETS)


def test_presets_give_different_pictures(pictures):
    images = {run(*pictures, preset=preset).image.tobytes() for preset in ("painterly", "brush", "bold", "paper")}
    assert len(images) == 4


def test_structure_moves_its_parts_together():
    def parts(options):
        return options.whiten, options.anchor, options.anchor_edges

    assert parts(style_options("brush", {})) == parts(style_options("painterly", {"structure": 0})) == (0, 0, 0)
    assert style_options("painterly", {"structure": 0.7}) == style_options("painterly", {})
    assert parts(style_options("bold", {"structure": 1})) == (0.6, 0.6, 0.3)
    assert parts(style_options("bold", {"structure": 1, "anchor": 0.2})) == (0.6, 0.2, 0.3)
    assert parts(StyleOptions.given({"structure": 1}, style_options("brush", {}))) == (0.6, 0.6, 0.3)


def test_structure_keeps_more_of_the_photo_in_even_steps():
    photo = np.asarray(Image.open(samples.path("citrus.jpg")).convert("RGB").resize((64, 42)))
    painting = Image.open(samples.path("van_gogh_auvers.jpg")).convert("RGB").resize((64, 50))

    def gradients(image):
        light = image.astype(np.float64).mean(2)
        return np.concatenate([np.diff(light, axis=axis).ravel() for axis in (0, 1)])

    found = []
    for structure in (0, 0.33, 0.67, 1):
        image = run(photo, painting, preset="brush", size="keep", iterations=100, structure=structure).image
        found.append(np.corrcoef(gradients(image), gradients(photo))[0, 1])
    steps = np.diff(found) / (found[-1] - found[0])
    assert found[-1] > found[0] + 0.4
    assert steps.min() > 0.15
    assert steps.max() < 0.55


def test_unknown_option_names():
    with pytest.raises(ArgumentError, match="there is no option 'colour'"):
        style_options("paper", {"colour": 1})


@pytest.mark.parametrize("name", ["photo", "painting"])
def test_too_small_pictures_are_refused(pictures, name):
    images = {"photo": pictures[0], "painting": pictures[1], name: np.zeros((1, 1, 3), np.uint8)}
    with pytest.raises(InputError, match=f"the {name} has 1 x 1 pixels, but needs at least 8 x 8"):
        run(images["photo"], images["painting"])
