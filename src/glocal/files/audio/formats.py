"""What an audio file is, which formats and sample types there are, and which of them an output name asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glocal.errors import ArgumentError
from glocal.files.reading import Unreadable

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
MIN_RATE, MAX_RATE = 1000, 1_536_000  # samples a second
LOUDEST = 1e12  # of a float sample: squares of larger ones, added up, leave float32
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
CHUNKED = ("WAV", "WAVEX")
RECIPE_CHUNK = b"gloc"
_INTEGER_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}


@dataclass(frozen=True)
class AudioInfo:
    """What an audio file is.

    Attributes
    ----------
    path
        Its name; "-" for the standard input.
    format
        libsndfile's name, such as "WAV" or "OGG".
    subtype
        How a sample is stored, such as "PCM_16", "FLOAT" or "OPUS".
    rate
        Samples a second.
    channels
        1 or more.
    frames
        Samples of one channel; None if the file does not say it.
    tags
        Title, artist and so on.
    notes
        What is worth knowing about the file, in words for people.
    chunks
        Name and content of those chunks of a WAV file that are neither sound nor tags, such as cue points.
    cover
        Cover art, each picture as the body of a FLAC picture block.
    """

    path: str
    format: str
    subtype: str
    rate: int
    channels: int
    frames: int | None
    tags: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    chunks: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    cover: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def seconds(self) -> float | None:
        """Duration, if known."""
        return None if self.frames is None else self.frames / self.rate

    @property
    def dtype(self) -> np.dtype[Any]:
        """The float type that holds this file's samples exactly."""
        return np.dtype(np.float64 if self.subtype in ("PCM_32", "DOUBLE") else np.float32)


def integer_bits(subtype: str) -> int | None:
    """Bits of a sample type that stores plain integers; None for floats and for lossy codes."""
    return _INTEGER_BITS.get(subtype)


def output_format(path: str | Path, source: tuple[str, str] | None, subtype: str | None) -> tuple[str, str]:
    """Format and sample type for a new file.

    Parameters
    ----------
    path
        The suffix decides the format; "-" is WAV.
    source
        Format and sample type of the input. The type is kept where the new format has it.
    subtype
        A sample type on request, such as "PCM_24".

    Raises
    ------
    ArgumentError
        An unknown suffix, or a sample type that the format does not have.

    Examples
    --------
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


def check_numbers(channels: int, rate: int) -> None:
    """Refuse numbers of channels and sample rates that no sound has.

    Raises
    ------
    Unreadable
        They are too small or absurdly large.
    """
    if not 1 <= channels <= MAX_CHANNELS:
        raise Unreadable(f"its header declares {channels} channels, and 1 to {MAX_CHANNELS} can be used")
    if not MIN_RATE <= rate <= MAX_RATE:
        what = f"its header declares {rate:,} samples a second, and {MIN_RATE:,} to {MAX_RATE:,} can be used"
        raise Unreadable(what, "Copy it again from its source, or convert it to 16000")
