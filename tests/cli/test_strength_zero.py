"""A run of strength 0 returns the same pixels, profile, EXIF and XMP, for every command, format and depth."""

import imagecodecs
import numpy as np
import pytest

from glocal.cli.main import run
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image
from glocal.files.metadata import exif

PROFILE = bytes(imagecodecs.cms_profile("adobergb"))
EXIF = exif.pack({271: exif.Tag(2, b"Maker\0"), exif.EXIF_DIRECTORY: {0x927C: exif.Tag(7, b"notes of the maker")}})
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" dc:format="image/x"/>'
    b"</rdf:RDF></x:xmpmeta>"
)
KINDS = [("png", 8), ("png", 16), ("tif", 8), ("tif", 16), ("tif", 32), ("jpg", 8), ("webp", 8), ("bmp", 8)]
KINDS += [("avif", 8), ("avif", 10), ("avif", 12), ("heic", 8), ("heic", 10), ("heic", 12)]
COMMANDS = {
    "denoise": ["--model", "local", "--sigma", "0.05"],
    "color": ["--iterations", "1"],
    "style": ["--preset", "paper", "--size", "keep", "--iterations", "1"],
}
CASES = [("denoise", *kind) for kind in KINDS]
CASES += [(name, *kind) for name in ("color", "style") for kind in (("png", 16), ("tif", 32), ("jpg", 8), ("avif", 10))]


@pytest.mark.parametrize(("command", "suffix", "bits"), CASES)
def test_strength_zero(tmp_path, command, suffix, bits):
    values = np.random.default_rng(0).random((26, 34, 3))
    array = values.astype(np.float32) if bits == 32 else (values * 255).astype(np.uint8)
    if 8 < bits < 32:
        array = (values * 65535).astype(np.uint16)
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    original = Picture(array, icc=PROFILE, exif=EXIF, xmp=XMP, bits=bits if bits in (10, 12) else None)
    write_image(first, original, quality=80)
    write_image(tmp_path / "other.png", Picture((255 * values[::-1]).astype(np.uint8)))
    other = [str(tmp_path / "other.png")] if command != "denoise" else []
    flags = [*COMMANDS[command], "--strength", "0", "--quiet"]
    assert run([command, str(first), *other, "-o", str(second), *flags]) == 0
    before, after = read_image(first), read_image(second)
    np.testing.assert_array_equal(after.pixels, before.pixels)
    assert after.pixels.dtype == array.dtype
    assert (after.icc, after.exif, after.xmp, after.bits) == (before.icc, before.exif, before.xmp, before.bits)
    assert (after.icc == PROFILE) == (suffix != "bmp")
