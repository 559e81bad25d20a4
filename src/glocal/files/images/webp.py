"""WebP as a list of chunks: size, metadata, and the same picture with other metadata.

Pillow refuses files of more pixels than a limit that holds for the whole process. Ours is higher, so that large files are
decoded without Pillow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from glocal.files.images.picture import Empty, Picture, split_alpha
from glocal.files.reading import CUT_SHORT, Unreadable

_EXIF_PREFIX = b"Exif\0\0"


def size_of(data: bytes) -> tuple[int, int]:
    """Height and width from the first chunk.

    Raises
    ------
    Unreadable
        The chunk is damaged.
    """
    fourcc, body = next(chunks(data), (b"", b""))
    if fourcc == b"VP8X" and len(body) >= 10:
        return int.from_bytes(body[7:10], "little") + 1, int.from_bytes(body[4:7], "little") + 1
    if fourcc == b"VP8L" and len(body) >= 5 and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if fourcc == b"VP8 " and len(body) >= 10 and body[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", body, 6)
        return height & 0x3FFF, width & 0x3FFF
    raise Unreadable("the WebP header is damaged")


def is_lossless(data: bytes) -> bool:
    """Whether the first picture chunk is lossless."""
    return next((fourcc == b"VP8L" for fourcc, _ in chunks(data) if fourcc in (b"VP8L", b"VP8 ")), False)


def is_animation(data: bytes) -> bool:
    """Whether there is more than one picture."""
    return any(fourcc == b"ANIM" for fourcc, _ in chunks(data))


def has_alpha(data: bytes) -> bool:
    """Whether the header declares an alpha channel."""
    fourcc, body = next(chunks(data), (b"", b""))
    if fourcc == b"VP8X":
        return bool(body[:1] and body[0] & 0x10)
    return fourcc == b"VP8L" and len(body) >= 5 and bool(body[4] & 0x10)


def decode(data: bytes, empty: Empty = np.empty) -> Picture:
    """Read a file with one picture by libwebp alone, without Pillow's limit, into an array that `empty` makes.

    Raises
    ------
    Unreadable
        The file is an animation, or cut short.
    """
    import imagecodecs

    if is_animation(data):
        raise Unreadable("an animation of this size is not supported", "Save its first picture as a separate file")
    if int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise Unreadable(CUT_SHORT)
    out = empty((*size_of(data), 4 if has_alpha(data) else 3), np.uint8)
    imagecodecs.webp_decode(data, out=out)
    pixels, alpha = split_alpha(out, empty)
    return Picture(pixels, alpha, **metadata(data))


def metadata(data: bytes) -> dict[str, Any]:
    """Return the metadata of the file as fields of `Picture`."""
    found = dict(chunks(data))
    return {
        "icc": found.get(b"ICCP") or None,
        "exif": found.get(b"EXIF", b"").removeprefix(_EXIF_PREFIX) or None,
        "xmp": found.get(b"XMP ") or None,
    }


def with_metadata(data: bytes, picture: Picture, height: int, width: int) -> bytes | None:
    """Return a WebP file with other EXIF and XMP, whose stored size is `height` x `width`."""
    found = dict(chunks(data))
    fourcc = b"VP8L" if b"VP8L" in found else b"VP8 "
    if fourcc not in found or b"ANIM" in found:
        return None
    flags = 0x20 * (picture.icc is not None) | 0x10 * (picture.alpha is not None)
    flags |= 0x08 * (picture.exif is not None) | 0x04 * (picture.xmp is not None)
    extent = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    parts = [(b"VP8X", bytes([flags, 0, 0, 0]) + extent)]
    parts += [(name, found[name]) for name in (b"ICCP", b"ALPH", fourcc) if name in found]
    parts += [(b"EXIF", picture.exif or b""), (b"XMP ", picture.xmp or b"")]
    body = b"".join(
        name + struct.pack("<I", len(part)) + part + b"\0" * (len(part) % 2) for name, part in parts if part
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and body of each chunk."""
    at = 12
    while at + 8 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        yield data[at : at + 4], data[at + 8 : at + 8 + length]
        at += 8 + length + length % 2
