"""PNG: chunks for what surrounds the pixels, imagecodecs for the pixels, 8 and 16 bit alike."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from glocal.files.images.picture import Array, Empty, Picture, split_alpha, with_alpha
from glocal.files.metadata import iptc
from glocal.files.metadata import xmp as xmp_packets
from glocal.files.metadata.profiles import numbered_profile
from glocal.files.reading import CUT_SHORT, Unreadable

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_XMP = b"XML:com.adobe.xmp"
_RECIPE = b"glocal:recipe"
_MAX_TEXT = 32 << 20
_MAX_RATIO = 1040  # deflate cannot expand by more than 1032


def header(data: bytes) -> tuple[int, int, int]:
    """Height, width and bytes that the decoded rows take, from the first chunk.

    Raises
    ------
    Unreadable
        The header is missing or damaged.
    """
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise Unreadable("the PNG header is damaged")
    width, height, bits, color = struct.unpack(">IIBB", data[16:26])
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(color)
    if channels is None or bits not in (1, 2, 4, 8, 16) or not width or not height:
        raise Unreadable("the PNG header is damaged")
    return height, width, height * ((width * channels * bits + 7) // 8 + 1)


def size_of(data: bytes) -> tuple[int, int]:
    """Height and width from the first chunk."""
    return header(data)[:2]


def decode(data: bytes, empty: Empty = np.empty) -> Picture:
    """Read a PNG whose size was checked.

    Raises
    ------
    Unreadable
        The file is cut short or damaged.
    """
    _, _, needed = header(data)
    around = _Surroundings()
    notes: list[str] = []
    packed = 0
    for fourcc, body in chunks(data):
        if fourcc == b"IDAT":
            packed += len(body)
        elif fourcc == b"acTL":
            notes.append("animation: only the first frame is used")
        elif fourcc == b"PLTE" and data[25] == 3:
            notes.append("palette converted to RGB")
        elif fourcc == b"IHDR" and data[25] == 0 and data[24] < 8:
            bits = data[24]
            notes.append("black and white converted to gray" if bits == 1 else f"{bits} bit widened to 8 bit")
        else:
            around.take(fourcc, body)
    if packed * _MAX_RATIO < needed:
        raise Unreadable(CUT_SHORT)
    pixels, alpha = split_alpha(_decoded(data, empty), empty)
    fields, text = around.fields, around.text
    text.pop(_RECIPE.decode(), None)
    records = iptc.from_text(text.get(iptc.PNG_KEY, ""))
    if records:
        del text[iptc.PNG_KEY]
    dpi = struct.unpack(">II", fields["dpi"]) if "dpi" in fields else None
    if "colors" in fields:  # they come before a profile
        fields["icc"] = numbered_profile(*fields["colors"][:2]) or b""
    return Picture(
        pixels=pixels,
        alpha=alpha,
        format="PNG",
        icc=fields.get("icc") or None,
        exif=fields.get("exif"),
        xmp=fields.get("xmp"),
        dpi=(dpi[0] * 0.0254, dpi[1] * 0.0254) if dpi else None,
        notes=tuple(notes),
        text=text,
        iptc=records,
    )


def _decoded(data: bytes, empty: Empty) -> Array:
    """Decode to (h, w) or (h, w, channels), in a place that `empty` makes if the decoder converts nothing."""
    import imagecodecs

    height, width, _ = header(data)
    bits, color = data[24], data[25]
    channels = {0: (), 2: (3,), 4: (2,), 6: (4,)}.get(color)
    if channels is None or bits < 8 or any(fourcc == b"tRNS" for fourcc, _ in chunks(data)):
        decoded: Array = imagecodecs.png_decode(data)
        return decoded
    pixels = empty((height, width, *channels), np.uint8 if bits == 8 else np.uint16)
    imagecodecs.png_decode(data, out=pixels)
    return pixels


def write(file: BinaryIO, picture: Picture, *, recipe: str | None, level: int = 2) -> tuple[str, ...]:
    """Write a PNG file with the picture's pixels and metadata.

    Returns no notes: everything fits. Level 2 of 9 takes a third of the time of 6 and gives files that are a tenth larger.
    """
    import imagecodecs

    array = with_alpha(picture.pixels, picture.alpha)
    plain = imagecodecs.png_encode(np.ascontiguousarray(array), level=level)
    extra = b""
    if picture.icc:
        extra += _chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(picture.icc))
    if picture.dpi:
        across, down = (min(round(value / 0.0254), 2**31 - 1) for value in picture.dpi)
        extra += _chunk(b"pHYs", struct.pack(">IIB", across, down, 1))
    if picture.exif:
        extra += _chunk(b"eXIf", picture.exif)
    if picture.xmp:
        extra += _text_chunk(_XMP, picture.xmp)
    if picture.iptc:
        extra += _text_chunk(iptc.PNG_KEY.encode(), iptc.to_text(picture.iptc).encode())
    for comment in picture.comments:
        extra += _text_chunk(b"Comment", comment.decode("utf-8", "replace").encode())
    for key, value in picture.text.items():
        extra += _text_chunk(key.encode("latin-1", "replace")[:79], value.encode())
    if recipe is not None:
        extra += _text_chunk(_RECIPE, recipe.encode())
    # The header chunk is always 25 bytes behind an 8-byte signature.
    for part in (memoryview(plain)[:33], extra, memoryview(plain)[33:]):
        file.write(part)
    return ()


def recipe_in(data: bytes) -> str | None:
    """Return the recipe embedded in a PNG file, or None."""
    around = _Surroundings()
    for fourcc, body in chunks(data):
        if fourcc == b"iTXt":
            around.take(fourcc, body)
    return around.text.get(_RECIPE.decode()) or xmp_packets.recipe_in(around.fields.get("xmp"))


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and body of each chunk, up to the first that does not fit into the file."""
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if at + 12 + length > len(data):
            return
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


class _Surroundings:
    """What is found around the pixels. All text together is bounded, since a small chunk can hold a lot of it."""

    def __init__(self) -> None:
        self.fields: dict[str, bytes] = {}
        self.text: dict[str, str] = {}
        self.room = _MAX_TEXT

    def take(self, fourcc: bytes, body: bytes) -> None:
        """Sort in one chunk; one that is damaged or too large is left out."""
        if fourcc == b"eXIf":
            self.fields["exif"] = body
        elif fourcc == b"cICP" and len(body) == 4:
            self.fields["colors"] = body
        elif fourcc == b"pHYs" and len(body) == 9 and body[8] == 1:
            self.fields["dpi"] = body[:8]
        elif fourcc == b"iCCP":
            icc = self._inflate(body.partition(b"\0")[2][1:])
            if icc:
                self.fields["icc"] = icc
        elif fourcc in (b"tEXt", b"zTXt"):
            key, _, rest = body.partition(b"\0")
            value = rest if fourcc == b"tEXt" else self._inflate(rest[1:])
            if key and value is not None:
                self.text[key.decode("latin-1")] = value.decode("latin-1")
        elif fourcc == b"iTXt":
            self._take_unicode(body)

    def _take_unicode(self, body: bytes) -> None:
        key, _, rest = body.partition(b"\0")
        parts = rest[2:].split(b"\0", 2)
        if not key or len(parts) != 3:
            return
        value = self._inflate(parts[2]) if rest[:1] == b"\1" else parts[2]
        if value is not None and key == _XMP:
            self.fields["xmp"] = value
        elif value is not None:
            self.text[key.decode("latin-1")] = value.decode("utf-8", "replace")

    def _inflate(self, data: bytes) -> bytes | None:
        """Decompress text or a profile; None if it is damaged or larger than the limit."""
        try:
            stream = zlib.decompressobj()
            out = stream.decompress(data, max(self.room, 1))
        except zlib.error:
            return None
        self.room -= len(out)
        return out if stream.eof else None


def _chunk(fourcc: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + fourcc + body + struct.pack(">I", zlib.crc32(fourcc + body))


def _text_chunk(key: bytes, value: bytes) -> bytes:
    """Return an iTXt chunk, not compressed, so that other tools can find the text."""
    return _chunk(b"iTXt", key + b"\0\0\0\0\0" + value)
