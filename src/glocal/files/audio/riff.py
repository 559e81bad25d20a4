"""WAV as a list of chunks: what its header declares against what is there, and a chunk of our own for the recipe."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from glocal.files.audio.formats import check_numbers
from glocal.files.reading import CUT_SHORT, Unreadable

_MAX_CHUNKS = 4096
_UNKNOWN_LENGTHS = (0xFFFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF - 36)  # what programs write that cannot know the length yet


def check_wav(file: BinaryIO, size: int) -> None:
    """Compare what the header of a WAV file declares with what the file holds. Other formats pass.

    Raises:
        Unreadable: The header declares no or absurdly many channels, an absurd rate, or more samples than there are.
    """
    order = _riff_order(file)
    if order is None:
        return
    for kind, length in _riff_chunks(file, order):
        if kind == b"data":
            left = size - file.tell()
            if length > left and length not in _UNKNOWN_LENGTHS:
                raise Unreadable(f"{CUT_SHORT}: its header declares {length:,} bytes of sound and {left:,} are there")
            return
        if kind == b"fmt ":
            body = file.read(min(length, 16))
            if len(body) < 16:
                break
            _, channels, rate = struct.unpack(order + "HHI", body[:8])
            check_numbers(channels, rate)
    raise Unreadable(f"{CUT_SHORT}: the WAV header is followed by no sound")


def find_chunk(file: BinaryIO, wanted: bytes) -> bytes:
    """The body of a chunk of a WAV file; empty if there is none."""
    order = _riff_order(file)
    if order is not None:
        for kind, length in _riff_chunks(file, order):
            if kind == wanted:
                return file.read(min(length, 16 << 20))
    return b""


def append_chunk(file: BinaryIO, kind: bytes, body: bytes) -> None:
    """Add a chunk to the end of a WAV file that is complete, and count it in its header. Players skip what they do
    not know.
    """
    file.seek(0, 2)
    end = file.tell()
    if end + len(body) + 16 >= 1 << 32:
        return
    file.write(b"\0" * (end % 2) + kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2))
    total = file.tell()
    file.seek(4)
    file.write(struct.pack("<I", total - 8))
    file.flush()


def _riff_order(file: BinaryIO) -> str | None:
    """Byte order of a WAV file, read from its first 12 bytes; None if it is none."""
    head = file.read(12)
    if head[:4] not in (b"RIFF", b"RIFX") or head[8:12] != b"WAVE":
        return None
    return "<" if head[:4] == b"RIFF" else ">"


def _riff_chunks(file: BinaryIO, order: str) -> Iterator[tuple[bytes, int]]:
    """Kind and length of each chunk, with the file standing at its body."""
    at = 12
    for _ in range(_MAX_CHUNKS):
        file.seek(at)
        chunk = file.read(8)
        if len(chunk) < 8:
            return
        kind, length = struct.unpack(order + "4sI", chunk)
        yield kind, length
        at += 8 + length + length % 2
