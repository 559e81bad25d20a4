"""JPEG, WebP, BMP and the rarer TIFFs through Pillow, the headers of AVIF and HEIC, and `PIL.Image` objects in and out."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import numpy as np

from glocal.errors import MissingDependencyError
from glocal.files.images import heif, streams, webp
from glocal.files.images.colors import cmyk_to_rgb
from glocal.files.images.formats import OPTIMIZED
from glocal.files.images.picture import Array, Empty, Picture, split_alpha, to_depth, with_alpha
from glocal.files.metadata import exif as exif_tags
from glocal.files.metadata import iptc
from glocal.files.metadata import xmp as xmp_packets
from glocal.files.reading import Unreadable

_EXIF_PREFIX = b"Exif\0\0"
_MAX_SCANS = 500  # of a progressive JPEG: each costs as much time as decoding the picture
_MAX_SEGMENT = 65000  # a JPEG segment, less its own header


def open_header(data: bytes, name: str) -> Any:
    """Open a Pillow image and read only its header: size and mode are known, nothing is decoded.

    Raises
    ------
    Unreadable
        Pillow does not understand the header.
    MissingDependencyError
        HEIC without pillow-heif, or AVIF with a Pillow that lacks it.
    """
    # The plugins are called directly: `Image.open` has its own pixel limit, set for the whole process.
    try:
        image = _plugin(name)(io.BytesIO(data), None)
    except SyntaxError as error:
        if "12-bit" not in str(error):
            raise
        raise Unreadable("a JPEG of 12 bits is not supported", "Save it again as a 16-bit TIFF or PNG") from error
    if name == "JPEG" and data.count(b"\xff\xda") > _MAX_SCANS:
        raise Unreadable("the JPEG has more scans than any camera writes")
    return image


def size_of(data: bytes, name: str) -> tuple[int, int]:
    """Height and width from the header."""
    if name == "WEBP":
        return webp.size_of(data)
    width, height = open_header(data, name).size
    return height, width


def recipe_in(data: bytes, name: str) -> str | None:
    """Return the recipe in the XMP of a file, or None."""
    packet = webp.metadata(data)["xmp"] if name == "WEBP" else open_header(data, name).info.get("xmp")
    return xmp_packets.recipe_in(packet.encode() if isinstance(packet, str) else packet)


def decode(data: bytes, empty: Empty = np.empty, *, name: str) -> Picture:
    """Read a file whose size was checked.

    Raises
    ------
    Unreadable
        The file is damaged.
    """
    in_place = empty is not np.empty
    large = name == "WEBP" and math.prod(webp.size_of(data)) > _pillow_limit()
    if large or (name == "WEBP" and in_place and not webp.is_animation(data)):
        return replace(webp.decode(data, empty), format=name, lossless=webp.is_lossless(data))
    image = open_header(data, name)
    # Asked first, since HEIC does not know any more once it is decoded; of a TIFF, our own reader says it.
    several = name != "TIFF" and getattr(image, "n_frames", 1) > 1
    if name in heif.NAMES:
        pixels, alpha, bits = heif.read_pixels(data, name, empty)
        picture = Picture(pixels, alpha, bits=bits if bits > 8 else None, **_metadata(image.info))
        if picture.icc is None:
            picture = replace(picture, icc=heif.profile_of(data))
    elif name == "JPEG" and image.mode in ("RGB", "L") and in_place:
        picture = Picture(_jpeg_pixels(data, image, empty), **_metadata(image.info))
    else:
        picture = picture_from_pil(image)
    if name == "JPEG":
        comments = tuple(bytes(body) for marker, body in image.applist if marker == "COM")
        blocks = (body for marker, body in image.applist if marker == "APP13")
        picture = replace(picture, comments=comments, iptc=next(filter(None, map(iptc.unwrapped, blocks)), None))
    notes = picture.notes + (("only the first picture of the file is used",) if several else ())
    lossless = name in ("BMP", "TIFF") or (name == "WEBP" and webp.is_lossless(data))
    return replace(picture, format=name, lossless=lossless, notes=notes)


def _jpeg_pixels(data: bytes, image: Any, empty: Empty) -> Array:
    """Decode a gray or colour JPEG into an array that `empty` makes. The values are the same as Pillow's."""
    import imagecodecs

    width, height = image.size
    pixels = empty((height, width) if image.mode == "L" else (height, width, 3), np.uint8)
    imagecodecs.jpeg8_decode(data, out=pixels)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _pillow_limit() -> float:
    """How many pixels Pillow opens; a limit of the whole process, which others may set."""
    from PIL import Image

    return 2 * Image.MAX_IMAGE_PIXELS if Image.MAX_IMAGE_PIXELS else math.inf


def picture_from_pil(image: Any) -> Picture:
    """Return a picture with the pixels and metadata of a `PIL.Image`."""
    notes: list[str] = []
    info = image.info
    around = _metadata(info)
    if image.mode == "CMYK":
        notes.append("CMYK converted to sRGB")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA" if "transparency" in info or image.mode == "PA" else "RGB")
        notes.append("palette converted to RGB")
    elif image.mode == "1":
        image = image.convert("L")
        notes.append("black and white converted to gray")
    elif image.mode in ("YCbCr", "HSV", "RGBX", "RGBa", "LAB"):
        notes.append(f"{image.mode} converted to RGB")
        around["icc"] = None if image.mode == "LAB" else around["icc"]
        image = image.convert("RGBA" if image.mode == "RGBa" else "RGB")
    elif image.mode == "La":
        image = image.convert("LA")
    elif image.mode in ("RGB", "L") and "transparency" in info:
        image = image.convert(image.mode + "A")
    array: Array = np.array(image)
    if image.mode == "CMYK":
        array, around["icc"] = cmyk_to_rgb(array, around["icc"]), None
    if array.dtype == np.int32:
        notes.append("int32 converted to 16 bit")
        array = np.clip(array, 0, 65535).astype(np.uint16)
    if array.dtype not in (np.uint8, np.uint16, np.float32) or array.ndim not in (2, 3) or 0 in array.shape:
        raise Unreadable(f"a picture of mode {image.mode} is not supported", "Save it again as RGB or gray")
    pixels, alpha = split_alpha(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
    return Picture(pixels=pixels, alpha=alpha, notes=tuple(notes), **around)


def _metadata(info: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata that Pillow found, as fields of `Picture`."""
    exif, xmp = info.get("exif") or None, info.get("xmp") or None
    return {
        "icc": info.get("icc_profile") or None,
        "exif": bytes(exif).removeprefix(_EXIF_PREFIX) if exif else None,
        "xmp": (xmp.encode() if isinstance(xmp, str) else bytes(xmp)) if xmp else None,
        "dpi": _dpi(info.get("dpi")),
    }


def to_pil(picture: Picture) -> Any:
    """Return a `PIL.Image` with profile and EXIF in its `info`: 8 bit, or for gray also 16 bit and float."""
    from PIL import Image

    single = picture.gray and picture.alpha is None
    array = with_alpha(picture.pixels, picture.alpha)
    if not single:
        array = to_depth(array, "8")
    elif array.dtype == np.float64:
        array = array.astype(np.float32)
    image = Image.fromarray(np.ascontiguousarray(array[:, :, 0] if single else array))
    for key, value in (("icc_profile", picture.icc), ("xmp", picture.xmp), ("dpi", picture.dpi)):
        if value is not None:
            image.info[key] = value
    if picture.exif:
        image.info["exif"] = _EXIF_PREFIX + picture.exif
    return image


def encode(picture: Picture, name: str, *, quality: int) -> tuple[bytes, tuple[str, ...]]:
    """Encode a file of format `name`, with notes on what it cannot hold; the recipe is in `picture.xmp`."""
    notes: list[str] = []
    image = to_pil(picture)
    image.info = {}
    _plugin(name)
    options: dict[str, Any] = {"icc_profile": picture.icc}
    exif, xmp = picture.exif, picture.xmp
    if name == "JPEG":
        if exif and len(exif) > _MAX_SEGMENT:
            notes, exif = (
                [*notes, "private tags dropped: with them, EXIF is larger than JPEG allows"],
                exif_tags.public(exif),
            )
        if exif and len(exif) > _MAX_SEGMENT:
            notes, exif = [*notes, "EXIF dropped: it is larger than JPEG allows"], None
        if xmp and len(xmp) > _MAX_SEGMENT:
            notes, xmp = [*notes, "XMP and recipe dropped: they are larger than JPEG allows"], None
        # Full colour resolution from 90 on: halved colour would be the larger loss there.
        options |= {"quality": quality, "subsampling": 0 if quality >= 90 else 2}
        options["optimize"] = image.width * image.height <= OPTIMIZED
    elif name == "WEBP":
        options |= {"quality": quality, "lossless": picture.lossless, "exact": True, "method": 4}
        if picture.lossless:
            options["quality"] = 80  # here it means effort, not loss
    else:
        options = {}
    if name != "BMP":
        options |= ({"exif": _EXIF_PREFIX + exif} if exif else {}) | ({"xmp": xmp} if xmp else {})
    if picture.dpi and name in ("JPEG", "BMP"):
        options["dpi"] = picture.dpi
    stream = io.BytesIO()
    image.save(stream, format=name, **options)
    data = stream.getvalue()
    return streams.with_comments(data, picture) if name == "JPEG" else data, tuple(notes)


def _plugin(name: str) -> Any:
    """Return the Pillow class that opens a format, after checking that its writer exists too."""
    from PIL import Image

    if name == "JPEG":
        from PIL.JpegImagePlugin import JpegImageFile

        return JpegImageFile  # not the registered opener, which would open every picture of a multi-picture file
    if name == "HEIF":
        heif.codec(name).register_heif_opener()
    Image.init()
    if name not in Image.OPEN or name not in Image.SAVE:
        raise MissingDependencyError(
            f"{name} files need a newer Pillow than the one installed. Run `pip install --upgrade pillow`."
        )
    return Image.OPEN[name][0]


def _dpi(value: Any) -> tuple[float, float] | None:
    try:
        across, down = (float(part) for part in value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return (across, down) if 1 < across < 1e6 and 1 < down < 1e6 else None
