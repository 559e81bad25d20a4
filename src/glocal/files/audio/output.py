"""Audio files in the making: block by block, whole or not at all, samples rounded once and to the nearest."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.atomic import output_error, write_whole
from glocal.errors import ArgumentError, OutputError
from glocal.files import provenance as recipes
from glocal.files.audio.cover import HOLDERS, add_cover
from glocal.files.audio.formats import CHUNKED, OPUS_RATES, RECIPE_CHUNK, AudioInfo, integer_bits, output_format
from glocal.files.audio.riff import append_chunk

Array = npt.NDArray[Any]
RECIPE_MARK = "glocal:recipe="
# Letters of a recipe that fit into the comment; other formats lose a comment, or the file, when it is longer.
_COMMENT_LETTERS = {"FLAC": 1 << 20, "OGG": 1 << 20, "MP3": 1 << 20, "AU": 0, "W64": 0}


class AudioWriter:
    """An audio file in the making; it gets its name when the context ends without an error. See `create_audio`.

    `notes` says what of the input the format has no place for.
    """

    def __init__(
        self,
        path: str,
        settings: dict[str, Any],
        tags: Mapping[str, str],
        *,
        chunks: tuple[tuple[bytes, bytes], ...],
        cover: tuple[bytes, ...],
        notes: tuple[str, ...],
        overwrite: bool,
    ) -> None:
        self._path, self._settings, self._tags, self._overwrite = path, settings, tags, overwrite
        self._chunks, self._cover = chunks, cover
        self.notes = notes
        self._bits = integer_bits(settings["subtype"])
        self._stack = contextlib.ExitStack()
        self.frames = 0

    def __enter__(self) -> AudioWriter:
        import soundfile

        with contextlib.ExitStack() as stack:
            if self._path == "-":
                self._file = _Noting(stack.enter_context(tempfile.TemporaryFile()))
            else:
                beside = stack.enter_context(write_whole(self._path, overwrite=self._overwrite))
                self._file = _Noting(stack.enter_context(beside.open("r+b")))
            try:
                self._stream = soundfile.SoundFile(self._file, "w", **self._settings)
                for key, value in self._tags.items():
                    if not value:
                        continue
                    # Not every format has every tag.
                    with contextlib.suppress(RuntimeError):
                        setattr(self._stream, key, value)
            except soundfile.LibsndfileError as error:
                rate, channels = self._settings["samplerate"], self._settings["channels"]
                raise ArgumentError(
                    f"write audio ({self._path}): {self._settings['format']} {self._settings['subtype']} cannot hold "
                    f"{channels} channels at {rate} Hz. Choose WAV or FLAC."
                ) from error
            self._stack = stack.pop_all()
        return self

    def write(self, block: Array) -> None:
        """Append samples `(n, channels)`, or `(n,)` for one channel; values outside of [-1, 1] are clipped.

        Raises
        ------
        OutputError
            The disk is full or not writable.
        """
        if not np.isfinite(block).all():
            raise OutputError(f"write audio ({self._path}): a sample is NaN or infinite. Report this with its input.")
        with self._noticing():
            self._stream.write(_stored(block, self._bits))
        self.frames += len(block)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if error is None:
                with self._noticing():
                    self._stream.close()
                    for name, body in self._chunks:
                        append_chunk(self._file.file, name, body)
                    if self._cover:
                        add_cover(self._file.file, self._settings["format"], self._cover)
                if self._path == "-":
                    self._file.seek(0)
                    shutil.copyfileobj(self._file.file, sys.stdout.buffer, 1 << 20)
                    sys.stdout.buffer.flush()
            else:
                with contextlib.suppress(Exception):
                    self._stream.close()
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        return self._stack.__exit__(error_type, error, trace)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """Errors of the disk, which libsndfile only passes on as a wrong count."""
        try:
            yield
        except Exception as error:
            if self._file.error is None:
                raise
            raise output_error(self._path, self._file.error) from error
        if self._file.error is not None:
            raise output_error(self._path, self._file.error)


def create_audio(
    path: str | os.PathLike[str],
    *,
    like: AudioInfo | None = None,
    rate: int | None = None,
    channels: int | None = None,
    subtype: str | None = None,
    recipe: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> AudioWriter:
    """Write an audio file block by block; it appears whole or not at all.

    Parameters
    ----------
    path
        The suffix decides the format; "-" writes WAV to the standard output when all of it is there.
    like
        The input. Sample type, rate, channels and tags are taken from it unless given.
    rate
        Samples a second.
    channels
        Number of channels.
    subtype
        How a sample is stored, such as "PCM_24" or "FLOAT".
    recipe
        How the sound was made (see `glocal.files.provenance`), kept in its own chunk in WAV and in the comment
        of other formats. AU and W64 have no comment, and AIFF, CAF and RF64 none for a long recipe: a note says so.
    overwrite
        Replace an existing file.

    Returns
    -------
    AudioWriter
        A context manager with a method `write(block)`.

    Raises
    ------
    ArgumentError
        The format is unknown or cannot hold such sound.
    OutputError
        On entering: the output exists or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from glocal.files.audio.audio_file import open_audio
    >>> name = Path(tempfile.mkdtemp()) / "a.wav"
    >>> with create_audio(name, rate=16000, channels=1) as out:
    ...     out.write(np.zeros(16000, np.float32))
    >>> with open_audio(name) as sound:
    ...     sound.info.seconds
    1.0
    """
    rate = rate or (like.rate if like else None)
    channels = channels or (like.channels if like else None)
    if not rate or not channels:
        raise ArgumentError("create_audio: `rate` and `channels` are needed. Give them, or `like`.")
    name, sample_type = output_format(str(path), (like.format, like.subtype) if like else None, subtype)
    if sample_type == "OPUS" and rate not in OPUS_RATES:
        known = ", ".join(map(str, OPUS_RATES))
        raise ArgumentError(f"write audio ({path}): Opus has no rate of {rate} Hz. Use one of {known}, or FLAC.")
    tags = dict(like.tags) if like else {}
    tags["comment"] = tags.get("comment", "").partition(RECIPE_MARK)[0].strip()
    text = recipes.to_json(recipe) if recipe is not None else None
    settings = {"samplerate": int(rate), "channels": int(channels), "format": name, "subtype": sample_type}
    chunks, cover, notes = _carried(like, name)
    if text is not None and name in CHUNKED:
        chunks += ((RECIPE_CHUNK, text.encode()),)
    elif text is not None and len(text) <= _COMMENT_LETTERS.get(name, 1500):
        tags["comment"] = f"{tags['comment']}\n{RECIPE_MARK}{text}".strip()
    elif text is not None:
        notes += (f"{name} has no place for the recipe: dropped",)
    return AudioWriter(str(path), settings, tags, chunks=chunks, cover=cover, notes=notes, overwrite=overwrite)


def _carried(
    like: AudioInfo | None, name: str
) -> tuple[tuple[tuple[bytes, bytes], ...], tuple[bytes, ...], tuple[str, ...]]:
    """Return the metadata that a format can hold, with notes on what it cannot."""
    chunks, cover = (like.chunks, like.cover) if like else ((), ())
    notes = []
    if chunks and name not in CHUNKED:
        names = ", ".join(sorted({fourcc.decode("ascii", "replace").strip() for fourcc, _ in chunks}))
        notes.append(f"{name} has no place for the chunks {names}: dropped")
    if cover and name not in HOLDERS:
        notes.append(f"{name} gets no cover art: dropped")
    return chunks if name in CHUNKED else (), cover if name in HOLDERS else (), tuple(notes)


def _stored(block: Array, bits: int | None) -> Array:
    """Return samples as libsndfile stores them unchanged: integers are rounded to the nearest here."""
    if bits is None:
        return block
    top = float(1 << (bits - 1))
    values = np.clip(np.rint(np.asarray(block, np.float64) * top), -top, top - 1)
    if bits <= 16:
        return values.astype(np.int16) << np.int16(16 - bits)
    return (values.astype(np.int64) << (32 - bits)).astype(np.int32)


class _Noting:
    """A file that remembers the first error of the system, since libsndfile cannot pass it on."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return int(self.file.write(data))
        except OSError as error:
            self.error = self.error or error
            return 0

    def readinto(self, buffer: Any) -> int:
        return int(self.file.readinto(buffer))

    def read(self, count: int = -1) -> bytes:
        return bytes(self.file.read(count))

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return int(self.file.seek(offset, whence))
        except OSError as error:  # seeking flushes what was written before
            self.error = self.error or error
            return 0

    def tell(self) -> int:
        return int(self.file.tell())

    def flush(self) -> None:
        try:
            self.file.flush()
        except OSError as error:
            self.error = self.error or error
