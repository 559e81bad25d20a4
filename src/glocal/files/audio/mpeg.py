"""MP3 files that do not say how long they are: count their frames and add the missing header on the fly.

An MP3 file is a chain of frames. Encoders usually put a first frame in front that holds no sound but a "Xing" header with
the number of frames. Without it libsndfile guesses the length from the size of the file, and never reads beyond its
guess: with a variable bit rate most of the sound may be missing. The header is added to what libsndfile sees, not to the
file.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import IO

_LAYER_3 = 1
_MPEG_1 = 3
_RATES = (44100, 48000, 32000)
_KBITS = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_OTHERS = (b"RIFF", b"RIFX", b"RF64", b"riff", b"fLaC", b"OggS", b"FORM", b".snd", b"caff")
_COUNTED = (b"Xing", b"Info", b"VBRI")
_MAX_JUNK = 1 << 16  # bytes between two frames that are looked through for the next one
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Frame:
    """What the four bytes of a frame header say."""

    word: int

    @classmethod
    def at(cls, data: bytes, place: int) -> Frame | None:
        """Read the header at a place; None if there is none of layer III."""
        if len(data) < place + 4 or data[place] != 0xFF:
            return None
        frame = cls(int.from_bytes(data[place : place + 4], "big"))
        known = frame.word >> 21 == 0x7FF and frame.version != 1 and frame.word >> 17 & 3 == _LAYER_3
        return frame if known and 0 < frame.word >> 12 & 15 < 15 and frame.word >> 10 & 3 < 3 else None

    @property
    def version(self) -> int:
        """3 for MPEG 1, 2 for MPEG 2, 0 for MPEG 2.5."""
        return self.word >> 19 & 3

    @property
    def rate(self) -> int:
        """Samples a second."""
        return _RATES[self.word >> 10 & 3] >> {3: 0, 2: 1, 0: 2}[self.version]

    @property
    def samples(self) -> int:
        """Samples of one channel in a frame."""
        return 1152 if self.version == _MPEG_1 else 576

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        kbits = _KBITS[self.version == _MPEG_1][self.word >> 12 & 15]
        return self.samples // 8 * kbits * 1000 // self.rate + (self.word >> 9 & 1)

    @property
    def side(self) -> int:
        """Bytes of side information behind the header."""
        mono = self.word >> 6 & 3 == 3
        return (17 if mono else 32) if self.version == _MPEG_1 else (9 if mono else 17)

    def like(self, other: Frame) -> bool:
        """Whether both can belong to one stream: version, layer and rate agree."""
        return self.word & 0xFFFE0C00 == other.word & 0xFFFE0C00


def with_length(file: IO[bytes]) -> io.RawIOBase | None:
    """Return an MP3 file with a header that says its length, or None if it has one or is not an MP3 file.

    Cost: one pass over the file.
    """
    start = _after_tags(file)
    file.seek(start)
    head = file.read(_MAX_JUNK)
    found = _first_frame(head)
    if found is None or (start == 0 and head[:4] in _OTHERS):
        return None
    at, first = found
    if any(word in head[at : at + first.size] for word in _COUNTED):
        return None
    count = _count_frames(file, start + at, first)
    place = start + at
    begin = place if start == 0 else 0  # libsndfile does not look for the first frame; tags it knows
    return _Inserted(file, begin, place, _header(first, count)) if count else None


def _first_frame(head: bytes) -> tuple[int, Frame] | None:
    """Find the first frame that is followed by a second one of the same stream, or by the end of the file."""
    at = head.find(b"\xff")
    while at >= 0:
        frame = Frame.at(head, at)
        if frame is not None:
            second = Frame.at(head, at + frame.size)
            if at + frame.size == len(head) or (second is not None and second.like(frame)):
                return at, frame
        at = head.find(b"\xff", at + 1)
    return None


def _after_tags(file: IO[bytes]) -> int:
    """Return where the ID3 tags at the beginning end."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(10)
        if head[:3] != b"ID3" or len(head) < 10:
            return at
        size = sum((byte & 0x7F) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True))
        at += 10 + size + (10 if head[5] & 0x10 else 0)


def _count_frames(file: IO[bytes], start: int, first: Frame) -> int:
    """Count whole frames of one stream; bytes between frames are skipped."""
    file.seek(start)
    data, at, count, junk = b"", 0, 0, 0
    while True:
        if len(data) - at < 4096:
            more = file.read(_BLOCK)
            data, at = data[at:] + more, 0
            if len(data) < 4:
                return count
        frame = Frame.at(data, at)
        if frame is not None and frame.like(first) and at + frame.size <= len(data):
            count, at, junk = count + 1, at + frame.size, 0
            continue
        found = data.find(b"\xff", at + 1)
        step = (found if found > 0 else len(data)) - at
        at, junk = at + step, junk + step
        if junk > _MAX_JUNK:
            return count


def _header(first: Frame, count: int) -> bytes:
    """Build a frame without sound that says how many frames follow."""
    index = 5 if first.version == _MPEG_1 else 8  # 64 kbit/s: long enough for the header at every rate
    frame = Frame(first.word & ~0xF200 | index << 12 | 1 << 16)  # without padding and checksum
    body = struct.pack(">I", frame.word) + bytes(frame.side) + b"Xing" + struct.pack(">II", 1, count)
    return body.ljust(frame.size, b"\0")


class _Inserted(io.RawIOBase):
    """A file from `begin` on, that is read as if some bytes were inserted at a place."""

    def __init__(self, file: IO[bytes], begin: int, place: int, extra: bytes) -> None:
        self.file, self.begin, self.place, self.extra, self.position = file, begin, place - begin, extra, 0
        self.length = file.seek(0, 2) + len(extra) - begin

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = max(0, offset + (0, self.position, self.length)[whence])
        return self.position

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        done = 0
        while done < len(buffer):
            part = self._next(len(buffer) - done)
            if not part:
                break
            buffer[done : done + len(part)] = part
            self.position += len(part)
            done += len(part)
        return done

    def _next(self, most: int) -> bytes:
        end = self.place + len(self.extra)
        if self.place <= self.position < end:
            return self.extra[self.position - self.place :][:most]
        before = self.position < self.place
        self.file.seek(self.begin + self.position - (0 if before else len(self.extra)))
        return self.file.read(min(most, self.place - self.position) if before else most)

    def close(self) -> None:
        self.file.close()
        super().close()
