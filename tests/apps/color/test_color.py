"""`glocal.recolor` as people call it: kinds of input, options, several references, masks, and input that is bad."""

import numpy as np
import pytest
import torch
from PIL import Image

import glocal
from glocal.apps.color.fit import fit
from glocal.apps.color.measures import sliced_wasserstein
from glocal.apps.color.options import ColorOptions
from glocal.color_space import lab_from_rgb, rgb_from_lab
from glocal.errors import ArgumentError, InputError


def scene(a, b, *, seed=0, size=(48, 64), spread=12.0):
    """A picture of soft shapes around one chrominance."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(1, 3, 6, 8, generator=generator)
    soft = torch.nn.functional.interpolate(coarse, size, mode="bicubic")[0].permute(1, 2, 0)
    lab = torch.tensor([55.0, a, b]) + soft * torch.tensor([14.0, spread, spread])
    return (rgb_from_lab(lab).clamp(0, 1) * 255).round().to(torch.uint8).numpy()


PHOTO, REFERENCE = scene(-15, 20), scene(20, -10, seed=1)


def chroma(image):
    return lab_from_rgb(torch.from_numpy(np.asarray(image)).float() / 255)[..., 1:].reshape(-1, 2)


@pytest.mark.parametrize("method", ["graph", "transport"])
@pytest.mark.parametrize("mapping", ["smooth", "nearest"])
def test_colours_come_near_the_reference(method, mapping):
    result = glocal.recolor(PHOTO, REFERENCE, method=method, mapping=mapping)
    before, after = (sliced_wasserstein(chroma(x), chroma(REFERENCE)) for x in (PHOTO, result.image))
    assert after < 0.35 * before
    level = [lab_from_rgb(torch.from_numpy(x).float() / 255)[..., 0] for x in (PHOTO, result.image)]
    assert float((level[0] - level[1]).abs().max()) < 1.5  # 8-bit rounding
    assert result.palettes.photo.shape == result.palettes.result.shape == (64, 2)
    assert np.isfinite(result.losses).all()
    assert result.recipe["command"] == "color"
    assert result.recipe["options"]["mapping"] == mapping
    assert set(result.phases) == {"read", "fit", "apply"}
    assert result.seconds >= result.phases["fit"] > 0


@pytest.mark.parametrize("method", ["graph", "transport"])
def test_weighing_by_pixels_follows_the_shares(method):
    reference = np.concatenate([REFERENCE] * 9 + [scene(-30, -30, seed=5)])  # a tenth of another colour
    away = []
    for weigh in ("equal", "pixels"):
        image = glocal.recolor(PHOTO, reference, method=method, weigh=weigh).image
        away.append(float((chroma(image).mean(0) - chroma(reference).mean(0)).norm()))
    assert away[1] < 0.75 * away[0]


def test_golden_values_of_a_fixed_seed():
    result = glocal.recolor(PHOTO, REFERENCE, seed=3)
    assert result.losses[-1] < 0.2 * result.losses[0]
    again = glocal.recolor(PHOTO, REFERENCE, seed=3)
    assert np.array_equal(result.image, again.image)
    assert result.losses == again.losses
    assert not np.array_equal(result.image, glocal.recolor(PHOTO, REFERENCE, seed=4).image)


def test_result_has_the_kind_of_the_photo(tmp_path):
    eight = glocal.recolor(PHOTO, REFERENCE).image
    wide = glocal.recolor(PHOTO.astype(np.uint16) * 257, REFERENCE).image
    assert wide.dtype == np.uint16
    assert np.abs(wide / 257.0 - eight).max() <= 0.51
    real = glocal.recolor(PHOTO.astype(np.float32) / 255, REFERENCE).image
    assert real.dtype == np.float32
    assert np.abs(real * 255 - eight).max() <= 0.51
    pil = glocal.recolor(Image.fromarray(PHOTO), Image.fromarray(REFERENCE)).image
    assert isinstance(pil, Image.Image)
    assert np.array_equal(np.asarray(pil), eight)
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    filed = glocal.recolor(tmp_path / "a.png", REFERENCE)
    assert np.array_equal(filed.image, eight)
    assert filed.recipe["inputs"][0]["path"].endswith("a.png")
    clear = np.dstack([PHOTO, np.full(PHOTO.shape[:2], 99, np.uint8)])
    assert np.array_equal(glocal.recolor(clear, REFERENCE).image[..., 3], clear[..., 3])


def test_strength():
    assert np.array_equal(glocal.recolor(PHOTO, REFERENCE, strength=0).image, PHOTO)
    shift = [np.abs(glocal.recolor(PHOTO, REFERENCE, strength=s).image.astype(int) - PHOTO).mean() for s in (0.5, 1)]
    assert 0.3 * shift[1] < shift[0] < 0.7 * shift[1]


def test_lambdas_change_what_the_docs_say():
    def way(lambdas):
        palettes = glocal.recolor(PHOTO, REFERENCE, lambdas=lambdas).palettes
        return float((palettes.result - palettes.photo).norm())

    usual = way((1.0, 0.1, 1.0))
    assert way((1.0, 3.0, 1.0)) < 0.9 * usual  # movement costs more
    assert way((1.0, 1e4, 1.0)) == 0
    held = glocal.recolor(PHOTO, REFERENCE, lambdas=(1.0, 0.1, 50.0)).palettes.result
    assert float(held.std(0).norm()) < 0.5 * float(glocal.recolor(PHOTO, REFERENCE).palettes.result.std(0).norm())


def test_several_references_share_the_palette():
    other = scene(-20, -25, seed=2)
    both = glocal.recolor(PHOTO, [REFERENCE, other], method="transport").palettes.reference
    near = [float(torch.cdist(both.float(), chroma(x)).min(1).values.lt(3).float().mean()) for x in (REFERENCE, other)]
    assert min(near) > 0.3


def test_mask_blends_and_gives_the_palette():
    mask = np.zeros(PHOTO.shape[:2], np.uint8)
    mask[:, 40:] = 255
    result = glocal.recolor(PHOTO, REFERENCE, mask=mask)
    assert np.array_equal(result.image[:, :40], PHOTO[:, :40])
    assert np.abs(result.image[:, 40:].astype(int) - PHOTO[:, 40:]).mean() > 10
    alone = glocal.recolor(np.ascontiguousarray(PHOTO[:, 40:]), REFERENCE)
    torch.testing.assert_close(result.palettes.photo, alone.palettes.photo)
    assert np.array_equal(result.image[:, 40:], alone.image)


def test_transparent_pixels_give_no_colour():
    vivid = np.dstack([REFERENCE, np.full(REFERENCE.shape[:2], 255, np.uint8)])
    vivid[:, 32:, :3], vivid[:, 32:, 3] = (0, 255, 0), 0
    left = np.ascontiguousarray(REFERENCE[:, :32])
    torch.testing.assert_close(
        glocal.recolor(PHOTO, vivid).palettes.reference, glocal.recolor(PHOTO, left).palettes.reference
    )


def test_luminance_match_moves_half_way():
    dark = (PHOTO // 3).astype(np.uint8)
    levels = [
        lab_from_rgb(torch.from_numpy(glocal.recolor(dark, REFERENCE, luminance=kind).image).float() / 255)[
            ..., 0
        ].mean()
        for kind in ("keep", "match")
    ]
    assert levels[1] > levels[0] + 5


def test_protected_neutrals_stay():
    photo = PHOTO.copy()
    photo[:10] = 128
    result = glocal.recolor(photo, REFERENCE, protect=["neutrals"]).image
    assert np.array_equal(result[:10], photo[:10])
    assert not np.array_equal(glocal.recolor(photo, REFERENCE).image[:10], photo[:10])


@pytest.mark.parametrize("method", ["graph", "transport"])
def test_gray_photo_gets_one_tint(method):
    gray = np.repeat(PHOTO[..., :1], 3, axis=2)
    result = glocal.recolor(gray, REFERENCE, method=method)
    assert "one tint" in result.notes[0]
    assert len(result.palettes.photo) == 1
    assert float((chroma(result.image).mean(0) - chroma(REFERENCE).mean(0)).norm()) < 10
    flat = glocal.recolor(PHOTO[..., 0], REFERENCE, method=method)  # (h, w): a gray array may come out coloured
    assert flat.image.shape == PHOTO.shape


@pytest.mark.parametrize("method", ["graph", "transport"])
def test_reference_of_one_colour(method):
    red = np.full((8, 8, 3), (200, 60, 50), np.uint8)
    result = glocal.recolor(PHOTO, red, method=method)
    assert "all colours move towards it" in result.notes[0]
    assert float((result.palettes.result.mean(0) - chroma(red)[0]).norm()) < 8
    assert np.isfinite(result.losses).all()


@pytest.mark.parametrize("method", ["graph", "transport"])
def test_fewer_colours_than_palette_entries(method):
    flag = np.zeros((9, 9, 3), np.uint8)
    flag[:3], flag[3:6], flag[6:] = (180, 40, 40), (240, 240, 240), (40, 60, 160)
    result = glocal.recolor(flag, REFERENCE, method=method)
    assert "only 3 distinct colours" in result.notes[0]
    assert len(result.palettes.photo) == 3
    assert len(np.unique(result.image.reshape(-1, 3), axis=0)) == 3
    backwards = glocal.recolor(PHOTO, flag, method=method)
    assert backwards.palettes.result.shape == (64, 2)


def test_one_pixel():
    assert glocal.recolor(PHOTO[:1, :1], REFERENCE[:1, :1]).image.shape == (1, 1, 3)


@pytest.mark.parametrize("which", ["photo", "reference", "mask"])
def test_nan_is_refused(which):
    bad = PHOTO.astype(np.float32) / 255
    bad[3, 4, 1] = np.nan
    given = {"photo": PHOTO, "reference": REFERENCE, "mask": None, which: bad}
    with pytest.raises(InputError, match=r"1 values? (is|are) NaN, infinite or beyond"):
        glocal.recolor(given["photo"], given["reference"], mask=given["mask"])


@pytest.mark.parametrize("call", [glocal.recolor, glocal.stylize])
def test_numbers_that_leave_float32_are_refused(call):
    bad = PHOTO / 255
    bad[3, 4, 1] = 1e39
    with pytest.raises(InputError, match=r"`photo`: 1 values are NaN, infinite or beyond 1e\+38. Replace or scale"):
        call(bad, REFERENCE)


def test_masks_that_do_not_work():
    with pytest.raises(InputError, match=r"`mask` selects nothing.*Paint the part that changes white"):
        glocal.recolor(PHOTO, REFERENCE, mask=np.zeros(PHOTO.shape[:2], np.uint8))
    clear = np.dstack([REFERENCE, np.zeros(REFERENCE.shape[:2], np.uint8)])
    with pytest.raises(InputError, match="no pixel is left, the reference's alpha is 0 everywhere"):
        glocal.recolor(PHOTO, clear)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, r"`method` \(='magic'\) is unknown. Choose one of graph, transport"),
        ({"mapping": "linear"}, r"`mapping` \(='linear'\) is unknown. Choose one of smooth, nearest"),
        ({"luminance": "no"}, "Choose one of keep, match"),
        ({"gamut": "no"}, "Choose one of compress, clip"),
        ({"weigh": "no"}, "Choose one of equal, pixels"),
        ({"protect": ["cats"]}, r"`protect` \(='cats'\) is unknown. Choose among neutrals, skin"),
        ({"colors": 0}, r"`colors` \(=0\) must be a whole number from 1 to 1024. The default is 64"),
        ({"colors": 2000}, r"`colors` \(=2000\) must be a whole number from 1 to 1024"),
        ({"strength": -1}, r"`strength` \(=-1\) must be a number from 0 to 2"),
        ({"lambdas": (1, -1, 1)}, "must be three numbers, none negative"),
        ({"lambdas": (1, 1)}, "must be three numbers, none negative"),
        ({"slack": 0.5}, r"`slack` \(=0.5\) must be a number of at least 1"),
    ],
)
def test_options_that_do_not_exist(options, message):
    with pytest.raises(ArgumentError, match=message):
        glocal.recolor(PHOTO, REFERENCE, **options)


def test_other_messages():
    with pytest.raises(ArgumentError, match=r"`sigma` \(=0\) must be positive"):
        ColorOptions(sigma=0)
    with pytest.raises(ArgumentError, match="`reference` is an empty list"):
        fit(torch.rand(2, 2, 3), [], ColorOptions())
