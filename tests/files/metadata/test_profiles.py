"""Colour profiles: the fast tables against Little CMS, and profiles that do not fit the tables."""

import imagecodecs
import numpy as np
import pytest

from glocal.files.images.colors import from_srgb, to_srgb
from glocal.files.images.picture import Picture
from glocal.files.metadata.matrix_profiles import matrix_profile
from glocal.files.metadata.profiles import transform

SRGB = bytes(imagecodecs.cms_profile("srgb"))
ADOBE = bytes(imagecodecs.cms_profile("adobergb"))
WIDE = bytes(
    imagecodecs.cms_profile(
        "rgb",
        whitepoint=[0.3457, 0.3585, 1.0],
        primaries=[0.7347, 0.2653, 1, 0.1596, 0.8404, 1, 0.0366, 0.0001, 1],
        gamma=1.8,
    )
)
GRAY = bytes(imagecodecs.cms_profile("gray", gamma=1.8))


def colors(dtype, size=(64, 64)) -> np.ndarray:
    values = np.random.default_rng(0).random((*size, 3))
    return values.astype(dtype) if np.dtype(dtype).kind == "f" else (values * np.iinfo(dtype).max).astype(dtype)


@pytest.mark.parametrize("icc", [ADOBE, WIDE], ids=["adobe", "wide"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_tables_agree_with_little_cms(icc, dtype):
    pixels = colors(dtype)
    assert matrix_profile(icc) is not None
    expected = np.clip(transform(pixels, icc, SRGB, "rgb", "rgb"), 0, 1)
    assert np.abs(to_srgb(Picture(pixels, icc=icc)) - expected).max() < 3e-4


@pytest.mark.parametrize("icc", [ADOBE, WIDE], ids=["adobe", "wide"])
def test_there_and_back(icc):
    inside = 0.3 + 0.4 * colors(np.float32)
    model = matrix_profile(icc)
    assert np.abs(model.to_srgb(model.from_srgb(inside)) - inside).max() < 1e-4


@pytest.mark.parametrize("icc", [ADOBE, WIDE], ids=["adobe", "wide"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_what_is_not_changed_comes_back_to_the_bit(icc, dtype):
    picture = Picture(colors(dtype), icc=icc)
    image = to_srgb(picture)
    image[:32] *= 0.5
    result = from_srgb(picture, image).pixels
    assert result.dtype == dtype
    np.testing.assert_array_equal(result[32:], picture.pixels[32:])
    assert np.abs(result[:32].astype(float) - picture.pixels[:32]).max() > 0.1


def test_one_thread_gives_the_same(monkeypatch):
    picture = Picture(colors(np.uint8, (700, 300)), icc=ADOBE)
    several = to_srgb(picture)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    np.testing.assert_array_equal(to_srgb(picture), several)


def test_profiles_of_other_kinds_are_left_to_little_cms():
    assert matrix_profile(GRAY) is None
    assert matrix_profile(b"\0" * 36 + b"acsp" + b"\1" * 200) is None
    pixels = colors(np.uint8)[:, :, :1]
    seen = to_srgb(Picture(pixels, icc=GRAY))
    expected = np.where(pixels / 255 < 0.0, 0, (pixels / 255) ** 1.8)
    encoded = np.where(expected <= 0.0031308, 12.92 * expected, 1.055 * expected ** (1 / 2.4) - 0.055)
    assert np.abs(seen - encoded).max() < 2e-3
