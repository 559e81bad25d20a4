"""Why a file cannot be read: decoders raise `Unreadable`, and `reading` turns that into one `InputError` with a remedy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from glocal.errors import GlocalError, InputError

CUT_SHORT = "the file is cut short"
_COPY = "Copy it again from its source or open it in an editor"


class Unreadable(Exception):  # noqa: N818  it never leaves glocal.files: `reading` turns it into an InputError
    """Why a decoder gives up, in half a sentence, and what the user can do."""

    def __init__(self, why: str, remedy: str = _COPY) -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


@contextlib.contextmanager
def reading(
    what: str,
    path: str | os.PathLike[str],
    *,
    damaged: str = "the file is damaged or cut short ({})",
    remedy: str = _COPY,
) -> Iterator[None]:
    """Turn errors of the system and of the decoders into an `InputError`.

    Parameters
    ----------
    what : str
        "image" or "audio", for the message.
    path : str or path
        The file, for the message.
    damaged, remedy : str
        What to say about a damaged file, with a place for the decoder's own words, and what to do about it.

    Raises
    ------
    InputError
        Anything went wrong inside the block. Errors of glocal pass unchanged.
    """
    try:
        yield
    except (GlocalError, GeneratorExit):
        raise
    except Unreadable as error:
        raise InputError(f"read {what} ({path}): {error.why}. {error.remedy}.") from error
    except FileNotFoundError as error:
        raise InputError(f"read {what} ({path}): there is no such file. Check the name.") from error
    except PermissionError as error:
        raise InputError(f"read {what} ({path}): it may not be read. Change its permissions.") from error
    except MemoryError as error:
        raise InputError(f"read {what} ({path}): it needs more memory than there is. Use a smaller file.") from error
    except Exception as error:  # a decoder may raise anything at all for a damaged file
        if isinstance(error, OSError) and error.strerror:  # decoders leave it empty
            raise InputError(f"read {what} ({path}): {error.strerror.lower()}. Check the name.") from error
        raise InputError(f"read {what} ({path}): {damaged.format(_short(error))}. {remedy}.") from error


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 100 else text[:97] + "..."
