"""IPTC records (captions, credits, keywords of press photos), and the wrappings they come in.

JPEG keeps them in a Photoshop block of resources, PNG in a text of hexadecimal digits, TIFF bare in a tag.
"""

from __future__ import annotations

import struct

PHOTOSHOP = b"Photoshop 3.0\0"
PNG_KEY = "Raw profile type iptc"
_RESOURCE, _NUMBER = b"8BIM", 0x0404


def unwrapped(data: bytes | None) -> bytes | None:
    r"""Return the bare records in a Photoshop block, or in `data` if it is bare itself; None if there are none.

    >>> unwrapped(wrapped(b"\x1c\x02\x05\x00\x02Hi"))
    b'\x1c\x02\x05\x00\x02Hi'
    """
    data = (data or b"").removeprefix(PHOTOSHOP)
    at = 0
    while data[at : at + 4] == _RESOURCE and at + 12 <= len(data):
        (number,) = struct.unpack_from(">H", data, at + 4)
        name = data[at + 6] + 1
        at += 6 + name + name % 2
        size = int.from_bytes(data[at : at + 4], "big")
        if number == _NUMBER:
            return data[at + 4 : at + 4 + size] or None
        at += 4 + size + size % 2
    return data if data[:1] == b"\x1c" else None


def wrapped(records: bytes) -> bytes:
    """Return a Photoshop block with the records as its only resource."""
    body = _RESOURCE + struct.pack(">HHI", _NUMBER, 0, len(records)) + records
    return PHOTOSHOP + body + b"\0" * (len(records) % 2)


def from_text(text: str) -> bytes | None:
    """Return the records in the text of a PNG file; None if it is damaged."""
    lines = text.split()
    try:
        data = bytes.fromhex("".join(lines[2:]))
        return unwrapped(data) if len(data) == int(lines[1]) else None
    except (ValueError, IndexError):
        return None


def to_text(records: bytes) -> str:
    r"""Return records as the text of a PNG file.

    >>> from_text(to_text(b"\x1c\x02\x05\x00\x02Hi"))
    b'\x1c\x02\x05\x00\x02Hi'
    """
    digits = records.hex()
    return "\n".join(["", "iptc", f"{len(records):8}", *(digits[i : i + 72] for i in range(0, len(digits), 72)), ""])
