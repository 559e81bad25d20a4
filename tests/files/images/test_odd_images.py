"""Pictures as rarer programs and cameras write them: read right, or refused in words that tell why."""

import io
import struct
import time
import zlib

import imagecodecs
import numpy as np
import pillow_heif
import pytest
import tifffile
from PIL import Image

from glocal.errors import InputError
from glocal.files.images import bmff
from glocal.files.images.colors import cmyk_to_rgb, from_srgb, to_srgb
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image
from glocal.files.metadata import exif
from glocal.files.metadata.profiles import numbered_profile
from glocal.files.reading import Unreadable

CMYK = "CMYK converted to sRGB"
ROWS, COLUMNS = np.mgrid[0:48, 0:64]
RGB = np.stack([127 + 100 * np.sin(COLUMNS / 20 + i) * np.cos(ROWS / 15) for i in range(3)], -1).astype(np.uint8)
DEEP = RGB.astype(np.uint16) * 257 + np.random.default_rng(0).integers(0, 200, RGB.shape).astype(np.uint16)
INKS = np.asarray(Image.fromarray(RGB).convert("CMYK"))
P3 = (0.680, 0.320, 1, 0.265, 0.690, 1, 0.150, 0.060, 1)
PROFILES = {
    "P3": bytes(imagecodecs.cms_profile("rgb", whitepoint=(0.3127, 0.3290, 1.0), primaries=P3, gamma=2.2)),
    "gray": bytes(imagecodecs.cms_profile("gray", gamma=1.8)),
}


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def same_again(path):
    """Read a picture, write it with strength 0 in the same format, and compare; returns what was read."""
    read = read_image(path)
    again = path.with_name(f"again{path.suffix}")
    write_image(again, from_srgb(read, to_srgb(read)))
    back = read_image(again)
    np.testing.assert_array_equal(back.pixels, read.pixels)
    assert (back.alpha is None) == (read.alpha is None)
    if read.alpha is not None:
        np.testing.assert_array_equal(back.alpha, read.alpha)
    assert (back.pixels.dtype, back.icc) == (read.pixels.dtype, read.icc)
    return read


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("depth", ["8", "16"])
def test_cmyk_tiffs(tmp_path, depth, planar, order):
    inks = INKS if depth == "8" else INKS.astype(np.uint16) * 257
    stored = inks if planar == "contig" else np.moveaxis(inks, -1, 0)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="separated", planarconfig=planar, byteorder=order)
    read = same_again(tmp_path / "a.tif")
    assert (read.depth, read.notes, read.icc) == (depth, (CMYK,), None)
    assert np.abs(to_srgb(read) * 255 - RGB).max() <= 1


def test_cmyk_with_alpha(tmp_path):
    stored = np.concatenate([INKS, RGB[:, :, :1]], axis=2)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="separated", extrasamples=["unassalpha"])
    read = same_again(tmp_path / "a.tif")
    np.testing.assert_array_equal(read.alpha, RGB[:, :, 0])
    assert np.abs(read.pixels.astype(int) - RGB).max() <= 1


def cmyk_profile() -> bytes:
    """A profile of one small table: paper is white, cyan alone is a gray of Lab (50, 0, 0), all else is black."""
    ramp = bytes(range(256))
    matrix = struct.pack(">9i", *[65536 if i % 4 == 0 else 0 for i in range(9)])
    nodes = b"".join(bytes([{0: 255, 8: 128}.get(node, 0), 128, 128]) for node in range(16))
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + matrix + ramp * 4 + nodes + ramp * 3
    head = struct.pack(">I4sI4s4s4s", 0, b"lcms", 0x02400000, b"prtr", b"CMYK", b"Lab ") + bytes(12) + b"acsp"
    head = head.ljust(68, b"\0") + struct.pack(">3I", 0xF6D6, 0x10000, 0xD32D)
    data = head.ljust(128, b"\0") + struct.pack(">I4sII", 1, b"A2B0", 144, len(table)) + table
    return struct.pack(">I", len(data)) + data[4:]


def test_the_profile_of_cmyk_is_honoured(tmp_path):
    icc = cmyk_profile()
    for depth in (np.uint8, np.uint16):
        inks = np.zeros((2, 3, 4), depth)
        inks[0, :, 0] = np.iinfo(depth).max
        tifffile.imwrite(tmp_path / "a.tif", inks, photometric="separated", iccprofile=icc)
        seen = to_srgb(read_image(tmp_path / "a.tif")) * 255
        np.testing.assert_allclose(seen[0], 119, atol=2)  # L = 50
        np.testing.assert_allclose(seen[1], 255, atol=2)
    cyan = np.array([[[1, 0, 0, 0]]], np.float32)
    np.testing.assert_allclose(cmyk_to_rgb(cyan, icc) * 255, 119, atol=2)
    np.testing.assert_array_equal(cmyk_to_rgb(cyan, icc[:200])[0, 0], [0, 1, 1])  # damaged: by the plain formula


@pytest.mark.parametrize("options", [{}, {"icc_profile": cmyk_profile()}])
def test_inverted_cmyk_jpegs(tmp_path, options):
    Image.fromarray(INKS, "CMYK").save(tmp_path / "a.jpg", quality=98, **options)
    assert b"Adobe" in (tmp_path / "a.jpg").read_bytes()
    read = read_image(tmp_path / "a.jpg")
    assert (read.notes, read.icc) == ((CMYK,), None)
    if not options:
        assert np.abs(read.pixels.astype(int) - RGB).mean() < 2


def test_gray_with_alpha_of_16_bits(tmp_path):
    both = DEEP[:, :, :2]
    tifffile.imwrite(tmp_path / "a.tif", both, photometric="minisblack", extrasamples=["unassalpha"])
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(np.ascontiguousarray(both)))
    for name in ("a.tif", "a.png"):
        read = same_again(tmp_path / name)
        np.testing.assert_array_equal(read.pixels[:, :, 0], both[:, :, 0])
        np.testing.assert_array_equal(read.alpha, both[:, :, 1])


@pytest.mark.parametrize("transparency", [3, bytes(range(0, 160, 10))])
def test_palettes_with_transparency(tmp_path, transparency):
    Image.fromarray(RGB).quantize(16).save(tmp_path / "a.png", transparency=transparency)
    read = same_again(tmp_path / "a.png")
    expected = np.asarray(Image.open(tmp_path / "a.png").convert("RGBA"))
    np.testing.assert_array_equal(np.dstack([read.pixels, read.alpha]), expected)
    assert read.notes == ("palette converted to RGB",)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_one_color_that_is_transparent(tmp_path, mode):
    image = Image.fromarray(RGB).convert(mode)
    image.save(tmp_path / "a.png", transparency=image.getpixel((5, 7)))
    read = same_again(tmp_path / "a.png")
    np.testing.assert_array_equal(read.alpha, np.asarray(Image.open(tmp_path / "a.png").convert("RGBA"))[:, :, 3])
    assert read.alpha[7, 5] == 0


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp"])
def test_one_bit(tmp_path, suffix):
    image = Image.fromarray(RGB).convert("1")
    image.save(tmp_path / f"a.{suffix}")
    read = same_again(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(read.pixels[:, :, 0], np.asarray(image) * np.uint8(255))
    assert read.notes == ("black and white converted to gray",)


def test_twelve_bits_fill_the_range(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", DEEP[:, :, 0] >> 4, bitspersample=12, photometric="minisblack")
    read = same_again(tmp_path / "a.tif")
    assert read.notes == ("12 bit widened to 16 bit",)
    assert np.abs(read.pixels[:, :, 0].astype(int) - DEEP[:, :, 0]).max() <= 16
    (tmp_path / "a.jpg").write_bytes(imagecodecs.jpeg8_encode(DEEP >> 4, bitspersample=12, level=95))
    with pytest.raises(InputError, match=r"a JPEG of 12 bits is not supported\. Save it again as a 16-bit TIFF or PNG"):
        read_image(tmp_path / "a.jpg")


def test_further_pages_are_told_but_smaller_versions_are_not(tmp_path):
    for name, reduced in (("pages.tif", 0), ("thumbnail.tif", 1)):
        for big in (False, True):
            with tifffile.TiffWriter(tmp_path / name, bigtiff=big) as file:
                file.write(RGB, photometric="rgb", metadata=None)
                file.write(RGB[::2, ::2], photometric="rgb", metadata=None, subfiletype=reduced)
            read = read_image(tmp_path / name)
            np.testing.assert_array_equal(read.pixels, RGB)
            assert read.notes == (() if reduced else ("only the first page of the file is used",))
    pages = [Image.fromarray(RGB).quantize(8)] * 2
    pages[0].save(tmp_path / "palette.tif", save_all=True, append_images=pages[1:])
    assert read_image(tmp_path / "palette.tif").notes[-1] == "only the first page of the file is used"


@pytest.mark.parametrize("suffix", ["png", "webp", "avif"])
def test_of_animations_the_first_frame_is_used(tmp_path, suffix):
    frames = [Image.fromarray(RGB), Image.fromarray(255 - RGB)]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], duration=100)
    read = read_image(tmp_path / f"a.{suffix}")
    assert "only the first" in read.notes[0]
    assert np.abs(read.pixels.astype(int) - RGB).mean() < 4
    write_image(tmp_path / f"b.{suffix}", read)  # not the old stream, which has all frames
    assert read_image(tmp_path / f"b.{suffix}").notes == ()


def test_gif_is_refused(tmp_path):
    Image.fromarray(RGB).save(tmp_path / "a.gif")
    with pytest.raises(InputError, match=r"its content is not an image that can be read here\. Use one of JPEG, PNG"):
        read_image(tmp_path / "a.gif")


def interlaced(array: np.ndarray) -> bytes:
    """A 16-bit PNG of RGB pixels in seven passes."""
    rows = b""
    for x, y, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        for row in array[y::dy, x::dx]:
            rows += b"\0" + row.astype(">u2").tobytes()
    out = b"\x89PNG\r\n\x1a\n"
    head = struct.pack(">IIBBBBB", array.shape[1], array.shape[0], 16, 2, 0, 0, 1)
    return out + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_interlaced_png_of_16_bits(tmp_path):
    (tmp_path / "a.png").write_bytes(interlaced(DEEP))
    np.testing.assert_array_equal(same_again(tmp_path / "a.png").pixels, DEEP)


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg", "avif", "heic"])
@pytest.mark.parametrize("name", ["P3", "gray"])
def test_profiles_survive(tmp_path, suffix, name):
    array = RGB if name == "P3" else RGB[:, :, :1]
    assert write_image(tmp_path / f"a.{suffix}", Picture(array, icc=PROFILES[name])) == ()
    read = same_again(tmp_path / f"a.{suffix}")
    assert read.icc == PROFILES[name]
    assert np.abs(to_srgb(read) * 255 - array).max() > 8  # the profile is not that of sRGB, and is honoured


def test_webp_has_no_gray(tmp_path):
    original = Picture(RGB[:, :, :1], icc=PROFILES["gray"])
    notes = write_image(tmp_path / "a.webp", original, quality=100)
    assert notes == ("WEBP holds no gray profile: converted to sRGB",)
    read = same_again(tmp_path / "a.webp")
    assert read.icc is None
    assert np.abs(to_srgb(read) - to_srgb(original)).mean() < 0.01


def test_lab_tiffs_lose_their_profile_with_their_colors(tmp_path):
    Image.fromarray(RGB).convert("LAB").save(tmp_path / "a.tif")
    read = same_again(tmp_path / "a.tif")
    assert (read.icc, read.notes) == (None, ("LAB converted to RGB",))


def test_an_orientation_of_another_type_is_applied_once(tmp_path):
    for order in "<>":
        block = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IHHHIII", 8, 1, 274, 4, 1, 3, 0)
        write_image(tmp_path / "a.png", Picture(RGB))
        plain = (tmp_path / "a.png").read_bytes()
        (tmp_path / "a.png").write_bytes(plain[:33] + chunk(b"eXIf", block) + plain[33:])
        read = read_image(tmp_path / "a.png")
        np.testing.assert_array_equal(read.pixels, RGB[::-1, ::-1])
        assert exif.orientation(read.exif) == 1
        (tmp_path / "a.png").unlink()


def avif(**options) -> bytes:
    return bytes(imagecodecs.avif_encode(RGB, level=100, **options))


def test_colors_by_number(tmp_path):
    (tmp_path / "p3.avif").write_bytes(avif(primaries=12, transfer=13))
    wide = read_image(tmp_path / "p3.avif")
    expected = to_srgb(Picture(RGB, icc=numbered_profile(12, 13)))
    np.testing.assert_allclose(to_srgb(wide), expected, atol=1e-6)
    assert np.abs(expected * 255 - RGB).max() > 8
    assert same_again(tmp_path / "p3.avif").icc == wide.icc
    write_image(tmp_path / "p3.png", wide)
    assert read_image(tmp_path / "p3.png").icc == wide.icc
    plain = bytes(imagecodecs.png_encode(RGB))
    (tmp_path / "numbers.png").write_bytes(plain[:33] + chunk(b"cICP", bytes([12, 13, 0, 1])) + plain[33:])
    np.testing.assert_allclose(to_srgb(same_again(tmp_path / "numbers.png")), expected, atol=1e-6)
    for transfer, name in ((16, "PQ"), (18, "HLG")):
        (tmp_path / "hdr.avif").write_bytes(avif(primaries=9, transfer=transfer))
        (tmp_path / "hdr.png").write_bytes(plain[:33] + chunk(b"cICP", bytes([9, transfer, 0, 1])) + plain[33:])
        for path in (tmp_path / "hdr.avif", tmp_path / "hdr.png"):
            with pytest.raises(InputError) as caught:
                read_image(path)
            assert f"its colours are HDR ({name}), which is not supported. Save it again without HDR" in str(
                caught.value
            )


def test_items_in_many_pieces_cost_no_time(tmp_path):
    items = b"".join(struct.pack(">HHH", number, 0, 0xFFFF) for number in range(5000))
    iloc = bmff.box(b"iloc", b"\0\0\0\0\0\0", struct.pack(">H", 5000), items)
    meta = bmff.box(b"meta", b"\0\0\0\0", iloc)
    started = time.process_time()
    with pytest.raises(Unreadable, match="its items are in too many pieces"):
        _ = bmff.Container(meta).places
    assert time.process_time() - started < 1


def test_containers_that_are_not_known(tmp_path):
    data = avif()
    with pytest.raises(Unreadable, match="a box of the file is cut short"):
        bmff.Container(data.replace(b"\0\0\0\x21hdlr", b"\x0f\0\0\x21hdlr"))
    with pytest.raises(Unreadable, match="an item reaches beyond the end of the file"):
        bmff.with_metadata(data[:-1], exif=None, xmp=None)
    for old, new, why in (
        (b"meta", b"beta", "it is not a file of still pictures"),
        (b"infe\2", b"infe\1", "its list of items has an unknown format"),
        (b"iloc\0", b"iloc\3", "its items are stored where they cannot be read"),
    ):
        with pytest.raises(Unreadable, match=why):
            bmff.with_metadata(data.replace(old, new), exif=None, xmp=None)
    head, _, tail = data.partition(b"iloc")
    with pytest.raises(Unreadable, match="an item reaches beyond the end of the file"):
        bmff.with_metadata(head + b"iloc" + tail[:18] + b"\x7f" + tail[19:], exif=None, xmp=None)


def test_other_metadata_leave_the_coded_bytes_alone(tmp_path):
    data = avif()
    once = bmff.with_metadata(data, exif=exif.pack({271: exif.Tag(2, b"Maker\0")}), xmp=b"<a/>", icc=PROFILES["P3"])
    info = Image.open(io.BytesIO(once)).info
    assert (info["xmp"], info["icc_profile"]) == (b"<a/>", PROFILES["P3"])
    np.testing.assert_array_equal(imagecodecs.avif_decode(once), RGB)
    bare = bmff.with_metadata(once, exif=None, xmp=None)
    assert "xmp" not in Image.open(io.BytesIO(bare)).info
    assert b"<a/>" not in bare
    assert b"Maker" not in bare
    np.testing.assert_array_equal(imagecodecs.avif_decode(bare), RGB)
    assert bmff.depth_of(bare) == 8
    assert bmff.depth_of(bytes(imagecodecs.avif_encode(DEEP >> 4, bitspersample=12))) == 12


@pytest.mark.parametrize("progressive", [False, True])
def test_stripping_takes_the_pictures_behind_a_jpeg_as_well(tmp_path, progressive):
    stream = io.BytesIO()
    block = Image.Exif()
    block[271] = "Maker"
    image = Image.fromarray(RGB)
    image.save(
        stream, "JPEG", exif=block.tobytes(), comment=b"secret", progressive=progressive, icc_profile=PROFILES["P3"]
    )
    extra = b"\xff\xe2\0\x0aMPF\0hide\xff\xeb\0\x08secret"
    (tmp_path / "a.jpg").write_bytes(stream.getvalue()[:2] + extra + stream.getvalue()[2:] + stream.getvalue())
    read = read_image(tmp_path / "a.jpg")
    write_image(tmp_path / "b.jpg", read, metadata="strip")
    back = read_image(tmp_path / "b.jpg")
    np.testing.assert_array_equal(back.pixels, read.pixels)
    assert back.icc == PROFILES["P3"]
    stripped = (tmp_path / "b.jpg").read_bytes()
    assert not any(word in stripped for word in (b"Maker", b"secret", b"hide"))
    assert stripped.count(b"\xff\xd8\xff") == 1


def test_tiles_thumbnails_and_what_cameras_put_behind(tmp_path):
    pillow_heif.register_heif_opener()
    big = np.ascontiguousarray(np.tile(RGB, (4, 4, 1)))
    Image.fromarray(big).save(tmp_path / "a.heic", tile_size=64, thumbnails=[64], icc_profile=PROFILES["P3"])
    with (tmp_path / "a.heic").open("ab") as file:
        file.write(b"\xff\xff\xff\xffSEFT of a camera")
    read = same_again(tmp_path / "a.heic")
    assert (read.size, read.icc) == ((192, 256), PROFILES["P3"])
    again = pillow_heif.open_heif(tmp_path / "again.heic")
    assert len(again.info["thumbnails"]) == 1
    assert again.info["tiling"]["tile_width"] == 64


def test_writing_avif_takes_no_age(tmp_path):
    noisy = np.random.default_rng(0).integers(0, 255, (400, 500, 3)).astype(np.uint8)
    started = time.process_time()
    write_image(tmp_path / "a.avif", Picture(noisy))
    assert time.process_time() - started < 4
