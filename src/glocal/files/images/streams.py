"""Lossy files whose pixels were not changed: the coded stream is kept, and only the metadata around it is written again.

Coding a JPEG again would change its pixels a little even if nobody touched them. So a picture remembers the file it was
read from and a sum of its pixels; if the sum still holds when it is written in the same format, the stream is reused.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import replace

import numpy as np

from glocal.files.images import bmff, webp
from glocal.files.images.picture import Picture, Stream
from glocal.files.metadata import exif, iptc, xmp
from glocal.files.reading import Unreadable

_EXIF, _XMP, _XMP_MORE = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
_NEEDED = (b"ICC_PROFILE\0", b"Adobe")
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # in coded data, only what ends it
_MAX_SEGMENT = 65533


def remembered(data: bytes, picture: Picture, *, turn: int) -> Stream:
    """Return the stream of a picture that was decoded from `data` and turned upright. Cost: one pass over the pixels."""
    return Stream(data, _digest(picture), picture.icc, turn)


def reused(stream: Stream, picture: Picture, *, strip: bool) -> bytes | None:
    """Return the file of a picture with unchanged pixels: its own stream with the picture's metadata.

    `strip` also removes everything else that is not needed to show the file.

    Returns
    -------
    bytes | None
        None if the pixels or the profile changed, or the metadata do not fit; the picture must be coded anew then.
    """
    if stream.icc != picture.icc or stream.digest != _digest(picture):
        return None
    if stream.turn != 1:
        # The stored pixels are not upright, so that the metadata must go on saying how to turn them.
        if picture.exif is None:
            return None
        packet = picture.xmp and xmp.settle(picture.xmp, stream.turn)
        picture = replace(picture, exif=exif.settle(picture.exif, stream.turn), xmp=packet)
    if picture.format == "JPEG":
        return _jpeg(stream.data, picture, strip=strip)
    if picture.format == "WEBP":
        height, width = picture.size if stream.turn <= 4 else picture.size[::-1]
        return webp.with_metadata(stream.data, picture, height, width)
    try:
        return bmff.with_metadata(stream.data, exif=picture.exif, xmp=picture.xmp)
    except (Unreadable, struct.error):
        return None


def _digest(picture: Picture) -> bytes:
    total = hashlib.blake2b(repr(picture.pixels.shape).encode(), digest_size=16)
    total.update(np.ascontiguousarray(picture.pixels).reshape(-1).data)
    if picture.alpha is not None:
        total.update(np.ascontiguousarray(picture.alpha).reshape(-1).data)
    return total.digest()


def with_comments(data: bytes, picture: Picture) -> bytes:
    """Return a JPEG file with the comments and IPTC records of a picture after its first segments."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and 0xE0 <= data[at + 1] <= 0xEF:
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    more = _comments(picture)
    return data[:at] + more + data[at:] if more else data


def _comments(picture: Picture) -> bytes:
    blocks = [(0xED, iptc.wrapped(picture.iptc))] if picture.iptc else []
    blocks += [(0xFE, comment) for comment in picture.comments]
    return b"".join(_segment(marker, body) for marker, body in blocks if len(body) + 2 <= _MAX_SEGMENT)


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def _jpeg(data: bytes, picture: Picture, *, strip: bool) -> bytes | None:
    """Return a JPEG file with other EXIF, XMP, IPTC and comments; `strip` drops everything not needed to show it."""
    head, rest = b"", b""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        marker = data[at + 1]
        (length,) = struct.unpack_from(">H", data, at + 2)
        segment = data[at : at + 2 + length]
        body = segment[4:]
        at += 2 + length
        if marker == 0xE1 and body.startswith((_EXIF, _XMP, _XMP_MORE)):
            continue
        if marker == 0xFE or (marker == 0xED and picture.iptc != iptc.unwrapped(body)):
            continue
        if strip and 0xE0 < marker <= 0xEF and not body.startswith(_NEEDED):
            continue
        if marker == 0xE0 and not rest:
            head += segment
        else:
            rest += segment
    if at + 4 > len(data) or data[at : at + 2] != b"\xff\xda":
        return None
    for prefix, block in ((_EXIF, picture.exif), (_XMP, picture.xmp)):
        if block is not None:
            if len(prefix) + len(block) + 2 > _MAX_SEGMENT:
                return None
            head += _segment(0xE1, prefix + block)
    if iptc.PHOTOSHOP in rest:  # the block with the records is still there
        picture = replace(picture, iptc=None)
    end = _end_of_jpeg(data, at) if strip else None
    return b"\xff\xd8" + head + _comments(picture) + rest + data[at:end]


def _end_of_jpeg(data: bytes, at: int) -> int:
    """Where the picture ends whose first scan begins at `at`: phones put more pictures, with metadata, behind it."""
    while at + 4 <= len(data):
        if data[at + 1] == 0xD9:
            return at + 2
        found = _MARKER.search(data, at + 2 + int.from_bytes(data[at + 2 : at + 4], "big"))
        if found is None:
            break
        at = found.start()
    return len(data)
