"""WAV as a list of chunks: what its header declares against what is there, and a chunk of our own for the recipe."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from glocal.files.audio.formats import RECIPE_CHUNK, check_numbers
from glocal.files.reading import CUT_SHORT, Unreadable

_MAX_CHUNKS = 4096
_MAX_BYTES = 16 << 20
_MADE_ANEW = (b"fmt ", b"data", b"fact", b"PEAK", b"levl", b"JUNK", b"junk", b"PAD ", b"FLLR", b"ds64", RECIPE_CHUNK)
_KNOWN_TAGS = (b"INAM", b"ICOP", b"ISFT", b"IART", b"ICMT", b"ICRD", b"IPRD", b"ITRK", b"IGNR")
_UNKNOWN_LENGTHS = (0xFFFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF - 36)  # what programs write that cannot know the length yet


def check_wav(file: BinaryIO, size: int) -> tuple[str, ...]:
    """Compare what the header of a WAV file declares with what the file holds. Other formats pass.

    Returns
    -------
    tuple of str
        A note if there is less sound than declared. What is there can be used.

    Raises
    ------
    Unreadable
        The header declares no or absurdly many channels or an absurd rate, or no sound follows.
    """
    order = _riff_order(file)
    if order is None:
        return ()
    for fourcc, length in _riff_chunks(file, order):
        if fourcc == b"data":
            left = size - file.tell()
            if length > left and length not in _UNKNOWN_LENGTHS:
                note = (
                    f"{CUT_SHORT}: its header declares {length:,} bytes of sound and {left:,} are there, which are used"
                )
                return (note,)
            return ()
        if fourcc == b"fmt ":
            body = file.read(min(length, 16))
            if len(body) < 16:
                break
            _, channels, rate = struct.unpack(order + "HHI", body[:8])
            check_numbers(channels, rate)
    raise Unreadable(f"{CUT_SHORT}: the WAV header is followed by no sound")


def find_chunk(file: BinaryIO, wanted: bytes) -> bytes:
    """Return the body of a chunk of a WAV file; empty if there is none."""
    order = _riff_order(file)
    if order is not None:
        for fourcc, length in _riff_chunks(file, order):
            if fourcc == wanted:
                return file.read(min(length, _MAX_BYTES))
    return b""


def chunks_to_keep(file: BinaryIO) -> tuple[tuple[bytes, bytes], ...]:
    """Return the chunks of a WAV file that belong to the recording: broadcast data, cue points, iXML and unknown ones.

    Left out are the sound, what the writer makes itself, and what no longer holds for changed sound.
    """
    file.seek(0)
    if _riff_order(file) != "<":  # numbers inside of chunks have the byte order of the file
        return ()
    end, total = file.seek(0, 2), 0
    found = []
    for fourcc, length in _riff_chunks(file, "<"):
        whole = file.tell() + length <= end
        if fourcc in _MADE_ANEW or not whole or not length or total + length > _MAX_BYTES:
            continue
        body = file.read(length)
        if fourcc == b"LIST" and body[:4] == b"INFO":
            body = _foreign_tags(body)
        if body:
            found.append((fourcc, body))
            total += len(body)
    return tuple(found)


def _foreign_tags(body: bytes) -> bytes:
    """Return a list of tags without those that libsndfile knows and writes itself."""
    out, at = b"", 4
    while at + 8 <= len(body):
        size = int.from_bytes(body[at + 4 : at + 8], "little")
        end = at + 8 + size + size % 2
        if body[at : at + 4] not in _KNOWN_TAGS:
            out += body[at:end]
        at = end
    return b"INFO" + out if out else b""


def append_chunk(file: BinaryIO, fourcc: bytes, body: bytes) -> None:
    """Add a chunk to the end of a complete WAV file, and update its header. Players skip unknown chunks."""
    file.seek(0, 2)
    end = file.tell()
    if end + len(body) + 16 >= 1 << 32:
        return
    file.write(b"\0" * (end % 2) + fourcc + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2))
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
    """Type and length of each chunk, with the file standing at its body."""
    at = 12
    for _ in range(_MAX_CHUNKS):
        file.seek(at)
        chunk = file.read(8)
        if len(chunk) < 8:
            return
        fourcc, length = struct.unpack(order + "4sI", chunk)
        yield fourcc, length
        at += 8 + length + length % 2
