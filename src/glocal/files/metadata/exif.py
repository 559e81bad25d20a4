"""EXIF as a tree of tags: read it from a TIFF structure of any origin, write it again, reset the orientation.

An EXIF block and a TIFF file share one layout: a byte order, then directories of tags, some of which point to further
directories. Every read is checked against the end of the data, and depth, number of tags and total size are bounded, so
that a hostile file costs no more than an honest one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

ORIENTATION = 0x0112
PRIVATE = 32768  # tags from here on are registered: GeoTIFF, microscopes, scanners
EXIF_DIRECTORY, GPS_DIRECTORY, INTEROP_DIRECTORY = 0x8769, 0x8825, 0xA005
DIRECTORIES = (EXIF_DIRECTORY, GPS_DIRECTORY, INTEROP_DIRECTORY)

# Bytes of one item and of the unit that a change of byte order swaps, for each TIFF field type.
_ITEM = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_UNIT = {**_ITEM, 5: 4, 10: 4}
_MAX_TAGS, _MAX_BYTES, _MAX_DEPTH = 4096, 64 << 20, 4


@dataclass(frozen=True)
class Tag:
    """One field of a directory: its TIFF type, and its value as little-endian bytes."""

    field_type: int
    data: bytes

    @property
    def count(self) -> int:
        """Number of items of the tag's type."""
        return len(self.data) // _ITEM[self.field_type]

    def integer(self) -> int | None:
        """Return the first item as an integer, or None when the tag holds no integers."""
        size = _ITEM[self.field_type]
        if self.field_type not in (1, 3, 4, 13, 16, 18) or len(self.data) < size:
            return None
        return int.from_bytes(self.data[:size], "little")


Directory = dict[int, "Tag | Directory"]


def parse(data: bytes, *, page: int = 0) -> Directory:
    r"""Read one directory of a TIFF structure with its sub-directories; damaged parts are left out.

    Parameters
    ----------
    data
        An EXIF block without its ``Exif`` prefix, or a whole TIFF or BigTIFF file.
    page
        How many directories to pass over. The first is the picture; in EXIF the second is the thumbnail.

    Returns
    -------
    Directory
        Tag number to `Tag`, or to a further directory for EXIF, GPS and interoperability. Empty if `data` is not a TIFF
        or has no such page.

    Examples
    --------
    >>> block = pack({ORIENTATION: Tag(3, b"\x06\x00")})
    >>> parse(block)[ORIENTATION].integer()
    6
    """
    head = _head(data)
    if head is None:
        return {}
    reader = _Reader(data, *head[:2])
    start = head[2]
    for _ in range(page):
        start = reader.next_page(start)
    return reader.directory(start, depth=0)


def orientation(block: bytes | None) -> int:
    """Return the orientation tag (1 to 8) of an EXIF block; 1 if it is missing or invalid."""
    tag = parse(block).get(ORIENTATION) if block else None
    value = tag.integer() if isinstance(tag, Tag) else None
    return value if value is not None and 1 <= value <= 8 else 1


def settle(block: bytes, turn: int = 1) -> bytes:
    """Return the EXIF block with orientation `turn` (1 for upright pixels) and without the old thumbnail.

    The bytes are changed in place, because writing the block anew would break the offsets that makers hide in their
    notes.
    """
    place = _entries(block)
    if place is None:
        return block
    order, start, end = place
    out = bytearray(block)
    for at in range(start, end, 12):
        number, field_type = struct.unpack_from(order + "HH", out, at)
        size = _ITEM.get(field_type, 8)
        if number == ORIENTATION and size <= 4:
            out[at + 8 : at + 8 + size] = turn.to_bytes(size, "little" if order == "<" else "big")
    struct.pack_into(order + "I", out, end, 0)
    return bytes(out)


def public(block: bytes) -> bytes:
    """Write an EXIF block again, without the private tags of its first directory."""
    tags = parse(block)
    return pack({number: tag for number, tag in tags.items() if number < PRIVATE or isinstance(tag, dict)})


def _entries(block: bytes) -> tuple[str, int, int] | None:
    """Byte order, begin and end of the entries of the first directory; None if they are not all there."""
    head = _head(block)
    if head is None or head[1] or head[2] + 2 > len(block):
        return None
    order, _, start = head
    (count,) = struct.unpack_from(order + "H", block, start)
    end = start + 2 + 12 * count
    return None if end + 4 > len(block) else (order, start + 2, end)


def pack(tags: Directory, *, base: int = 0) -> bytes:
    """Write a directory tree as a little-endian TIFF structure.

    Parameters
    ----------
    tags
        What `parse` returns.
    base
        0 writes a whole EXIF block. Otherwise the bare directory is written, to be placed at this offset of a
        TIFF file.

    Returns
    -------
    bytes
        The bytes; `parse` reads them back to the same tree.
    """
    if base:
        return _pack_directory(tags, base)
    return b"II*\0" + struct.pack("<I", 8) + _pack_directory(tags, 8)


def _pack_directory(tags: Directory, base: int) -> bytes:
    """One directory and, behind it, the values that do not fit into its entries."""
    body = struct.pack("<H", len(tags))
    at = base + 2 + 12 * len(tags) + 4
    tail = b""
    for number, value in sorted(tags.items()):
        if isinstance(value, dict):
            block = _pack_directory(value, at + len(tail))
            body += struct.pack("<HHII", number, 4, 1, at + len(tail))
            tail += block + b"\0" * (len(block) % 2)
        elif len(value.data) <= 4:
            body += struct.pack("<HHI", number, value.field_type, value.count) + value.data.ljust(4, b"\0")
        else:
            body += struct.pack("<HHII", number, value.field_type, value.count, at + len(tail))
            tail += value.data + b"\0" * (len(value.data) % 2)
    return body + b"\0\0\0\0" + tail


def _head(data: bytes) -> tuple[str, bool, int] | None:
    """Byte order, whether it is a BigTIFF, and the offset of the first directory; None if `data` is not a TIFF."""
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None or len(data) < 8:
        return None
    (magic,) = struct.unpack_from(order + "H", data, 2)
    if magic == 42:
        return order, False, struct.unpack_from(order + "I", data, 4)[0]
    if magic == 43 and len(data) >= 16:
        return order, True, struct.unpack_from(order + "Q", data, 8)[0]
    return None


class _Reader:
    """Walks the directories of one TIFF structure and keeps count of what it has taken."""

    def __init__(self, data: bytes, order: str, big: bool) -> None:
        self.data, self.order, self.big = data, order, big
        self.tags = self.bytes = 0
        self.seen: set[int] = set()

    def next_page(self, start: int) -> int:
        """Return the offset of the directory after the one at `start`; beyond the end if there is none."""
        count_format, entry_size, offset_format = ("Q", 20, "Q") if self.big else ("H", 12, "I")
        self.seen.add(start)
        try:
            (count,) = struct.unpack_from(self.order + count_format, self.data, start)
            at = start + struct.calcsize("=" + count_format) + count * entry_size
            return int(struct.unpack_from(self.order + offset_format, self.data, at)[0]) or len(self.data)
        except (struct.error, OverflowError):
            return len(self.data)

    def directory(self, start: int, depth: int) -> Directory:
        """Read the directory at `start`; empty if it was visited before, is too deep or outside of the data."""
        count_format, entry_format = ("Q", "HHQ8s") if self.big else ("H", "HHI4s")
        count_size, entry_size = struct.calcsize("=" + count_format), struct.calcsize("=" + entry_format)
        if start in self.seen or depth > _MAX_DEPTH or start + count_size > len(self.data):
            return {}
        self.seen.add(start)
        (count,) = struct.unpack_from(self.order + count_format, self.data, start)
        out: Directory = {}
        for index in range(min(count, _MAX_TAGS)):
            at = start + count_size + index * entry_size
            self.tags += 1
            if at + entry_size > len(self.data) or self.tags > _MAX_TAGS:
                break
            number, field_type, items, inline = struct.unpack_from(self.order + entry_format, self.data, at)
            value = self._value(field_type, items, inline)
            if value is None:
                continue
            target = value.integer()
            if number not in DIRECTORIES:
                out[number] = value
            elif target is not None and (inner := self.directory(target, depth + 1)):
                out[number] = inner
        return out

    def _value(self, field_type: int, items: int, inline: bytes) -> Tag | None:
        """One tag with its value brought to little-endian order; None if it is unknown or reaches beyond the data."""
        size = _ITEM.get(field_type, 0) * items
        self.bytes += size
        if size == 0 or size > len(self.data) or self.bytes > _MAX_BYTES:
            return None
        raw = inline[:size]
        if size > len(inline):
            (at,) = struct.unpack(self.order + ("Q" if self.big else "I"), inline)
            raw = bytes(self.data[at : at + size])
        if len(raw) != size:
            return None
        unit = _UNIT[field_type]
        if self.order == ">" and unit > 1:
            raw = b"".join(raw[i : i + unit][::-1] for i in range(0, size, unit))
        return Tag(field_type, raw)
