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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from glocal.errors import ArgumentError, GlocalError, InputError, OutputError
from glocal.files import recipes
from glocal.files.atomic import output_error, write_whole
from glocal.files.audio_formats import (
    CHUNKED,
    OPUS_RATES,
    READABLE,
    RECIPE_CHUNK,
    SUPPORTED,
    append_chunk,
    check_numbers,
    check_wav,
    find_chunk,
    integer_bits,
    output_format,
)
from glocal.files.formats import CUT_SHORT, Unreadable

Array = npt.NDArray[Any]
_TAGS = ("title", "copyright", "software", "artist", "comment", "date", "album", "license", "tracknumber", "genre")
_RECIPE_MARK = "glocal:recipe="
# Letters of a recipe that fit into the comment; other formats lose a comment, or the file, when it is longer.
_COMMENT_ROOM = {"FLAC": 1 << 20, "OGG": 1 << 20, "MP3": 1 << 20}
_UNKNOWN_FRAMES = 1 << 60  # libsndfile's answer for a stream that does not say how long it is


@dataclass(frozen=True)
class AudioInfo:
    """What an audio file is.

    Attributes:
        path: Its name; "-" for the standard input.
        format: libsndfile's name, such as "WAV" or "OGG".
        subtype: How a sample is stored, such as "PCM_16", "FLOAT" or "OPUS".
        rate: Samples a second.
        channels: 1 or more.
        frames: Samples of one channel; None if the file does not tell before it was read.
        tags: Title, artist and so on.
    """

    path: str
    format: str
    subtype: str
    rate: int
    channels: int
    frames: int | None
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """Duration, if known."""
        return None if self.frames is None else self.frames / self.rate

    @property
    def dtype(self) -> np.dtype[Any]:
        """The float type that holds this file's samples exactly."""
        return np.dtype(np.float64 if self.subtype in ("PCM_32", "DOUBLE") else np.float32)


class AudioReader:
    """An open audio file. Use it as a context manager; see `open_audio`."""

    def __init__(self, name: str, stream: Any, spooled: IO[bytes] | None) -> None:
        self._name, self._stream, self._spooled = name, stream, spooled
        self.info = _info(name, stream)

    def blocks(self, frames: int) -> Iterator[Array]:
        """The sound from where reading stands, in arrays `(n, channels)` with `n` = `frames`, less in the last.

        Raises:
            InputError: The file is damaged or ends before its header says, or a sample is NaN or infinite.
        """
        if frames < 1:
            raise ArgumentError(f"blocks: `frames` (={frames}) must be positive. Use 16384, say.")
        position = 0
        with _reading(self._name):
            while True:
                block = self._stream.read(frames, dtype=self.info.dtype.name, always_2d=True)
                finite = np.isfinite(block).all(axis=1)
                if not finite.all():
                    first = position + int(np.argmin(finite))
                    raise Unreadable(f"sample {first:,} is NaN or infinite", "Replace such samples by numbers first")
                position += len(block)
                if len(block):
                    yield block
                if len(block) < frames:
                    break
            if self.info.frames is not None and position < self.info.frames:
                raise Unreadable(f"{CUT_SHORT}: {position:,} of {self.info.frames:,} samples are there")
            if position == 0:
                raise Unreadable("it holds no samples", "Use a file with sound in it")

    def read(self) -> Array:
        """All of the sound at once, `(frames, channels)`."""
        return np.concatenate(list(self.blocks(1 << 16)))

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        if self._spooled is not None:
            self._spooled.close()

    def __enter__(self) -> AudioReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_audio(path: str | os.PathLike[str]) -> AudioReader:
    """Open an audio file for reading block by block.

    Args:
        path: WAV, FLAC, OGG, MP3, AIFF, AU, CAF or W64; the content decides, not the name. "-" reads the standard
            input, which is kept in a temporary file.

    Raises:
        InputError: The file is missing, of an unknown format, cut short, or its header makes no sense.
    """
    name = str(path)
    spooled: IO[bytes] | None = None
    with _reading(name):
        if name == "-":
            spooled = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the reader
            shutil.copyfileobj(sys.stdin.buffer, spooled, 1 << 20)
            size = spooled.tell()
            spooled.seek(0)
            _check_head(spooled, size)
            spooled.seek(0)
            stream = _forward_stream(spooled)
        else:
            if Path(name).is_dir():
                raise Unreadable("it is a folder", "Name a file, or use a command that takes folders")
            with Path(name).open("rb") as file:
                _check_head(file, os.fstat(file.fileno()).st_size)
            stream = _forward_stream(name)
        try:
            if stream.format not in READABLE:
                raise Unreadable(f"{stream.format} is not supported", f"Use one of {SUPPORTED}")
            check_numbers(stream.channels, stream.samplerate)
            if stream.frames <= 0:
                raise Unreadable("it holds no samples or is cut short", "Use a file with sound in it")
            return AudioReader(name, stream, spooled)
        except BaseException:
            stream.close()
            raise


def _check_head(file: Any, size: int) -> None:
    if size == 0:
        raise Unreadable("the file is empty", "Use a file with sound in it")
    check_wav(file, size)


def _forward_stream(source: Any) -> Any:
    """A `SoundFile` that is only read forwards.

    Left alone, soundfile seeks to where it stands after every read. In MP3 that loses what the decoder carries over
    from one frame to the next: read in blocks, most of the sound would be missing.
    """
    import soundfile

    class Forward(soundfile.SoundFile):
        def seekable(self) -> bool:
            return False

    return Forward(source)


class AudioWriter:
    """An audio file in the making; it gets its name when the context ends without an error. See `create_audio`."""

    def __init__(
        self, path: str, settings: dict[str, Any], tags: Mapping[str, str], recipe: str | None, overwrite: bool
    ) -> None:
        self._path, self._settings, self._tags, self._overwrite = path, settings, tags, overwrite
        self._recipe = recipe
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

        Raises:
            OutputError: The disk is full or not writable.
        """
        if not np.isfinite(block).all():
            raise OutputError(f"write audio ({self._path}): a sample is NaN or infinite. Report this with its input.")
        with self._noticing():
            self._stream.write(_stored(block, self._bits))
        self.frames += len(block)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if error is None:
                with self._noticing():
                    self._stream.close()
                    if self._recipe is not None:
                        append_chunk(self._file.file, RECIPE_CHUNK, self._recipe.encode())
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
        return self._stack.__exit__(kind, error, trace)

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

    Args:
        path: The suffix decides the format; "-" writes WAV to the standard output when all of it is there.
        like: The input. Sample type, rate, channels and tags are taken from it unless given.
        rate: Samples a second.
        channels: Number of channels.
        subtype: How a sample is stored, such as "PCM_24" or "FLOAT".
        recipe: How the sound was made (see `glocal.files.recipes`), kept in a chunk of its own in WAV and in the comment
            of other formats; AIFF, AU, CAF and W64 have no room for a long one and go without.
        overwrite: Replace an existing file.

    Returns:
        A context manager with a method `write(block)`.

    Raises:
        ArgumentError: The format is unknown or cannot hold such sound.
        OutputError: On entering: the output exists or cannot be written.

    Example:
        >>> import tempfile
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
    name, kind = output_format(str(path), (like.format, like.subtype) if like else None, subtype)
    if kind == "OPUS" and rate not in OPUS_RATES:
        known = ", ".join(map(str, OPUS_RATES))
        raise ArgumentError(f"write audio ({path}): Opus has no rate of {rate} Hz. Use one of {known}, or FLAC.")
    tags = dict(like.tags) if like else {}
    tags["comment"] = tags.get("comment", "").partition(_RECIPE_MARK)[0].strip()
    text = recipes.to_json(recipe) if recipe is not None else None
    if text is not None and name not in CHUNKED and len(text) <= _COMMENT_ROOM.get(name, 1500):
        tags["comment"] = f"{tags['comment']}\n{_RECIPE_MARK}{text}".strip()
    settings = {"samplerate": int(rate), "channels": int(channels), "format": name, "subtype": kind}
    return AudioWriter(str(path), settings, tags, text if name in CHUNKED else None, overwrite)


def read_audio_recipe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The recipe that `create_audio` kept in a file.

    Raises:
        InputError: The file cannot be read, or carries no recipe.
    """
    with open_audio(path) as sound:
        text = sound.info.tags.get("comment", "").partition(_RECIPE_MARK)[2]
        chunked = sound.info.format in CHUNKED
    if chunked:
        with Path(path).open("rb") as file:
            text = find_chunk(file, RECIPE_CHUNK).decode("utf-8", "replace")
    if not text:
        raise InputError(f"read audio ({path}): it carries no recipe. Use a file that glocal wrote.")
    return recipes.from_json(text, str(path))


def _info(name: str, stream: Any) -> AudioInfo:
    tags = {key: str(value) for key in _TAGS if (value := getattr(stream, key, ""))}
    frames = int(stream.frames) if stream.frames < _UNKNOWN_FRAMES else None
    return AudioInfo(name, stream.format, stream.subtype, stream.samplerate, stream.channels, frames, tags)


def _stored(block: Array, bits: int | None) -> Array:
    """Samples as libsndfile stores them without touching them again: integers rounded here, to the nearest."""
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


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """The one place where errors of the system and of the decoders become `InputError`s."""
    try:
        yield
    except (GlocalError, GeneratorExit):
        raise
    except Unreadable as error:
        raise InputError(f"read audio ({name}): {error.why}. {error.remedy}.") from error
    except FileNotFoundError as error:
        raise InputError(f"read audio ({name}): there is no such file. Check the name.") from error
    except PermissionError as error:
        raise InputError(f"read audio ({name}): it may not be read. Change its permissions.") from error
    except Exception as error:  # libsndfile's errors, and whatever else a damaged file brings about
        raise InputError(
            f"read audio ({name}): it is no audio that can be read here, or it is damaged. Use one of {SUPPORTED}."
        ) from error
