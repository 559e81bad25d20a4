"""Hostile and broken image files: a clear error within a second, in bounded memory."""

import io
import resource
import struct
import subprocess
import sys
import time
import zlib

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from glocal.errors import ArgumentError, InputError
from glocal.files.images.picture import Picture
from glocal.files.images.read import image_size, read_image, read_recipe
from glocal.files.images.write import write_image
from glocal.files.metadata import exif


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: bytes = b"", bits: int = 8, extra: bytes = b"") -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(**options: object) -> bytearray:
    stream = io.BytesIO()
    tifffile.imwrite(stream, np.zeros((20, 30, 3), np.uint16), photometric="rgb", **options)
    return bytearray(stream.getvalue())


def tiff_with(data: bytearray, number: int, value: int) -> bytes:
    """Change the value of one tag of a TIFF file."""
    (start,) = struct.unpack_from("<I", data, 4)
    for at in range(start + 2, start + 2 + 12 * struct.unpack_from("<H", data, start)[0], 12):
        if struct.unpack_from("<H", data, at)[0] == number:
            struct.pack_into("<HI", data, at + 2, 4, 1)
            struct.pack_into("<I", data, at + 8, value)
    return bytes(data)


def tiff_loop() -> bytes:
    """Directories that point to themselves: EXIF in EXIF in EXIF."""
    entries = struct.pack("<HHII", 34665, 4, 1, 8)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 1) + entries + struct.pack("<I", 8) + b"\0" * 64


def bmp(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IHHI", 100, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, *[0] * 6)


def deflate_bomb() -> bytes:
    """A TIFF of 20 x 30 pixels whose strip unpacks to a gigabyte."""
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(1024)) + packer.flush()
    data = tiff(compression="zlib")
    place = len(data)
    data = bytearray(tiff_with(data, 273, place))
    return tiff_with(data, 279, len(body)) + body


NOISE = b"".join(b"\0" + np.random.default_rng(i).bytes(60) for i in range(20))
CASES = {
    "pixels": (png(100_000, 100_000), "it declares 100000 x 100000 pixels, more than the limit of 256,000,000. Use a"),
    "png-empty-body": (png(15_000, 15_000), "the file is cut short. Copy it again from its source"),
    "png-short": (png(20, 20, NOISE)[:600], "the file is cut short."),
    "png-head": (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "the PNG header is damaged."),
    "bmp": (bmp(2_000_000, 2_000_000), "more than the limit"),
    "tiff-size": (tiff_with(tiff(), 256, 1 << 30), "more than the limit"),
    "tiff-loop": (tiff_loop(), "the TIFF directory is damaged or cut short."),
    "tiff-short": (bytes(tiff()[:2000]), "the file is cut short."),
    "tiff-tile": (tiff_with(tiff(tile=(16, 16)), 322, 1 << 28), "the TIFF tiles are larger than the picture."),
    "tiff-code": (tiff_with(tiff(), 259, 34712), "TIFF compression 34712 is not supported. Save it again with one of"),
    "text": (
        b"This is no picture, whatever its name says.",
        "its content is not an image that can be read here. Use one of JPEG",
    ),
    "empty": (b"", "the file is empty. Use one of JPEG, PNG, TIFF"),
    "scans": (
        b"\xff\xd8\xff\xe0" + Image.new("RGB", (9, 9)).tobytes() + b"\xff\xda" * 600,
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_hostile_files_are_refused_at_once(tmp_path, name):
    data, why = CASES[name]
    path = tmp_path / "a.png"
    path.write_bytes(data)
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        read_image(path)
    assert time.process_time() - started < 1
    assert str(caught.value).startswith(f"read image ({path}): ")
    assert why in str(caught.value)


def peak_memory(path) -> int:
    """Bytes that reading a file adds to a fresh process at its peak."""
    code = (
        "import resource, sys; from glocal.errors import GlocalError\n"
        "import imagecodecs, tifffile, PIL.Image; from glocal.files.images.read import read_image\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: read_image(sys.argv[1])\n"
        "except GlocalError: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def test_bombs_take_little_memory(tmp_path):
    text = zlib.compress(b"a" * (200 << 20), 9)
    bombs = {
        "texts.png": png(4, 4, b"\0" * 52, extra=b"".join(chunk(b"zTXt", b"k%d\0\0" % i + text) for i in range(5))),
        "profile.png": png(4, 4, b"\0" * 52, extra=chunk(b"iCCP", b"p\0\0" + text)),
        "strip.tif": deflate_bomb(),
        "large.png": png(15_000, 15_000),
    }
    for name, data in bombs.items():
        (tmp_path / name).write_bytes(data)
        assert peak_memory(tmp_path / name) < 150 << 20, name


def test_the_limit_can_be_chosen(tmp_path):
    write_image(tmp_path / "a.png", Picture(np.zeros((30, 40, 3), np.uint8)))
    assert read_image(tmp_path / "a.png", max_pixels=1200).size == (30, 40)
    assert image_size(tmp_path / "a.png") == (30, 40)
    with pytest.raises(InputError, match="it declares 40 x 30 pixels, more than the limit of 1,199"):
        read_image(tmp_path / "a.png", max_pixels=1199)


def test_large_honest_files_are_read(tmp_path):
    """200 million pixels: more than Pillow allows by itself, less than our limit."""
    Image.new("1", (20_000, 10_000)).save(tmp_path / "a.png")
    assert image_size(tmp_path / "a.png") == (10_000, 20_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def test_missing_folder_and_forbidden(tmp_path):
    for path, why in ((tmp_path / "a.png", "there is no such file. Check the name."), (tmp_path, "it is a folder.")):
        with pytest.raises(InputError) as caught:
            read_image(path)
        assert str(caught.value).startswith(f"read image ({path}): {why}")


def test_not_finite_pixels(tmp_path):
    from glocal.files.images.colors import to_srgb

    array = np.zeros((4, 5, 3), np.float32)
    array[1, 2] = np.nan
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="rgb")
    with pytest.raises(InputError) as caught:
        to_srgb(read_image(tmp_path / "a.tif"))
    assert str(caught.value) == (
        f"read image ({tmp_path / 'a.tif'}): 3 values are NaN, infinite or beyond 1e+38. Replace or scale them first."
    )


def test_no_recipe(tmp_path):
    write_image(tmp_path / "a.png", Picture(np.zeros((3, 4, 3), np.uint8)))
    with pytest.raises(InputError) as caught:
        read_recipe(tmp_path / "a.png")
    assert str(caught.value) == (
        f"read image ({tmp_path / 'a.png'}): it carries no recipe. Use a file that glocal wrote with its metadata kept."
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.xyz", {}, "write image ({p}): the suffix `.xyz` names no image format. Use one of .avif .bmp"),
        ("a.png", {"depth": "12"}, "write_image: `depth` (='12') is unknown. Use keep, 8, 16 or float."),
        ("a.jpg", {"quality": 0}, "write_image: `quality` (=0) is outside of 1 to 100. Use 95 for little loss."),
        ("a.png", {"metadata": "some"}, "write_image: `metadata` (='some') is unknown. Use keep or strip."),
    ],
)
def test_outputs_that_cannot_be(tmp_path, name, options, message):
    with pytest.raises(ArgumentError) as caught:
        write_image(tmp_path / name, Picture(np.zeros((3, 4, 3), np.uint8)), **options)
    assert str(caught.value).startswith(message.format(p=tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_pictures_that_a_format_cannot_hold(tmp_path):
    with pytest.raises(ArgumentError, match=r"JPEG cannot hold this picture .*\. Choose TIFF or PNG\."):
        write_image(tmp_path / "a.jpg", Picture(np.zeros((1, 70_000, 3), np.uint8)))
    assert list(tmp_path.iterdir()) == []


def test_damaged_exif_and_profile_do_not_matter(tmp_path):
    array = np.full((6, 7, 3), 90, np.uint8)
    write_image(
        tmp_path / "a.png", Picture(array, exif=b"II*\0\xff\xff\xff\xff", icc=b"\0" * 36 + b"acsp" + b"\1" * 200)
    )
    from glocal.files.images.colors import to_srgb

    read = read_image(tmp_path / "a.png")
    np.testing.assert_array_equal(read.pixels, array)
    np.testing.assert_allclose(to_srgb(read), 90 / 255, atol=1e-6)
    assert exif.orientation(read.exif) == 1
    assert imagecodecs.png_decode((tmp_path / "a.png").read_bytes()).shape == (6, 7, 3)


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("channels", [3, 4])
def test_webp_files_beyond_the_limit_of_pillow(tmp_path, monkeypatch, lossless, channels):
    """Pillow refuses more than 179 million pixels; ours are 256 million. Here its limit is lowered instead."""
    rng = np.random.default_rng(0)
    alpha = rng.integers(0, 255, (30, 40), np.uint8) if channels == 4 else None
    block = exif.pack({271: exif.Tag(2, b"maker\0")})
    packet = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"></x:xmpmeta>'
    original = Picture(
        rng.integers(0, 255, (30, 40, 3), np.uint8), alpha, format="WEBP", exif=block, xmp=packet, lossless=lossless
    )
    write_image(tmp_path / "a.webp", original, recipe={"recipe": 1, "command": "denoise"})
    expected = read_image(tmp_path / "a.webp")
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 500)
    found = read_image(tmp_path / "a.webp")
    np.testing.assert_array_equal(found.pixels, expected.pixels)
    assert (found.alpha is None) == (alpha is None)
    assert (found.exif, found.xmp, found.lossless, found.format) == (expected.exif, expected.xmp, lossless, "WEBP")
    assert image_size(tmp_path / "a.webp") == (30, 40)
    assert read_recipe(tmp_path / "a.webp")["command"] == "denoise"
    (tmp_path / "b.webp").write_bytes((tmp_path / "a.webp").read_bytes()[:-200])
    with pytest.raises(InputError, match=r"cut short|damaged"):
        read_image(tmp_path / "b.webp")
