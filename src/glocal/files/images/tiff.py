"""TIFF: tifffile for 8 and 16 bit and float pixels, and the EXIF directories that it leaves aside.

Palette, Lab, YCbCr and bilevel files are left to Pillow. Only the first page is ever looked at, and only
compressions whose decoders stop at the expected size.
"""

from __future__ import annotations

import io
import logging
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from glocal.files.images.colors import cmyk_to_rgb
from glocal.files.images.picture import Array, Empty, Picture, copied, unmultiplied, with_alpha
from glocal.files.metadata import exif as exif_tags
from glocal.files.metadata import iptc
from glocal.files.metadata import xmp as xmp_packets
from glocal.files.metadata.exif import Directory, Tag
from glocal.files.reading import CUT_SHORT, Unreadable

ICC, XMP, IPTC = 34675, 700, 33723
_OLD_RECIPE = 65100  # where version 0.1 put the recipe; other programs use the number as well
_NOT_KEPT = {ICC, IPTC, 34377, 37724}  # Photoshop's resources and layers: the picture before it was changed
_MAX_PRIVATE = 1 << 20  # bytes of one tag
_PLACEHOLDER = 65200  # and on: entries that are given their real number once tifffile, which refuses it, is done
_OFFSETS = (13, 18)  # types of tags that point to further directories
_RESOLUTION, _RESOLUTION_UNIT = (282, 283), 296
_SUBFILE = 254  # its lowest bit: a smaller version of another page
_COMPRESSIONS = {1: "none", 5: "LZW", 7: "JPEG", 8: "deflate", 32946: "deflate", 32773: "PackBits", 50000: "ZSTD"}
# Description, make, model, orientation, software, date, artist, host, rating, copyright, Windows texts.
_DESCRIPTIVE = {270, 271, 272, 274, 305, 306, 315, 316, 18246, 18249, 33432, *range(0x9C9B, 0x9CA0)}
_EXTRA, _ASSOCIATED, _UNASSOCIATED = 338, 1, 2  # channels beyond the colours: alpha that was multiplied in, or not
_MAX_RATIO = 20000  # of decoded to stored bytes; an even picture in ZSTD can reach this, more is a bomb

# What tifffile finds odd in a damaged file does not help users; without a handler it would go to their screen.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


def size_of(data: bytes) -> tuple[int, int]:
    """Height and width from the first directory.

    Raises
    ------
    Unreadable
        There is none, or it lacks the size.
    """
    tags = exif_tags.parse(data)
    width, height = _number(tags, 256), _number(tags, 257)
    if not width or not height:
        raise Unreadable("the TIFF directory is damaged or cut short")
    tile = (_number(tags, 322) or 1) * (_number(tags, 323) or 1)
    if tile > max(1 << 20, 4 * width * height):
        raise Unreadable("the TIFF tiles are larger than the picture")
    return height, width


def decode(data: bytes, empty: Empty = np.empty, *, fallback: Callable[[bytes], Picture]) -> Picture:
    """Read the first page of a TIFF whose size was checked; `fallback` decodes palettes, Lab and bilevel files.

    Raises
    ------
    Unreadable
        The file is damaged, or its layout is not supported.
    """
    tags = exif_tags.parse(data)
    compression = _number(tags, 259) or 1
    photometric = _number(tags, 262)
    bits = _numbers(tags, 258) or [1]
    if len(set(bits)) > 1:
        raise Unreadable(f"the channels have different depths {bits}", "Save it again with one depth for all channels")
    # tifffile leaves YCbCr to the reader of the JPEG streams, so that such files look like RGB here.
    direct = photometric in (0, 1, 2, 5) or (photometric == 6 and compression == 7)
    if not direct or bits[0] in (1, 2, 4):
        picture = fallback(data)
        notes = picture.notes + _pages_note(data) + _dropped_note(tags)
        return replace(picture, notes=notes, **_metadata(tags, drop_icc=picture.icc is None))
    if compression not in _COMPRESSIONS:
        known = ", ".join(sorted(set(_COMPRESSIONS.values())))
        raise Unreadable(f"TIFF compression {compression} is not supported", f"Save it again with one of {known}")
    pixels, alpha, notes = _channels(_pixels(data, empty), tags, photometric, bits[0], empty)
    around = _metadata(tags, drop_icc=photometric == 5)
    notes += _pages_note(data) + _dropped_note(tags)
    return Picture(pixels=pixels, alpha=alpha, format="TIFF", notes=notes, **around)


def write(file: BinaryIO, picture: Picture) -> tuple[str, ...]:
    """Write a TIFF file with the picture's pixels, compressed without loss strip by strip, and its metadata.

    `file` can be read and written at any place. Returns no notes: everything fits.
    """
    import tifffile

    tags = exif_tags.parse(picture.exif) if picture.exif else {}
    inner: dict[int, Directory] = {number: value for number, value in tags.items() if isinstance(value, dict)}
    extra: list[Any] = [
        (number, tag.field_type, tag.count, tag.data, True)
        for number, tag in sorted(tags.items())
        if isinstance(tag, Tag) and _kept(number, tag) and number not in (exif_tags.ORIENTATION, 305, 270)
    ]
    for number, block in ((XMP, picture.xmp), (IPTC, picture.iptc)):
        if block:
            extra.append((number, 1 if number == XMP else 7, len(block), block, True))
    extra += [(_PLACEHOLDER + index, 4, 1, 0, True) for index in range(len(inner))]
    array = with_alpha(picture.pixels, picture.alpha)
    tifffile.imwrite(
        file,
        np.ascontiguousarray(array[:, :, 0] if array.shape[2] == 1 else array),
        byteorder="<",
        photometric="minisblack" if picture.gray else "rgb",
        extrasamples=["unassalpha"] if picture.alpha is not None else None,
        planarconfig="contig" if array.shape[2] > 1 else None,
        compression="zlib",
        predictor=picture.depth != "float",
        iccprofile=picture.icc,
        resolution=picture.dpi,
        resolutionunit="inch" if picture.dpi else None,
        description=_text(tags, 270) or None,
        software=_text(tags, 305) or False,
        metadata=None,
        extratags=extra,
    )
    _add_directories(file, inner)
    return ()


def recipe_in(data: bytes) -> str | None:
    """Return the recipe in the XMP of a TIFF file, or in the tag of version 0.1; None if there is none."""
    tags = exif_tags.parse(data)
    packet, tag = tags.get(XMP), tags.get(_OLD_RECIPE)
    found = xmp_packets.recipe_in(packet.data) if isinstance(packet, Tag) else None
    if found is None and isinstance(tag, Tag) and _is_recipe(tag):
        return tag.data.decode("utf-8", "replace")
    return found


def _is_recipe(tag: Tag) -> bool:
    return tag.field_type == 7 and tag.data.startswith(b"{") and b'"recipe":' in tag.data


def _kept(number: int, tag: Tag) -> bool:
    """Whether a tag of the first page belongs to the picture, and not to how its pixels are stored."""
    if number in _DESCRIPTIVE:
        return True
    if number < exif_tags.PRIVATE or number in _NOT_KEPT or len(tag.data) > _MAX_PRIVATE or tag.field_type in _OFFSETS:
        return False
    return not (number == _OLD_RECIPE and _is_recipe(tag))


def _pixels(data: bytes, empty: Empty) -> Array:
    """Decode the first page to `(h, w, samples)`, in a place that `empty` makes."""
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages.first
        if page.imagedepth != 1 or page.dtype is None:
            raise Unreadable("it is a TIFF volume or of an unknown sample type", "Save it again as a flat picture")
        if sum(page.databytecounts) * _MAX_RATIO < page.nbytes:
            raise Unreadable(CUT_SHORT)
        if any(at + n > len(data) for at, n in zip(page.dataoffsets, page.databytecounts, strict=False)):
            raise Unreadable(CUT_SHORT)
        array = empty(page.shape, page.dtype)
        page.asarray(out=array, maxworkers=1)
        if page.planarconfig == 2 and array.ndim == 3:
            array = np.moveaxis(array, 0, -1)
    return copied(array[:, :, None] if array.ndim == 2 else array, empty)


def _channels(
    array: Array, tags: Directory, photometric: int | None, bits: int, empty: Empty
) -> tuple[Array, Array | None, tuple[str, ...]]:
    """Colour and alpha in one of our four types, with notes on what had to be converted."""
    notes: list[str] = []
    colors = {2: 3, 6: 3, 5: 4}.get(photometric or 0, 1)
    if array.ndim != 3 or array.shape[2] < colors:
        raise Unreadable(f"a TIFF of shape {array.shape} is not a picture", "Save it again as a flat picture")
    extra = array.shape[2] - colors
    meanings = _numbers(tags, _EXTRA) or [_UNASSOCIATED] * extra  # old files have alpha without saying so
    place = next((i for i, meaning in enumerate(meanings[:extra]) if meaning in (_ASSOCIATED, _UNASSOCIATED)), None)
    dropped = extra - (place is not None)
    if dropped:
        notes.append(f"{dropped} extra channel{'s' if dropped > 1 else ''} without a stated meaning dropped")
        kept = [*range(colors), *([] if place is None else [colors + place])]
        array = copied(array[:, :, kept], empty)
    if array.dtype.kind == "u" and bits < 8 * array.dtype.itemsize <= 16:
        notes.append(f"{bits} bit widened to {8 * array.dtype.itemsize} bit")
        top, full = 2**bits - 1, np.iinfo(array.dtype).max
        array = ((array.astype(np.uint32) * full + top // 2) // top).astype(array.dtype)
    if array.dtype not in (np.uint8, np.uint16, np.float32):
        notes.append(f"{array.dtype} converted to float32")
        top = np.iinfo(array.dtype).max if array.dtype.kind in "iu" else 1
        array = (array.astype(np.float64) / top).astype(np.float32)
    if photometric == 0 and array.dtype.kind == "u":
        array[:, :, :1] = np.iinfo(array.dtype).max - array[:, :, :1]
    pixels, alpha = array[:, :, :colors], array[:, :, colors] if array.shape[2] > colors else None
    if alpha is not None and place is not None and meanings[place] == _ASSOCIATED:
        notes.append("colours divided by their alpha")
        pixels = unmultiplied(pixels, alpha, top=np.iinfo(alpha.dtype).max if alpha.dtype.kind == "u" else 1.0)
    if colors == 4:
        icc = tags.get(ICC)
        notes.append("CMYK converted to sRGB")
        pixels = cmyk_to_rgb(pixels, icc.data if isinstance(icc, Tag) else None)
    return copied(pixels, empty), None if alpha is None else copied(alpha, empty), tuple(notes)


def _dropped_note(tags: Directory) -> tuple[str, ...]:
    """Names private tags that are not kept."""
    lost = [n for n, v in tags.items() if n >= exif_tags.PRIVATE and isinstance(v, Tag) and not _kept(n, v)]
    lost = [n for n in lost if n not in (ICC, IPTC, _OLD_RECIPE)]
    if not lost:
        return ()
    return (f"private TIFF tag{'s' if len(lost) > 1 else ''} dropped: {', '.join(map(str, sorted(lost)))}",)


def _pages_note(data: bytes) -> tuple[str, ...]:
    """Says so if the file has further pages; smaller versions of the first one are none."""
    more = exif_tags.parse(data, page=1)
    if not more or (_number(more, _SUBFILE) or 0) & 1:
        return ()
    return ("only the first page of the file is used",)


def _metadata(tags: Directory, *, drop_icc: bool = False) -> dict[str, Any]:
    """Return the tags of a TIFF file as fields of `Picture`."""
    icc, xmp, records = tags.get(ICC), tags.get(XMP), tags.get(IPTC)
    kept = {n: v for n, v in tags.items() if isinstance(v, dict) or _kept(n, v)}
    kept = {n: v for n, v in kept.items() if n != exif_tags.ORIENTATION} if _settled(kept) else kept
    return {
        "icc": icc.data if isinstance(icc, Tag) and not drop_icc else None,
        "xmp": xmp.data if isinstance(xmp, Tag) else None,
        "exif": exif_tags.pack(kept) if kept else None,
        "dpi": _dpi(tags),
        "iptc": iptc.unwrapped(records.data) if isinstance(records, Tag) else None,
    }


def _settled(tags: Directory) -> bool:
    """Whether the orientation is the ordinary one, which every TIFF may state without having any EXIF."""
    return _number(tags, exif_tags.ORIENTATION) in (None, 1)


def _dpi(tags: Directory) -> tuple[float, float] | None:
    """Resolution in dots per inch."""
    scale = {2: 1.0, 3: 2.54}.get(_number(tags, _RESOLUTION_UNIT) or 2)
    out = []
    for number in _RESOLUTION:
        tag = tags.get(number)
        if scale is None or not isinstance(tag, Tag) or tag.field_type != 5 or len(tag.data) < 8:
            return None
        top, bottom = struct.unpack("<II", tag.data[:8])
        if not top or not bottom:
            return None
        out.append(top / bottom * scale)
    return (out[0], out[1]) if out != [1.0, 1.0] else None


def _add_directories(file: BinaryIO, inner: dict[int, Directory]) -> None:
    """Append EXIF and GPS directories and turn the placeholders into entries that point there."""
    if not inner:
        return
    file.seek(4)
    (start,) = struct.unpack("<I", file.read(4))
    file.seek(start)
    (count,) = struct.unpack("<H", file.read(2))
    entries: list[bytes] = [file.read(12) for _ in range(count)]
    entries = [entry for entry in entries if not _is_placeholder(entry, len(inner))]
    for number, block in inner.items():
        place = file.seek(0, io.SEEK_END)
        file.write(b"\0" * (place % 2))
        place += place % 2
        entries.append(struct.pack("<HHII", number, 4, 1, place))
        file.write(exif_tags.pack(block, base=place))
    file.seek(start + 2)
    entries.sort(key=_number_of)
    file.write(b"".join(entries))


def _number_of(entry: bytes) -> int:
    return int.from_bytes(entry[:2], "little")


def _is_placeholder(entry: bytes, count: int) -> bool:
    return _PLACEHOLDER <= _number_of(entry) < _PLACEHOLDER + count


def _numbers(tags: Directory, number: int) -> list[int]:
    tag = tags.get(number)
    if not isinstance(tag, Tag) or tag.field_type not in (1, 3, 4, 16):
        return []
    size = {1: 1, 3: 2, 4: 4, 16: 8}[tag.field_type]
    return [int.from_bytes(tag.data[i : i + size], "little") for i in range(0, min(len(tag.data), 64 * size), size)]


def _number(tags: Directory, number: int) -> int | None:
    return next(iter(_numbers(tags, number)), None)


def _text(tags: Directory, number: int) -> str | None:
    tag = tags.get(number)
    if not isinstance(tag, Tag) or tag.field_type != 2:
        return None
    # tifffile writes only ASCII here; other letters are rare and are replaced rather than refused.
    return tag.data.rstrip(b"\0").decode("utf-8", "replace").encode("ascii", "replace").decode()
