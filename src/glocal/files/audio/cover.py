"""Cover art: found in FLAC, MP3 and OGG files, and put into new FLAC and MP3 files.

A picture is kept as the body of a FLAC picture block. OGG files hold such bodies as text among their comments.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import BinaryIO

HOLDERS = ("FLAC", "MP3")
_PICTURE, _LAST = 6, 0x80  # type of a FLAC block, and the bit of the last one
_MAX_BYTES = 16 << 20  # of all pictures together; a FLAC block holds as much
_BLOCK = 1 << 20


def find_cover(file: BinaryIO) -> tuple[bytes, ...]:
    """Return the pictures of a FLAC, MP3 or OGG file, none for other formats or damaged ones."""
    file.seek(0)
    head = file.read(4)
    finders = {b"fLaC": _flac_pictures, b"OggS": _ogg_pictures}
    find = finders.get(head, _id3_pictures if head[:3] == b"ID3" else None)
    if find is None:
        return ()
    try:
        pictures = tuple(picture for picture in find(file) if _is_whole(picture))
    except (struct.error, IndexError, ValueError):
        return ()
    return pictures if sum(map(len, pictures)) < _MAX_BYTES else ()


def add_cover(file: BinaryIO, name: str, pictures: tuple[bytes, ...]) -> None:
    """Put pictures into a finished FLAC or MP3 file. Cost: the file is moved up by their size."""
    if name == "FLAC":
        _add_blocks(file, pictures)
    elif name == "MP3":
        _add_id3(file, pictures)


def _is_whole(picture: bytes) -> bool:
    """Whether the lengths inside a picture block fit together."""
    (mime,) = struct.unpack_from(">I", picture, 4)
    (text,) = struct.unpack_from(">I", picture, 8 + mime)
    (size,) = struct.unpack_from(">I", picture, 12 + mime + text + 16)
    return 0 < size == len(picture) - (16 + mime + text + 16)


def _add_blocks(file: BinaryIO, pictures: tuple[bytes, ...]) -> None:
    """Add blocks behind the stream information, which is the first one and has 34 bytes."""
    file.seek(4)
    only = file.read(1)[0] & _LAST
    types = [_PICTURE] * len(pictures)
    types[-1] |= only
    blocks = (bytes([code]) + len(body).to_bytes(3, "big") + body for code, body in zip(types, pictures, strict=True))
    _insert(file, 4 + 4 + 34, b"".join(blocks))
    file.seek(4)
    file.write(b"\0")


def _flac_pictures(file: BinaryIO) -> Iterator[bytes]:
    at = 4
    while True:
        file.seek(at)
        head = file.read(4)
        if len(head) < 4:
            return
        size = int.from_bytes(head[1:], "big")
        if head[0] & 0x7F == _PICTURE:
            yield file.read(size)
        if head[0] & _LAST:
            return
        at += 4 + size


def _ogg_pictures(file: BinaryIO) -> Iterator[bytes]:
    """Find pictures among the comments, which are the second packet of a Vorbis, Opus or FLAC stream."""
    data = _second_packet(file)
    at = next((len(mark) for mark in (b"\3vorbis", b"OpusTags", b"\4\0\0\0") if data.startswith(mark)), None)
    if at is None:
        return
    (vendor,) = struct.unpack_from("<I", data, at)
    at += 4 + vendor
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    for _ in range(count):
        (size,) = struct.unpack_from("<I", data, at)
        key, _, value = data[at + 4 : at + 4 + size].partition(b"=")
        if key.upper() == b"METADATA_BLOCK_PICTURE":
            try:
                yield base64.b64decode(value, validate=True)
            except binascii.Error:
                return
        at += 4 + size


def _second_packet(file: BinaryIO) -> bytes:
    """Put the second packet of an OGG file together from its pages."""
    file.seek(0)
    packet, ended = b"", 0
    while len(packet) <= 2 * _MAX_BYTES:
        head = file.read(27)
        if len(head) < 27 or head[:4] != b"OggS":
            break
        for size in file.read(head[26]):
            part = file.read(size)
            if ended == 1:
                packet += part
            ended += size < 255
            if ended == 2:
                return packet
    return b""


def _id3_pictures(file: BinaryIO) -> Iterator[bytes]:
    for name, body, _ in _id3_frames(file):
        if name == b"APIC":
            yield _from_apic(body)


def _id3_frames(file: BinaryIO) -> Iterator[tuple[bytes, bytes, int]]:
    """Name, body and end of each frame of an ID3 tag of version 2.3 or 2.4."""
    file.seek(0)
    head = file.read(10)
    if head[:3] != b"ID3" or head[3] not in (3, 4) or head[5] & 0xC0:  # not with unsynchronisation or a longer header
        return
    data = file.read(min(_plain(head[6:]), _MAX_BYTES))
    at = 0
    while at + 10 <= len(data) and data[at] != 0:
        size = _plain(data[at + 4 : at + 8]) if head[3] == 4 else int.from_bytes(data[at + 4 : at + 8], "big")
        body = data[at + 10 : at + 10 + size]
        if len(body) < size:
            return
        yield data[at : at + 4], body, 10 + at + 10 + size
        at += 10 + size


def _from_apic(body: bytes) -> bytes:
    encoding = ("latin-1", "utf-16", "utf-16-be", "utf-8")[body[0]]
    mime, _, rest = body[1:].partition(b"\0")
    use, rest = rest[0], rest[1:]
    wide = encoding.startswith("utf-16")
    end = next(i for i in range(0, len(rest), 2 if wide else 1) if not any(rest[i : i + 1 + wide]))
    text = rest[:end].decode(encoding, "replace").encode()
    data = rest[end + 1 + wide :]
    sizes = bytes(16)  # width, height, depth and colours: they are optional
    head = struct.pack(">II", use, len(mime)) + mime + struct.pack(">I", len(text)) + text + sizes
    return head + struct.pack(">I", len(data)) + data


def _to_apic(picture: bytes) -> bytes:
    use, size = struct.unpack_from(">II", picture)
    mime, at = picture[8 : 8 + size], 8 + size
    (size,) = struct.unpack_from(">I", picture, at)
    text, at = picture[at + 4 : at + 4 + size], at + 4 + size + 16
    data = picture[at + 4 :]
    text = b"\xff\xfe" + text.decode("utf-8", "replace").encode("utf-16-le")
    return b"\1" + mime + b"\0" + bytes([use & 0xFF]) + text + b"\0\0" + data


def _add_id3(file: BinaryIO, pictures: tuple[bytes, ...]) -> None:
    """Add frames to the ID3 tag of a file, or a tag to a file that has none."""
    file.seek(0)
    head = file.read(10)
    fresh = head[:3] != b"ID3"
    version = 3 if fresh else head[3]
    frames = b""
    for body in map(_to_apic, pictures):
        frames += b"APIC" + (_synchsafe(len(body)) if version == 4 else struct.pack(">I", len(body))) + b"\0\0" + body
    if fresh:
        _insert(file, 0, b"ID3\3\0\0" + _synchsafe(len(frames)) + frames)
        return
    end = max((end for _, _, end in _id3_frames(file)), default=10)
    _insert(file, end, frames)
    file.seek(6)
    file.write(_synchsafe(_plain(head[6:]) + len(frames)))


def _insert(file: BinaryIO, place: int, data: bytes) -> None:
    """Insert bytes into a file, moving what follows from its end on, in constant memory."""
    end = file.seek(0, 2)
    while end > place:
        start = max(place, end - _BLOCK)
        file.seek(start)
        part = file.read(end - start)
        file.seek(start + len(data))
        file.write(part)
        end = start
    file.seek(place)
    file.write(data)


def _plain(data: bytes) -> int:
    """Read a number of seven bits a byte."""
    value = 0
    for byte in data[:4]:
        value = value << 7 | byte & 0x7F
    return value


def _synchsafe(value: int) -> bytes:
    return bytes(value >> shift & 0x7F for shift in (21, 14, 7, 0))
