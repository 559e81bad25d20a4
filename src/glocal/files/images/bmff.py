"""The boxes of AVIF and HEIC files: what they say of the main picture, and the same file with other metadata.

Both formats are the same container. A box `meta` lists the items of the file (pictures, EXIF, XMP), where their bytes lie
(`iloc`), which item describes which (`iref`), and which properties belong to which (`ipco`, `ipma`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from glocal.files.reading import Unreadable

_XMP_TYPE = b"application/rdf+xml"
_MAX_EXTENTS = 100_000


@dataclass(frozen=True)
class Place:
    """Where the bytes of an item are: in the file (method 0) or in the box `idat` (method 1)."""

    method: int
    extents: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Info:
    """One entry of the list of items, as its whole box and its fields."""

    number: int
    fourcc: bytes
    box: bytes

    @property
    def metadata(self) -> bool:
        """Whether it is EXIF or XMP."""
        return self.fourcc == b"Exif" or (self.fourcc == b"mime" and _XMP_TYPE in self.box)


class Container:
    """The boxes of a file with one or more still pictures. Some cameras put other things behind the last box.

    Raises
    ------
    Unreadable
        There is no box `meta`, a box reaches beyond it, or (in `infos` and `places`) is of an unknown version.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        top = list(boxes(data, whole=False))
        metas = [body for fourcc, body in top if fourcc == b"meta"]
        if len(metas) != 1 or len(metas[0]) < 4:
            raise Unreadable("it is not a file of still pictures")
        self.sequence = any(fourcc == b"moov" for fourcc, _ in top)
        self.ftyp = next((body for fourcc, body in top if fourcc == b"ftyp"), b"")
        self.parts = list(boxes(metas[0][4:]))
        self.meta_head = metas[0][:4]
        self.primary = _unsigned(self.part(b"pitm")[4:])

    @cached_property
    def infos(self) -> list[Info]:
        """The list of items."""
        return list(_infos(self.part(b"iinf")))

    @cached_property
    def places(self) -> dict[int, Place]:
        """Return where each item is."""
        return _places(self.part(b"iloc"))

    def part(self, fourcc: bytes) -> bytes:
        """Return the body of a box inside of `meta`; empty if there is none."""
        return next((body for found, body in self.parts if found == fourcc), b"")

    def properties(self) -> Iterator[tuple[bytes, bytes]]:
        """Type and body of each property of the main picture, in the order of the file."""
        inner = list(boxes(self.part(b"iprp")))
        shelf = list(boxes(next((body for fourcc, body in inner if fourcc == b"ipco"), b"")))
        for fourcc, body in inner:
            if fourcc == b"ipma":
                for index in _associations(body).get(self.primary, ()):
                    if 0 < index & 0x7FFF <= len(shelf):
                        yield shelf[(index & 0x7FFF) - 1]

    def place(self, info: Info) -> Place:
        """Return where the bytes of an item are; an item may have none."""
        return self.places.get(info.number, Place(0, ()))

    def bytes_of(self, number: int) -> bytes:
        """Return the bytes of an item that is stored in the file.

        Raises
        ------
        Unreadable
            They reach beyond the end.
        """
        out = b""
        for start, length in self.places[number].extents:
            part = self.data[start : start + length]
            if not length or len(part) != length or len(out) > len(self.data):
                raise Unreadable("an item reaches beyond the end of the file")
            out += part
        return out


def depth_of(data: bytes) -> int:
    """Bits of a channel of the main picture, from its `pixi` property or that of its codec; 8 if nothing says."""
    found = dict(Container(data).properties())
    if len(found.get(b"pixi", b"")) > 5:
        return found[b"pixi"][5]
    if len(found.get(b"av1C", b"")) > 2:
        flags = found[b"av1C"][2]
        return 8 if not flags & 0x40 else 12 if flags & 0x20 else 10
    return 8 + (found[b"hvcC"][17] & 7) if len(found.get(b"hvcC", b"")) > 17 else 8


def colors_of(data: bytes) -> tuple[int, int] | None:
    """Primaries and transfer (ITU-T H.273) of the main picture; None if the file does not state them."""
    for fourcc, body in Container(data).properties():
        if fourcc == b"colr" and body[:4] == b"nclx" and len(body) >= 8:
            primaries, transfer = struct.unpack_from(">HH", body, 4)
            return primaries, transfer
    return None


def with_metadata(data: bytes, *, exif: bytes | None, xmp: bytes | None, icc: bytes | None = None) -> bytes:
    """Return a file with the same coded bytes, other EXIF and XMP (None removes them) and one more profile.

    The file is written anew, so that nothing is left of the metadata that were there.

    Raises
    ------
    Unreadable
        The file is built in a way that is not known here.
    """
    file = Container(data)
    if file.sequence or not file.infos:
        raise Unreadable("it is not a file of still pictures")
    infos = [info for info in file.infos if not info.metadata]
    inside = [info.number for info in infos if file.place(info).method == 0 and file.place(info).extents]
    bodies = {number: file.bytes_of(number) for number in inside}
    last = max(info.number for info in file.infos)
    described = []
    for fourcc, block, suffix in ((b"Exif", exif, b""), (b"mime", xmp, _XMP_TYPE + b"\0")):
        if block is not None:
            last += 1
            # An EXIF item begins with the distance to its TIFF header.
            bodies[last] = (b"\0\0\0\0" if fourcc == b"Exif" else b"") + block
            infos.append(
                Info(last, fourcc, box(b"infe", b"\2\0\0\0", struct.pack(">HH", last, 0), fourcc, b"\0", suffix))
            )
            described.append(last)
    if last > 0xFFFF:
        raise Unreadable("it has too many items")
    parts = {
        b"iinf": b"\0\0\0\0" + struct.pack(">H", len(infos)) + b"".join(info.box for info in infos),
        b"iref": _references(file, {info.number for info in infos}, described),
        b"iprp": _with_profile(file, icc) if icc else file.part(b"iprp"),
    }
    order = [fourcc for fourcc, _ in file.parts if fourcc != b"iloc"]
    order += [fourcc for fourcc in parts if fourcc not in order]
    rest = b"".join(box(fourcc, parts.get(fourcc, file.part(fourcc))) for fourcc in order if parts.get(fourcc, b"x"))
    head = box(b"ftyp", file.ftyp)
    fixed = len(head) + len(box(b"meta", file.meta_head, rest, _locations(file, infos, bodies, 0))) + 8
    meta = box(b"meta", file.meta_head, rest, _locations(file, infos, bodies, fixed))
    return head + meta + box(b"mdat", *bodies.values())


def boxes(data: bytes, *, whole: bool = True) -> Iterator[tuple[bytes, bytes]]:
    """Type and body of each box in `data`.

    Raises
    ------
    Unreadable
        A box does not fit; unless `whole` is off, then it and what follows are left out.
    """
    at = 0
    while at + 8 <= len(data):
        size, fourcc = struct.unpack_from(">I4s", data, at)
        head = 8
        if size == 1 and at + 16 <= len(data):
            (size,) = struct.unpack_from(">Q", data, at + 8)
            head = 16
        size = size or len(data) - at
        if size < head or at + size > len(data):
            if not whole:
                return
            raise Unreadable("a box of the file is cut short")
        yield fourcc, data[at + head : at + size]
        at += size


def box(fourcc: bytes, *bodies: bytes) -> bytes:
    """Return a box: its size, its four letters, and its content."""
    return struct.pack(">I4s", 8 + sum(map(len, bodies)), fourcc) + b"".join(bodies)


def _unsigned(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _infos(body: bytes) -> Iterator[Info]:
    """Return the entries of the list of items."""
    for fourcc, inner in boxes(body[6 if body[:1] == b"\0" else 8 :]):
        wide = {2: 2, 3: 4}.get(inner[0]) if fourcc == b"infe" and inner else None
        if wide is None:
            raise Unreadable("its list of items has an unknown format")
        number = _unsigned(inner[4 : 4 + wide])
        yield Info(number, inner[6 + wide : 10 + wide], box(fourcc, inner))


def _places(body: bytes) -> dict[int, Place]:
    """Return where each item is."""
    reader = _Reader(body)
    version = reader.take(1)
    reader.take(3)
    sizes = reader.take(2)
    offset, length, base, index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    out: dict[int, Place] = {}
    total = 0
    for _ in range(reader.take(4 if version == 2 else 2)):
        number = reader.take(4 if version == 2 else 2)
        method = reader.take(2) & 15 if version else 0
        if reader.take(2) or method > 1 or version > 2:
            raise Unreadable("its items are stored where they cannot be read")
        start = reader.take(base)
        extents = []
        count = reader.take(2)
        total += count
        if total > _MAX_EXTENTS:  # with sizes of 0 they would take no space in the file
            raise Unreadable("its items are in too many pieces")
        for _ in range(count):
            reader.take(index if version else 0)
            extents.append((start + reader.take(offset), reader.take(length)))
        out[number] = Place(method, tuple(extents))
    return out


class _Reader:
    """Big-endian numbers, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> int:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise Unreadable("its list of items is cut short")
        self.at += size
        return _unsigned(part)


def _locations(file: Container, infos: list[Info], bodies: dict[int, bytes], start: int) -> bytes:
    """Return the box `iloc` for `bodies`, stored in order from `start` on; items in `idat` stay where they are."""
    elsewhere = [info for info in infos if file.place(info).method == 1]
    out = b"\1\0\0\0" + b"\x44\x00" + struct.pack(">H", len(bodies) + len(elsewhere))
    for number, body in bodies.items():
        out += struct.pack(">HHHHII", number, 0, 0, 1, start, len(body))
        start += len(body)
    for info in elsewhere:
        extents = file.place(info).extents
        out += struct.pack(">HHHH", info.number, 1, 0, len(extents))
        out += b"".join(struct.pack(">II", *extent) for extent in extents)
    return box(b"iloc", out)


def _references(file: Container, kept: set[int], described: list[int]) -> bytes:
    """Return the box `iref` without the removed items and with the new ones, which describe the main picture."""
    body = file.part(b"iref") or b"\0\0\0\0"
    wide = 4 if body[0] else 2
    out = body[:4]
    for fourcc, inner in boxes(body[4:]):
        if _unsigned(inner[:wide]) in kept:
            out += box(fourcc, inner)
    for number in described:
        out += box(b"cdsc", number.to_bytes(wide, "big"), b"\0\1", file.primary.to_bytes(wide, "big"))
    return out if len(out) > 4 else b""


def _associations(body: bytes) -> dict[int, tuple[int, ...]]:
    """Return the property indices of each item, as in `ipma`; the highest of 16 bits marks an essential property."""
    reader = _Reader(body)
    version, flags = reader.take(1), reader.take(3)
    out = {}
    for _ in range(reader.take(4)):
        number = reader.take(4 if version else 2)
        indices = [reader.take(2 if flags & 1 else 1) for _ in range(reader.take(1))]
        if not flags & 1:
            indices = [(index & 0x80) << 8 | index & 0x7F for index in indices]
        out[number] = tuple(indices)
    return out


def _with_profile(file: Container, icc: bytes) -> bytes:
    """Return the box `iprp` with one more property, a colour profile of the main picture."""
    inner = dict(boxes(file.part(b"iprp")))
    shelf = inner.get(b"ipco", b"")
    owners = _associations(inner.get(b"ipma", b""))
    owners[file.primary] = (*owners.get(file.primary, ()), len(list(boxes(shelf))) + 1)
    ipma = b"\0\0\0\1" + struct.pack(">I", len(owners))
    for number, indices in sorted(owners.items()):
        ipma += struct.pack(f">HB{len(indices)}H", number, len(indices), *indices)
    return box(b"ipco", shelf, box(b"colr", b"prof", icc)) + box(b"ipma", ipma)
