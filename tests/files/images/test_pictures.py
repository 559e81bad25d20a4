import numpy as np
import pytest
from PIL import Image

from glocal.errors import ArgumentError, InputError
from glocal.files.images.colors import from_srgb, to_srgb, white_of
from glocal.files.images.image_like import as_given, picture_from
from glocal.files.images.picture import Picture, check_finite, to_depth
from glocal.files.images.write import write_image


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 6, 1), (5, 6, 2), (5, 6, 3), (5, 6, 4)])
def test_the_result_has_the_kind_of_the_input(dtype, shape):
    array = np.random.default_rng(1).random(shape)
    array = array.astype(dtype) if np.dtype(dtype).kind == "f" else (array * np.iinfo(dtype).max).astype(dtype)
    source = picture_from(array)
    result = as_given(from_srgb(source, to_srgb(source)), array)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, array, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA"])
def test_pil_in_pil_out(mode):
    image = Image.fromarray(np.random.default_rng(2).integers(0, 255, (5, 7, 4), np.uint8)).convert(mode)
    source = picture_from(image)
    result = as_given(from_srgb(source, to_srgb(source)), image)
    assert result.mode == mode
    np.testing.assert_array_equal(np.asarray(result), np.asarray(image))


def test_paths_give_arrays(tmp_path):
    Image.fromarray(np.full((5, 7, 3), 9, np.uint8)).save(tmp_path / "a.png")
    source = picture_from(tmp_path / "a.png")
    assert as_given(from_srgb(source, to_srgb(source)), tmp_path / "a.png").dtype == np.uint8
    assert picture_from(str(tmp_path / "a.png")).path == tmp_path / "a.png"


def test_a_gray_photo_that_gets_colours_becomes_a_colour_picture():
    source = picture_from(np.full((4, 5), 90, np.uint8))
    colored = to_srgb(source) * np.array([1.0, 0.5, 0.2], np.float32)
    assert from_srgb(source, colored).pixels.shape == (4, 5, 3)
    assert from_srgb(source, to_srgb(source) * 0.5).pixels.shape == (4, 5, 1)


def test_a_finer_depth_is_not_rounded_to_the_old_one_first():
    source = Picture(np.zeros((2, 2, 3), np.uint8), alpha=np.full((2, 2), 255, np.uint8))
    result = from_srgb(source, np.full((2, 2, 3), 0.3, np.float32), depth="16")
    assert (result.pixels == round(0.3 * 65535)).all()
    assert (result.alpha == 65535).all()


def test_alpha_follows_a_new_size():
    source = Picture(np.zeros((8, 8, 3), np.uint8), alpha=np.full((8, 8), 77, np.uint8))
    result = from_srgb(source, np.zeros((4, 6, 3), np.float32))
    assert result.alpha.shape == (4, 6)
    assert (result.alpha == 77).all()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            np.zeros((2, 3, 4, 3), np.uint8),
            "picture_from: `value` has the shape (2, 3, 4, 3), not (h, w) or (h, w, 1 to 4). "
            "Put the channels last and leave out batch axes.",
        ),
        (
            np.zeros((2, 3, 3), np.int64),
            "picture_from: `value` has the type int64. Convert it to uint8, uint16 or float in [0, 1].",
        ),
        (
            np.full((2, 3, 3), np.nan),
            "picture_from: `value`: 18 values are NaN, infinite or beyond 1e+38. Replace or scale them first.",
        ),
        ([1, 2], "picture_from: `value` is a list, not an image. Pass an array, a tensor, a PIL.Image or a path."),
    ],
)
def test_messages_for_values_that_are_no_images(value, message):
    with pytest.raises(InputError) as caught:
        picture_from(value)
    assert str(caught.value) == message


def test_message_for_a_result_of_another_shape():
    with pytest.raises(InputError) as caught:
        from_srgb(Picture(np.zeros((2, 2, 3), np.uint8)), np.zeros((2, 2, 4), np.float32))
    assert str(caught.value) == "from_srgb: `image` has shape (2, 2, 4). Pass (h, w, 3) or (h, w, 1)."


def test_message_for_an_unknown_depth():
    with pytest.raises(ArgumentError) as caught:
        to_depth(np.zeros((1, 1, 1)), "12")
    assert str(caught.value) == "to_depth: `depth` (='12') is unknown. Use one of 8, 16, float."


@pytest.mark.parametrize("size", [(8, 8), (5, 11)])
@pytest.mark.parametrize("profile", [None, "adobe"])
def test_float_pictures_with_a_larger_range_keep_it(size, profile):
    """Range 4: computed like the same picture in [0, 1], and returned four times as bright, also at another size."""
    import imagecodecs

    icc = bytes(imagecodecs.cms_profile("adobergb")) if profile else None
    small = np.random.default_rng(0).random((8, 8, 3)).astype(np.float32)
    small[0, 0] = 1
    result = np.random.default_rng(1).random((*size, 3)).astype(np.float32)
    one, four = Picture(small, icc=icc), Picture(4 * small, icc=icc)
    np.testing.assert_allclose(to_srgb(four), to_srgb(one), atol=1e-6)
    np.testing.assert_allclose(from_srgb(four, result).pixels, 4 * from_srgb(one, result).pixels, atol=1e-5)
    np.testing.assert_array_equal(from_srgb(four, to_srgb(four)).pixels, four.pixels)


def test_a_few_very_bright_pixels_do_not_darken_the_rest():
    pixels = np.full((100, 100, 1), 0.5, np.float32)
    pixels[0, 0] = 1000
    assert white_of(pixels) == 1
    np.testing.assert_array_equal(to_srgb(Picture(pixels))[1, 1], 0.5)
    brighter = from_srgb(Picture(pixels), np.where(to_srgb(Picture(pixels)) == 0.5, 0.75, 1).astype(np.float32))
    assert (brighter.pixels[0, 0, 0], brighter.pixels[1, 1, 0]) == (1000, 0.75)


def test_integers_that_cannot_hold_a_larger_range_say_so(tmp_path):
    notes = write_image(tmp_path / "a.png", Picture(np.full((4, 4, 3), 1.5, np.float32)))
    assert notes == (
        "PNG holds no float values: saved as 16",
        "values outside of [0, 1] clipped: 16 bits hold no others",
    )


def test_infinities_of_half_precision_are_found():
    with pytest.raises(InputError, match="here: 1 values are NaN, infinite or beyond 1e"):
        check_finite(np.array([[1, np.inf, -65504]], np.float16), "here")
