"""Find the training data in the folder given by `--data`: the paper's own data first, then substitutes."""

from __future__ import annotations

from pathlib import Path

from glocal.errors import InputError

PHOTOS = ("holidays", "Holidays", "jpg", "photos/holidays_like.csv", "holidays_like.csv", "photos")
SPEECH = ("timit", "TIMIT", "librispeech", "speech/librispeech", "speech")


def photos_in(data: Path | None) -> Path:
    """Return the photos to train on: a folder or a list of files.

    Raises
    ------
    InputError
        No data folder was given, or it holds none of the places.
    """
    return _first(data, PHOTOS, "photos", "image")


def speech_in(data: Path | None) -> Path:
    """Return the folder of speech to train on. Raises InputError as `photos_in` does."""
    return _first(data, SPEECH, "speech", "speech")


def _first(data: Path | None, places: tuple[str, ...], what: str, part: str) -> Path:
    if data is None:
        message = f"reproduce: `full` trains on {what}, which are not shipped. Name their folder with --data."
        raise InputError(message)
    found = next((data / place for place in places if (data / place).exists()), None)
    if found is None:
        message = (
            f"reproduce ({data}): there is no {what} to train on; looked for {', '.join(places)}. "
            f"Put them there or leave {part} out of --only."
        )
        raise InputError(message)
    return found
