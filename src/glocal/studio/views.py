"""What the page shows of files: small pictures, waveforms and spectrograms in 8 bits. Called in workers, never in the page."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 2048
_THUMB = 320
_COLUMNS = 1000
_ROWS = 200
_RANGE = 80.0  # decibels from black to white
# A few colours from dark to light, in between linear: equal steps of decibels look equal.
_COLORS = np.array([(8, 8, 20), (60, 20, 100), (150, 40, 110), (230, 90, 70), (252, 180, 100), (252, 253, 200)], float)


def save_view(rgb: NDArray[Any], path: Path, *, longest: int | None = LONGEST) -> Path:
    """Write a picture (h, w, 3) in [0, 1] for the page: WebP, or PNG without loss if `longest` is None."""
    from PIL import Image

    from glocal.files.images.picture import to_depth

    shown = Image.fromarray(to_depth(np.ascontiguousarray(rgb, np.float32), "8"))
    if longest is None:
        shown.save(path, "PNG", compress_level=1)
        return path
    shown.thumbnail((longest, longest))
    shown.save(path, "WEBP", quality=92, method=2)
    return path


def view_size(path: Path) -> tuple[int, int]:
    """Return width and height of a picture that `save_view` wrote."""
    from PIL import Image

    with Image.open(path) as found:
        return found.size


def data_url(rgb: NDArray[Any], *, longest: int = _THUMB) -> str:
    """Return a small picture as text that an `img` shows."""
    from PIL import Image

    from glocal.files.images.picture import to_depth

    shown = Image.fromarray(to_depth(np.ascontiguousarray(rgb, np.float32), "8"))
    shown.thumbnail((longest, longest))
    buffer = io.BytesIO()
    shown.save(buffer, "WEBP", quality=85)
    return image_url(buffer.getvalue(), "webp")


def image_url(data: bytes, format: str) -> str:
    """Return encoded bytes of a picture as text that an `img` shows.

    >>> image_url(b"12", "webp")
    'data:image/webp;base64,MTI='
    """
    return f"data:image/{format};base64,{base64.b64encode(data).decode()}"


def read_rgb(path: Path | str) -> NDArray[Any]:
    """Read a picture with the checked readers: sRGB (h, w, 3) in [0, 1]."""
    from glocal.files.images.colors import to_srgb
    from glocal.files.images.read import read_image

    return np.clip(to_srgb(read_image(path)), 0, 1)


def spectrogram_view(path: Path | str, top: float | None = None) -> tuple[NDArray[np.float32], float]:
    """Draw the spectrogram of a sound file, (200, columns, 3), and return it with its loudest value in decibels.

    `top` is the value that is white, so that two pictures have one scale.
    """
    from glocal.apps.speech.spectrogram import Spectrogram
    from glocal.files.audio.audio_file import open_audio

    with open_audio(path) as sound:
        power = Spectrogram(sound.info.rate)
        for rows in sound.blocks(1 << 16):
            power.push(rows)
    level = power.decibels()
    top = float(level.max()) if top is None else top
    share = np.clip((level - (top - _RANGE)) / _RANGE, 0, 1)[::-1]  # high tones above
    share = _stretched(share, _ROWS, min(_COLUMNS, max(200, share.shape[1])))
    place = share * (len(_COLORS) - 1)
    rgb = np.stack([np.interp(place, np.arange(len(_COLORS)), _COLORS[:, c]) for c in range(3)], -1) / 255
    return rgb.astype(np.float32), top


def _stretched(values: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    rows = np.arange(height) * values.shape[0] // height
    columns = np.arange(width) * values.shape[1] // width
    return values[rows][:, columns]


def playable(path: Path | str, target: Path) -> Path:
    """Write a sound as 16-bit WAV, which every browser plays; the real file stays as it is."""
    import soundfile

    from glocal.files.audio.audio_file import open_audio

    with (
        open_audio(path) as sound,
        soundfile.SoundFile(target, "w", sound.info.rate, sound.info.channels, "PCM_16", format="WAV") as out,
    ):
        for rows in sound.blocks(1 << 16):
            out.write(np.clip(rows, -1, 1))
    return target
