"""Audio in and out, block by block in constant memory: same format, sample type, rate, channels and tags.

Samples are arrays `(frames, channels)` in [-1, 1]: float32, or float64 where the file holds more than 24 bits. What is
read and written again unchanged is the same to the bit, unless the format is a lossy one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from glocal.errors import ArgumentError, InputError
from glocal.files import provenance as recipes
from glocal.files.audio.cover import find_cover
from glocal.files.audio.formats import CHUNKED, LOUDEST, READABLE, RECIPE_CHUNK, SUPPORTED, check_numbers
from glocal.files.audio.formats import AudioInfo as AudioInfo
from glocal.files.audio.mpeg import with_length
from glocal.files.audio.output import RECIPE_MARK
from glocal.files.audio.output import AudioWriter as AudioWriter
from glocal.files.audio.output import create_audio as create_audio
from glocal.files.audio.riff import check_wav, chunks_to_keep, find_chunk
from glocal.files.reading import CUT_SHORT, Unreadable, reading

Array = npt.NDArray[Any]
_TAGS = ("title", "copyright", "software", "artist", "comment", "date", "album", "license", "tracknumber", "genre")
_UNKNOWN_FRAMES = 1 << 60  # libsndfile's answer for a stream that does not say how long it is


class AudioReader:
    """An open audio file. Use it as a context manager; see `open_audio`."""

    def __init__(self, info: AudioInfo, stream: Any, *, exact: bool, close: Callable[[], None]) -> None:
        self._stream, self._exact, self._close = stream, exact, close
        self.info = info

    def blocks(self, frames: int) -> Iterator[Array]:
        """Yield the rest of the sound in arrays `(n, channels)` with `n = frames`; the last may be shorter.

        Raises
        ------
        InputError
            The file is damaged or ends before its header says, or a sample is NaN, infinite or above 1e12.
        """
        if frames < 1:
            raise ArgumentError(f"blocks: `frames` (={frames}) must be positive. Use 16384, say.")
        position = 0
        with _reading(self.info.path):
            while True:
                block = self._stream.read(frames, dtype=self.info.dtype.name, always_2d=True)
                finite = (np.abs(block) <= LOUDEST).all(axis=1)
                if not finite.all():
                    first = position + int(np.argmin(finite))
                    what = f"sample {first:,} is NaN, infinite or above {LOUDEST:g}"
                    raise Unreadable(what, "Replace or scale such samples first")
                position += len(block)
                if len(block):
                    yield block
                if len(block) < frames:
                    break
            if self._exact and self.info.frames is not None and position < self.info.frames:
                raise Unreadable(f"{CUT_SHORT}: {position:,} of {self.info.frames:,} samples are there")
            if position == 0:
                raise Unreadable("it holds no samples", "Use a file with sound in it")

    def read(self) -> Array:
        """All of the sound at once, `(frames, channels)`."""
        return np.concatenate(list(self.blocks(1 << 16)))

    def close(self) -> None:
        """Close the file."""
        self._close()

    def __enter__(self) -> AudioReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_audio(path: str | os.PathLike[str]) -> AudioReader:
    """Open an audio file for reading block by block.

    Parameters
    ----------
    path
        WAV, FLAC, OGG, MP3, AIFF, AU, CAF or W64; the content decides, not the name. "-" reads the standard
        input, which is kept in a temporary file.

    Raises
    ------
    InputError
        The file is missing, of an unknown format, cut short, or its header makes no sense.
    """
    name = str(path)
    with _reading(name), contextlib.ExitStack() as stack:
        file = stack.enter_context(_opened(name))
        notes = _check_head(file, file.seek(0, 2))
        kept = {"chunks": chunks_to_keep(file), "cover": find_cover(file)}
        counted = with_length(file)
        file.seek(0)
        # By its name where that is possible: libsndfile is faster without Python between itself and the file.
        source = counted or (file if name == "-" else os.fsencode(name) if os.name == "posix" else name)
        stream = stack.enter_context(_forward_stream(source))
        if stream.format not in READABLE:
            raise Unreadable(f"{stream.format} is not supported", f"Use one of {SUPPORTED}")
        check_numbers(stream.channels, stream.samplerate)
        if stream.frames <= 0:
            raise Unreadable("it holds no samples or is cut short", "Use a file with sound in it")
        return AudioReader(_info(name, stream, notes, kept), stream, exact=counted is None, close=stack.pop_all().close)


def _opened(name: str) -> BinaryIO:
    """Open a file, or keep the standard input in a temporary one."""
    if name != "-":
        if Path(name).is_dir():
            raise Unreadable("it is a folder", "Name a file, or use a command that takes folders")
        return Path(name).open("rb")
    spooled = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the reader
    shutil.copyfileobj(sys.stdin.buffer, spooled, 1 << 20)
    return cast(BinaryIO, spooled)


def _check_head(file: BinaryIO, size: int) -> tuple[str, ...]:
    if size == 0:
        raise Unreadable("the file is empty", "Use a file with sound in it")
    file.seek(0)
    return check_wav(file, size)


def _forward_stream(source: Any) -> Any:
    """Open a `SoundFile` that is only read forwards.

    By default, soundfile seeks to its position after every read. In MP3 that loses what the decoder carries over
    from one frame to the next: read in blocks, most of the sound would be missing.
    """
    import soundfile

    class Forward(soundfile.SoundFile):
        def seekable(self) -> bool:
            return False

    return Forward(source)


def read_audio_recipe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the recipe that `create_audio` kept in a file.

    Raises
    ------
    InputError
        The file cannot be read, or carries no recipe.
    """
    with open_audio(path) as sound:
        text = sound.info.tags.get("comment", "").partition(RECIPE_MARK)[2]
        chunked = sound.info.format in CHUNKED
    if chunked:
        with Path(path).open("rb") as file:
            text = find_chunk(file, RECIPE_CHUNK).decode("utf-8", "replace")
    if not text:
        raise InputError(f"read audio ({path}): it carries no recipe. Use a file that glocal wrote.")
    return recipes.from_json(text, str(path))


def _info(name: str, stream: Any, notes: tuple[str, ...], kept: dict[str, Any]) -> AudioInfo:
    tags = {key: str(value) for key in _TAGS if (value := getattr(stream, key, ""))}
    frames = int(stream.frames) if stream.frames < _UNKNOWN_FRAMES else None
    return AudioInfo(
        name, stream.format, stream.subtype, stream.samplerate, stream.channels, frames, tags, notes, **kept
    )


def _reading(name: str) -> contextlib.AbstractContextManager[None]:
    damaged = "it is not audio that can be read here, or it is damaged"
    return reading("audio", name, damaged=damaged, remedy=f"Use one of {SUPPORTED}")
