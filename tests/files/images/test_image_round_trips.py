"""A strength-0 run returns the same pixels, profile, EXIF, XMP and alpha, for every format and depth."""

import io
import sys
from dataclasses import replace

import imagecodecs
import numpy as np
import pillow_heif
import pytest
import tifffile
from PIL import Image, ImageCms

from glocal.errors import MissingDependencyError
from glocal.files.images.colors import from_srgb, to_srgb
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image, read_recipe
from glocal.files.images.write import write_image
from glocal.files.metadata import exif
from glocal.files.provenance import build_recipe

ADOBE = bytes(imagecodecs.cms_profile("adobergb"))
GRAY_22 = bytes(imagecodecs.cms_profile("gray", gamma=2.6))
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" dc:format="image/x"/>'
    b"</rdf:RDF></x:xmpmeta>"
)
EXIF = exif.pack(
    {
        271: exif.Tag(2, b"Maker\0"),
        274: exif.Tag(3, b"\x01\0"),
        exif.EXIF_DIRECTORY: {0x829A: exif.Tag(5, b"\x01\0\0\0\x7d\0\0\0"), 0x927C: exif.Tag(7, b"notes of the maker")},
        exif.GPS_DIRECTORY: {2: exif.Tag(5, bytes(range(24)))},
    }
)
TYPES = {"8": np.uint8, "16": np.uint16, "float": np.float32}


def pixels(depth: str, channels: int, size: tuple[int, int] = (13, 17), seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).random((*size, channels))
    return values.astype(np.float32) if depth == "float" else (values * np.iinfo(TYPES[depth]).max).astype(TYPES[depth])


def smooth(channels: int) -> np.ndarray:
    """A picture that lossy formats keep well."""
    y, x = np.mgrid[0:48, 0:64]
    return np.stack([127 + 100 * np.sin(x / 20 + i) * np.cos(y / 15) for i in range(channels)], -1).astype(np.uint8)


def picture(depth: str, channels: int) -> Picture:
    colors = 3 if channels > 2 else 1
    array = pixels(depth, channels)
    return Picture(
        pixels=array[:, :, :colors],
        alpha=array[:, :, colors] if channels in (2, 4) else None,
        icc=ADOBE if colors == 3 else GRAY_22,
        exif=EXIF,
        xmp=XMP,
        dpi=(300.0, 300.0),
    )


LOSSLESS = [("png", "8"), ("png", "16"), ("tif", "8"), ("tif", "16"), ("tif", "float")]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("suffix", "depth"), LOSSLESS)
def test_strength_zero_returns_what_was_read(tmp_path, suffix, depth, channels):
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    original = picture(depth, channels)
    assert write_image(first, original) == ()
    read = read_image(first)
    np.testing.assert_array_equal(read.pixels, original.pixels)
    assert read.pixels.dtype == original.pixels.dtype
    assert read.notes == ()

    again = from_srgb(read, to_srgb(read))
    assert write_image(second, again) == ()
    back = read_image(second)
    np.testing.assert_array_equal(back.pixels, original.pixels)
    if channels in (2, 4):
        np.testing.assert_array_equal(back.alpha, original.alpha)
    else:
        assert back.alpha is None
    assert back.icc == original.icc
    assert exif.parse(back.exif) == {k: v for k, v in exif.parse(EXIF).items() if suffix == "png" or k != 274}
    assert back.xmp == XMP
    assert back.dpi == pytest.approx((300, 300), abs=0.02)


def test_webp_without_loss_stays_without_loss(tmp_path):
    original = picture("8", 4)
    write_image(tmp_path / "a.webp", replace(original, format="WEBP", lossless=True))
    read = read_image(tmp_path / "a.webp")
    assert read.lossless
    write_image(tmp_path / "b.webp", from_srgb(read, to_srgb(read)))
    back = read_image(tmp_path / "b.webp")
    np.testing.assert_array_equal(back.pixels, original.pixels)
    np.testing.assert_array_equal(back.alpha, original.alpha)
    assert (back.icc, back.exif, back.xmp) == (ADOBE, EXIF, XMP)


def test_bmp_keeps_pixels_and_says_what_it_cannot_keep(tmp_path):
    original = picture("8", 4)
    notes = write_image(tmp_path / "a.bmp", original, recipe=build_recipe("style", {}, seed=1))
    assert notes == (
        "BMP holds no transparency: alpha dropped",
        "BMP holds no metadata: profile, EXIF and XMP dropped",
        "BMP has no place for the recipe: dropped",
    )
    np.testing.assert_array_equal(read_image(tmp_path / "a.bmp").pixels, original.pixels)


@pytest.mark.parametrize(("suffix", "tolerance"), [("jpg", 3), ("webp", 6), ("avif", 6), ("heic", 6)])
@pytest.mark.parametrize("channels", [1, 3])
def test_lossy_formats_keep_metadata_and_nearly_the_pixels(tmp_path, suffix, tolerance, channels):
    profile = ADOBE if channels == 3 else None
    original = Picture(smooth(channels), icc=profile, exif=EXIF, xmp=XMP)
    write_image(tmp_path / f"a.{suffix}", original, recipe=build_recipe("denoise", {}, seed=4))
    read = read_image(tmp_path / f"a.{suffix}")
    write_image(tmp_path / f"b.{suffix}", from_srgb(read, to_srgb(read)))
    back = read_image(tmp_path / f"b.{suffix}")
    worst = np.abs(back.pixels.astype(int) - original.pixels.astype(int))
    assert worst.mean() < tolerance
    assert back.icc == profile
    assert exif.parse(back.exif) == exif.parse(EXIF)
    assert back.xmp.strip() == XMP
    assert not back.lossless


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg", "webp", "avif", "heic"])
def test_recipe_is_embedded_and_found_again(tmp_path, suffix):
    recipe = build_recipe("style", {"tv": 0.1, "name": 'a <b> & "c" é'}, seed=7)
    for xmp in (None, XMP):
        path = tmp_path / f"{xmp is None}.{suffix}"
        write_image(path, Picture(smooth(3), xmp=xmp), recipe=recipe)
        assert read_recipe(path) == recipe
        write_image(path, read_image(path), recipe=recipe | {"seed": 8}, overwrite=True)
        assert read_recipe(path)["seed"] == 8


def test_stripping_keeps_only_the_profile(tmp_path):
    for suffix in ("png", "tif", "jpg", "webp", "avif", "heic"):
        path = tmp_path / f"a.{suffix}"
        write_image(path, picture("8", 3), metadata="strip", recipe={"command": "x", "recipe": 1})
        read = read_image(path)
        assert (read.exif, read.xmp, read.icc) == (None, None, ADOBE)
        assert b"command" not in path.read_bytes()


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp", "avif", "heic"])
def test_orientation_is_applied_once(tmp_path, suffix, turn):
    upright = smooth(3)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: np.swapaxes(upright, 0, 1),
        6: np.rot90(upright, 1),
        7: np.swapaxes(upright[::-1, ::-1], 0, 1),
        8: np.rot90(upright, -1),
    }[turn]
    path = tmp_path / f"a.{suffix}"
    image = Image.fromarray(np.ascontiguousarray(stored))
    if suffix == "tif":
        image.save(path, tiffinfo={274: turn})
    else:
        block = Image.Exif()
        block[274] = turn
        fine = {"jpg": {"quality": 98, "subsampling": 0}, "webp": {"quality": 98}, "avif": {"quality": 98}}
        pillow_heif.register_heif_opener()
        image.save(path, exif=block.tobytes(), **fine.get(suffix, {}))
    read = read_image(path)
    assert read.size == (48, 64)
    assert np.abs(read.pixels.astype(int) - upright).mean() < 2
    write_image(tmp_path / f"b.{suffix}", replace(read, stream=None))
    again = read_image(tmp_path / f"b.{suffix}")
    assert np.abs(again.pixels.astype(int) - upright).mean() < 2
    assert exif.orientation(again.exif) == 1


def test_sixteen_bit_png_is_not_read_as_eight(tmp_path):
    array = pixels("16", 3)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(array))
    read = read_image(tmp_path / "a.png")
    assert read.depth == "16"
    np.testing.assert_array_equal(read.pixels, array)


@pytest.mark.parametrize("compression", [None, "lzw", "zlib", "packbits", "zstd"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_tiffs_of_other_programs(tmp_path, compression, planar):
    array = pixels("16", 3)
    stored = array if planar == "contig" else np.moveaxis(array, -1, 0)
    tifffile.imwrite(
        tmp_path / "a.tif", stored, photometric="rgb", planarconfig=planar, compression=compression, byteorder=">"
    )
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif").pixels, array)


def test_bigtiff_tiles_and_white_is_zero(tmp_path):
    array = pixels("8", 1, (70, 90))[:, :, 0]
    tifffile.imwrite(tmp_path / "a.tif", array, bigtiff=True, tile=(32, 32), photometric="miniswhite")
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif").pixels[:, :, 0], 255 - array)


def test_palette_cmyk_and_bilevel_are_converted_with_a_note(tmp_path):
    rgb = Image.fromarray(smooth(3))
    rgb.quantize(16).save(tmp_path / "p.png")
    rgb.quantize(16).save(tmp_path / "p.tif")
    rgb.convert("CMYK").save(tmp_path / "c.jpg", quality=98)
    rgb.convert("CMYK").save(tmp_path / "c.tif")
    rgb.convert("1").save(tmp_path / "b.tif")
    assert read_image(tmp_path / "p.png").notes == ("palette converted to RGB",)
    assert read_image(tmp_path / "p.tif").notes == ("palette converted to RGB",)
    for name in ("c.jpg", "c.tif"):
        read = read_image(tmp_path / name)
        assert read.notes == ("CMYK converted to sRGB",)
        assert read.icc is None
        assert np.abs(read.pixels.astype(int) - smooth(3)).mean() < 3
    assert read_image(tmp_path / "b.tif").notes == ("black and white converted to gray",)
    assert read_image(tmp_path / "b.tif").gray


def test_colors_are_computed_in_srgb():
    profile = ImageCms.ImageCmsProfile(io.BytesIO(ADOBE))
    array = pixels("8", 3)
    expected = ImageCms.profileToProfile(
        Image.fromarray(array), profile, ImageCms.createProfile("sRGB"), renderingIntent=0, outputMode="RGB"
    )
    seen = to_srgb(Picture(array, icc=ADOBE)) * 255
    assert np.abs(seen - np.asarray(expected)).max() < 1.5
    assert np.abs(seen - array).max() > 10


def test_a_change_in_srgb_reaches_the_profile():
    original = Picture(np.full((4, 4, 3), 100, np.uint8), icc=ADOBE)
    seen = to_srgb(original)
    brighter = from_srgb(original, seen + 0.1)
    np.testing.assert_allclose(to_srgb(brighter), seen + 0.1, atol=0.006)


def test_float_values_beyond_one_survive():
    array = np.array([[[-0.5, 0.5, 7.25]]], np.float32)
    original = Picture(array)
    assert to_srgb(original).max() == 1
    np.testing.assert_array_equal(from_srgb(original, to_srgb(original)).pixels, array)


def test_depth_on_request_and_what_a_format_cannot_hold(tmp_path):
    original = picture("16", 3)
    write_image(tmp_path / "a.png", original, depth="8")
    assert read_image(tmp_path / "a.png").depth == "8"
    write_image(tmp_path / "b.png", picture("8", 3), depth="16")
    np.testing.assert_array_equal(read_image(tmp_path / "b.png").pixels, picture("8", 3).pixels.astype(np.uint16) * 257)
    assert write_image(tmp_path / "a.jpg", original) == ("JPEG holds no 16-bit values: saved as 8",)
    assert write_image(tmp_path / "f.png", picture("float", 3)) == ("PNG holds no float values: saved as 16",)


def test_png_texts_are_kept(tmp_path):
    write_image(tmp_path / "a.png", Picture(smooth(3), text={"Title": "Brücke"}))
    write_image(tmp_path / "b.png", read_image(tmp_path / "a.png"))
    assert Image.open(tmp_path / "b.png").text["Title"] == "Brücke"
    assert Image.open(tmp_path / "b.png").size == (64, 48)


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg", "webp", "bmp", "avif", "heic"])
def test_pictures_without_metadata_get_none(tmp_path, suffix):
    assert write_image(tmp_path / f"a.{suffix}", Picture(smooth(3))) == ()
    read = read_image(tmp_path / f"a.{suffix}")
    assert (read.icc, read.exif, read.xmp, read.alpha) == (None, None, None, None)
    assert np.abs(read.pixels.astype(int) - smooth(3)).mean() < 6


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("suffix", ["jpg", "webp", "avif", "heic"])
def test_lossy_files_that_nobody_touched_keep_their_pixels(tmp_path, suffix, channels):
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    profile = ADOBE if channels == 3 else None
    noisy = pixels("8", channels, (40, 50))
    write_image(first, Picture(noisy, icc=profile, exif=EXIF, xmp=XMP, format="PNG"), quality=80)
    read = read_image(first)
    recipe = build_recipe("denoise", {"strength": 0})
    write_image(second, from_srgb(read, to_srgb(read)), recipe=recipe)
    back = read_image(second)
    np.testing.assert_array_equal(back.pixels, read.pixels)
    np.testing.assert_array_equal(np.asarray(Image.open(second)), np.asarray(Image.open(first)))
    assert (back.icc, back.exif, back.xmp) == (read.icc, read.exif, read.xmp) == (profile, EXIF, XMP)
    assert read_recipe(second) == recipe
    write_image(second, read, metadata="strip", overwrite=True)
    back = read_image(second)
    np.testing.assert_array_equal(back.pixels, read.pixels)
    assert (back.icc, back.exif, back.xmp) == (read.icc, None, None)
    assert b"Maker" not in second.read_bytes()
    write_image(second, read, quality=40, overwrite=True)
    if suffix != "avif" or channels > 1:  # older imagecodecs write gray AVIF without loss
        assert (read_image(second).pixels != read.pixels).any()
    touched = to_srgb(read)
    touched[0, 0] = 1 - touched[0, 0]
    write_image(second, from_srgb(read, touched), overwrite=True)
    assert (read_image(second).pixels != read.pixels).any()


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("bits", [8, 10, 12])
@pytest.mark.parametrize("suffix", ["avif", "heic"])
def test_avif_and_heic_keep_their_depth(tmp_path, suffix, bits, channels):
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    original = picture("8" if bits == 8 else "16", channels)
    write_image(first, replace(original, bits=bits if bits > 8 else None), quality=70)
    read = read_image(first)
    assert (read.depth, read.bits, read.notes) == (("8", None, ()) if bits == 8 else ("16", bits, ()))
    assert (read.icc, read.exif, read.xmp) == (original.icc, EXIF, XMP)
    assert (read.alpha is None) == (channels < 4)

    assert write_image(second, from_srgb(read, to_srgb(read))) == ()
    back = read_image(second)
    np.testing.assert_array_equal(back.pixels, read.pixels)
    if channels == 4:
        np.testing.assert_array_equal(back.alpha, read.alpha)
    assert (back.icc, back.exif, back.xmp, back.bits) == (read.icc, read.exif, read.xmp, read.bits)

    write_image(second, from_srgb(read, 1 - to_srgb(read)), overwrite=True)  # coded anew: still the same depth
    back = read_image(second)
    assert (back.bits, back.icc, back.exif, back.xmp) == (read.bits, read.icc, read.exif, read.xmp)


@pytest.mark.parametrize("bits", [8, 10, 12])
@pytest.mark.parametrize("suffix", ["avif", "heic"])
def test_quality_100_is_without_loss(tmp_path, suffix, bits):
    top = 2**bits - 1
    values = np.random.default_rng(0).integers(0, top + 1, (24, 32, 3))
    array = values.astype(np.uint8) if bits == 8 else np.rint(values * (65535 / top)).astype(np.uint16)
    assert write_image(tmp_path / f"a.{suffix}", Picture(array, bits=bits if bits > 8 else None), quality=100) == ()
    np.testing.assert_array_equal(read_image(tmp_path / f"a.{suffix}").pixels, array)


def test_sixteen_bits_become_12_in_avif_and_10_in_heic(tmp_path):
    for suffix, name, bits in (("avif", "AVIF", 12), ("heic", "HEIF", 10)):
        notes = write_image(tmp_path / f"a.{suffix}", Picture(pixels("16", 3)), quality=100)
        assert notes == (f"{name} holds no 16-bit values: saved as {bits}",)
        back = read_image(tmp_path / f"a.{suffix}")
        assert back.bits == bits
        assert np.abs(back.pixels.astype(int) - pixels("16", 3)).max() <= 2 ** (15 - bits) + 1


@pytest.mark.parametrize("suffix", ["jpg", "webp", "avif", "heic"])
def test_turned_lossy_files_that_nobody_touched_are_not_coded_again(tmp_path, suffix):
    pillow_heif.register_heif_opener()
    block = Image.Exif()
    block[274] = 6
    image = Image.fromarray(np.ascontiguousarray(np.rot90(pixels("8", 3, (40, 56)), 1)))
    image.save(tmp_path / f"a.{suffix}", exif=block.tobytes(), quality=80)
    read = read_image(tmp_path / f"a.{suffix}")
    assert read.size == (40, 56)
    write_image(tmp_path / f"b.{suffix}", from_srgb(read, to_srgb(read)))
    np.testing.assert_array_equal(read_image(tmp_path / f"b.{suffix}").pixels, read.pixels)
    write_image(tmp_path / f"c.{suffix}", read, metadata="strip")
    bare = read_image(tmp_path / f"c.{suffix}")
    assert bare.size == (40, 56)
    assert np.abs(bare.pixels.astype(int) - read.pixels).mean() < 12


def test_lossy_webp_with_alpha_keeps_its_pixels(tmp_path):
    noisy = pixels("8", 4, (40, 50))
    Image.fromarray(noisy).save(tmp_path / "a.webp", quality=70)
    read = read_image(tmp_path / "a.webp")
    write_image(tmp_path / "b.webp", read, recipe=build_recipe("denoise", {}))
    np.testing.assert_array_equal(
        np.asarray(Image.open(tmp_path / "b.webp")), np.asarray(Image.open(tmp_path / "a.webp"))
    )
    assert read_recipe(tmp_path / "b.webp")["command"] == "denoise"


def test_heic_without_its_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(MissingDependencyError) as caught:
        write_image(tmp_path / "a.heic", Picture(smooth(3)))
    assert str(caught.value) == (
        "HEIC files need pillow-heif, which is not installed. Run `pip install glocal[formats]`."
    )
