"""What surrounds a picture is kept where the new format has a place for it, and named where it has none."""

import io
import struct

import numpy as np
import pytest
import tifffile
from PIL import Image, TiffImagePlugin

from glocal.files.images.colors import from_srgb, to_srgb
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image, read_recipe
from glocal.files.images.write import write_image
from glocal.files.metadata import exif, iptc
from glocal.files.provenance import build_recipe, to_json

RECORDS = b"\x1c\x02\x05\x00\x05Title\x1c\x02\x19\x00\x03sea"
COMMENTS = (b"first comment", "zweiter Kommentar: \xe4".encode())
PIXELS = np.random.default_rng(0).integers(0, 255, (16, 20, 3), np.uint8)


def jpeg(path):
    """A JPEG file with two comments and a Photoshop block that has more in it than IPTC."""
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, "JPEG", quality=95)
    other = b"8BIM" + struct.pack(">HBBI", 0x0BB7, 1, ord("x"), 3) + b"abc\0"
    block = iptc.PHOTOSHOP + other + iptc.wrapped(RECORDS).removeprefix(iptc.PHOTOSHOP)
    extra = b"".join(
        bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body
        for marker, body in [(0xED, block), *((0xFE, comment) for comment in COMMENTS)]
    )
    data = stream.getvalue()
    path.write_bytes(data[:2] + extra + data[2:])
    return path


def changed(picture: Picture) -> Picture:
    return from_srgb(picture, 1 - to_srgb(picture))


@pytest.mark.parametrize("change", [changed, lambda picture: picture])
def test_iptc_and_comments_stay_in_a_jpeg(tmp_path, change):
    picture = read_image(jpeg(tmp_path / "a.jpg"))
    assert (picture.iptc, picture.comments) == (RECORDS, COMMENTS)
    assert write_image(tmp_path / "b.jpg", change(picture), recipe=build_recipe("denoise", {})) == ()
    back = read_image(tmp_path / "b.jpg")
    assert (back.iptc, back.comments) == (RECORDS, COMMENTS)
    with Image.open(tmp_path / "b.jpg") as seen:  # another reader finds them as well
        assert seen.info["photoshop"][0x0404] == RECORDS
        assert [bytes(body) for kind, body in seen.applist if kind == "COM"] == list(COMMENTS)


@pytest.mark.parametrize("change", [changed, lambda picture: picture])
def test_stripping_takes_them_away(tmp_path, change):
    picture = read_image(jpeg(tmp_path / "a.jpg"))
    write_image(tmp_path / "b.jpg", change(picture), metadata="strip")
    data = (tmp_path / "b.jpg").read_bytes()
    assert all(text not in data for text in (RECORDS, *COMMENTS, b"Photoshop"))


def test_a_comment_alone_is_no_reason_to_drop_it(tmp_path):
    """With neither EXIF nor XMP, unchanged pixels keep their comment."""
    write_image(tmp_path / "a.jpg", Picture(PIXELS, comments=(b"alone",)))
    write_image(tmp_path / "b.jpg", read_image(tmp_path / "a.jpg"))
    assert read_image(tmp_path / "b.jpg").comments == (b"alone",)


@pytest.mark.parametrize(
    ("suffix", "note"),
    [
        ("png", ()),
        ("tif", ("TIFF has no place for comments: dropped",)),
        ("webp", ("WEBP has no place for IPTC and comments: dropped",)),
        ("avif", ("AVIF has no place for IPTC and comments: dropped",)),
        ("bmp", ("BMP has no place for IPTC and comments: dropped",)),
    ],
)
def test_other_formats_keep_or_name_them(tmp_path, suffix, note):
    picture = changed(read_image(jpeg(tmp_path / "a.jpg")))
    assert write_image(tmp_path / f"b.{suffix}", picture) == note
    back = read_image(tmp_path / f"b.{suffix}")
    assert back.iptc == (RECORDS if suffix in ("png", "tif") else None)
    if suffix == "png":
        assert "Kommentar" in back.text["Comment"]
        write_image(tmp_path / "c.jpg", back)
        assert read_image(tmp_path / "c.jpg").iptc == RECORDS


def test_png_texts_are_named_when_a_format_has_none(tmp_path):
    notes = write_image(tmp_path / "a.webp", Picture(PIXELS, text={"Title": "sea"}))
    assert notes == ("WEBP has no place for PNG texts: dropped",)


def test_custom_tiff_tags_stay(tmp_path):
    """GeoTIFF, and a program that uses the number under which version 0.1 kept its recipe."""
    tags = [
        (33550, 12, 3, (0.5, 0.5, 0.0), True),
        (34735, 3, 4, (1, 1, 0, 0), True),
        (65100, 7, 5, b"their", True),
        (37724, 7, 4, b"8BPS", True),
    ]
    tifffile.imwrite(tmp_path / "a.tif", PIXELS, photometric="rgb", extratags=tags, metadata=None)
    picture = read_image(tmp_path / "a.tif")
    assert picture.notes == ("private TIFF tag dropped: 37724",)
    write_image(tmp_path / "b.tif", changed(picture), recipe=build_recipe("denoise", {}, seed=3))
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        found = file.pages.first.tags
        assert found[33550].value == (0.5, 0.5, 0.0)
        assert found[34735].value == (1, 1, 0, 0)
        assert found[65100].value == b"their"
        assert 37724 not in found
    assert read_recipe(tmp_path / "b.tif")["seed"] == 3
    with Image.open(tmp_path / "b.tif") as seen:  # a registered place: XMP
        assert b"glocal:recipe" in seen.tag_v2[700]


def test_the_old_place_of_a_recipe_is_still_read_and_not_kept(tmp_path):
    text = to_json(build_recipe("denoise", {}, seed=5)).encode()
    tifffile.imwrite(tmp_path / "a.tif", PIXELS, photometric="rgb", extratags=[(65100, 7, len(text), text, True)])
    assert read_recipe(tmp_path / "a.tif")["seed"] == 5
    write_image(tmp_path / "b.tif", read_image(tmp_path / "a.tif"))
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert 65100 not in file.pages.first.tags


def test_private_tags_go_before_exif_does(tmp_path):
    block = exif.pack({271: exif.Tag(2, b"maker\0"), 40000: exif.Tag(7, bytes(70_000))})
    notes = write_image(tmp_path / "a.jpg", Picture(PIXELS, exif=block))
    assert notes == ("private tags dropped: with them, EXIF is larger than JPEG allows",)
    assert set(exif.parse(read_image(tmp_path / "a.jpg").exif)) == {271}


@pytest.mark.parametrize(
    ("extra", "alpha", "notes"),
    [
        (("unassalpha",), 0, ()),
        (("unspecified",), None, ("1 extra channel without a stated meaning dropped",)),
        (("unspecified", "unassalpha"), 1, ("1 extra channel without a stated meaning dropped",)),
        (("unspecified", "unspecified"), None, ("2 extra channels without a stated meaning dropped",)),
    ],
)
def test_an_extra_tiff_channel_is_alpha_only_if_it_says_so(tmp_path, extra, alpha, notes):
    more = np.random.default_rng(1).integers(0, 255, (16, 20, len(extra)), np.uint8)
    stored = np.concatenate([PIXELS, more], 2)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="rgb", extrasamples=extra, planarconfig="contig")
    picture = read_image(tmp_path / "a.tif")
    np.testing.assert_array_equal(picture.pixels, PIXELS)
    assert picture.notes == notes
    assert (picture.alpha is None) == (alpha is None)
    if alpha is not None:
        np.testing.assert_array_equal(picture.alpha, more[:, :, alpha])


def test_the_tag_numbers_are_those_of_other_programs():
    assert TiffImagePlugin.IPTC_NAA_CHUNK == 33723
