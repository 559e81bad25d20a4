"""Photos, paintings and a spoken sentence that come with the package. NOTICE names their authors and licences."""

from __future__ import annotations

from pathlib import Path

from glocal.errors import ArgumentError

_FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.name for path in _FOLDER.iterdir() if path.suffix in (".jpg", ".wav")))


def path(name: str) -> Path:
    """Return the path of a sample file.

    Raises
    ------
    ArgumentError
        There is no sample of this name.

    Examples
    --------
    >>> path("bridge.jpg").exists()
    True
    """
    if name not in NAMES:
        message = f"samples.path: there is no sample `name` (={name!r}). Choose one of {', '.join(NAMES)}."
        raise ArgumentError(message)
    return _FOLDER / name
