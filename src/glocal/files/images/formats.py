"""The format of an image file, found from its first bytes, and the format that an output name requests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from glocal.errors import ArgumentError, InputError


@dataclass(frozen=True)
class Format:
    """What an image format can hold."""

    name: str
    suffixes: tuple[str, ...]
    depths: tuple[str, ...]
    alpha: bool = True
    metadata: bool = True
    most_bits: int = 16  # of an integer channel


FORMATS = {
    entry.name: entry
    for entry in (
        Format("JPEG", (".jpg", ".jpeg", ".jpe", ".jfif"), ("8",), alpha=False),
        Format("PNG", (".png",), ("8", "16")),
        Format("TIFF", (".tif", ".tiff"), ("8", "16", "float")),
        Format("WEBP", (".webp",), ("8",)),
        Format("BMP", (".bmp", ".dib"), ("8",), alpha=False, metadata=False),
        Format("AVIF", (".avif",), ("8", "16"), most_bits=12),
        Format(
            "HEIF", (".heic", ".heif"), ("8", "16"), most_bits=10
        ),  # 12 bits are allowed, but few programs read them
    )
}
OPTIMIZED = 1 << 25  # pixels of the largest JPEG whose codes are chosen by a second pass, which holds it in memory
SUFFIXES = {suffix: entry.name for entry in FORMATS.values() for suffix in entry.suffixes}
_DECODING = {"WEBP": 8, "BMP": 16, "AVIF": 12, "HEIF": 12}  # bytes for a pixel, measured
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")


def sniff(head: bytes, path: object) -> str:
    """Return the format of a file, found from its first 32 bytes.

    Raises
    ------
    InputError
        The bytes belong to none of `FORMATS`.
    """
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[:2] == b"BM":
        return "BMP"
    if head[4:8] == b"ftyp":
        brands = [head[i : i + 4] for i in range(8, len(head), 4)]
        if b"avif" in brands or b"avis" in brands:
            return "AVIF"
        if any(brand in _HEIF_BRANDS for brand in brands):
            return "HEIF"
    what = "the file is empty" if not head else "its content is not an image that can be read here"
    raise InputError(f"read image ({path}): {what}. Use one of {', '.join(FORMATS)}.")


def format_of_name(path: str | os.PathLike[str]) -> Format:
    """Return the format that the suffix of an output name asks for.

    Raises
    ------
    ArgumentError
        The suffix is none of `SUFFIXES`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        known = " ".join(sorted(SUFFIXES))
        raise ArgumentError(f"write image ({path}): the suffix `{suffix}` names no image format. Use one of {known}.")
    return FORMATS[SUFFIXES[suffix]]


def coding_memory(pixels: int) -> int:
    """Return the bytes that the encoder of any format may take for a picture in 8 bits: a copy, and a JPEG's second pass.

    >>> coding_memory(1000)
    10000
    """
    return max(4 * pixels, 10 * min(pixels, OPTIMIZED))


def decoding_memory(path: str | os.PathLike[str], pixels: int) -> int:
    """Return the bytes that the decoder of a file keeps in memory, even if its pixels go to temporary files.

    The decoders of JPEG, PNG, TIFF and lossy WebP can fill a given array. The others make their own, and copies of it.
    """
    with Path(path).open("rb") as file:
        head = file.read(32)
    return 0 if head[12:16] == b"VP8 " else _DECODING.get(sniff(head, path), 0) * pixels
