"""Which audio formats and sample types there are, which a name asks for, and what a WAV header declares."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from glocal.errors import ArgumentError
from glocal.files.formats import CUT_SHORT, Unreadable

# Suffix to libsndfile's format and the sample type that a new file gets.
SUFFIXES = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
    ".oga": ("OGG", "VORBIS"),
    ".opus": ("OGG", "OPUS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
    ".aif": ("AIFF", "PCM_16"),
    ".aiff": ("AIFF", "PCM_16"),
    ".au": ("AU", "PCM_16"),
    ".caf": ("CAF", "PCM_16"),
    ".w64": ("W64", "PCM_16"),
    ".rf64": ("RF64", "PCM_16"),
}
READABLE = {name for name, _ in SUFFIXES.values()} | {"WAVEX"}
SUPPORTED = "WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF, AU, CAF, W64"
MAX_CHANNELS = 64
MAX_RATE = 1_536_000
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
CHUNKED = ("WAV", "WAVEX")
RECIPE_CHUNK = b"gloc"
_INTEGER_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
_MAX_CHUNKS = 4096
_UNKNOWN_LENGTHS = (0xFFFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF - 36)  # what programs write that cannot know the length yet


def integer_bits(subtype: str) -> int | None:
    """Bits of a sample type that stores plain integers; None for floats and for lossy codes."""
    return _INTEGER_BITS.get(subtype)


def output_format(path: str | Path, source: tuple[str, str] | None, subtype: str | None) -> tuple[str, str]:
    """Format and sample type for a new file.

    Args:
        path: The suffix decides the format; "-" is WAV.
        source: Format and sample type of the input. The type is kept where the new format has it.
        subtype: A sample type on request, such as "PCM_24".

    Raises:
        ArgumentError: An unknown suffix, or a sample type that the format does not have.

    Example:
        >>> output_format("a.flac", ("WAV", "PCM_24"), None)
        ('FLAC', 'PCM_24')
    """
    import soundfile

    if str(path) == "-":
        name, usual = "WAV", "PCM_16"
    else:
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            known = " ".join(SUFFIXES)
            raise ArgumentError(
                f"write audio ({path}): the suffix `{suffix}` names no audio format. Use one of {known}."
            )
        name, usual = SUFFIXES[suffix]
    if subtype is not None:
        if not soundfile.check_format(name, subtype):
            known = ", ".join(soundfile.available_subtypes(name))
            raise ArgumentError(f"write audio ({path}): {name} has no sample type {subtype!r}. Use one of {known}.")
        return name, subtype
    if source is not None:
        kept_format = source[0] if {source[0], name} == {"WAV", "WAVEX"} else name
        # A container that can hold two lossy codes keeps the one that its suffix stands for.
        if usual == "OPUS" or (source[1] == "OPUS" and name == "OGG"):
            return name, "OPUS"
        plain = integer_bits(source[1]) or source[1] in ("FLOAT", "DOUBLE")
        if (plain or source[0] == name) and soundfile.check_format(kept_format, source[1]):
            return kept_format, source[1]
        if source[1] in ("FLOAT", "DOUBLE", "PCM_32") and soundfile.check_format(name, "PCM_24"):
            return name, "PCM_24"
    return name, usual


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


def check_numbers(channels: int, rate: int) -> None:
    """Refuse numbers of channels and sample rates that no sound has.

    Raises:
        Unreadable: They are 0 or absurdly large.
    """
    if not 1 <= channels <= MAX_CHANNELS:
        raise Unreadable(f"its header declares {channels} channels, and 1 to {MAX_CHANNELS} can be used")
    if not 1 <= rate <= MAX_RATE:
        raise Unreadable(f"its header declares {rate:,} samples a second, and 1 to {MAX_RATE:,} can be used")
