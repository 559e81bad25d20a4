"""A colour map as a 3-D look-up table, for photo and video editors: `.cube` text files and HaldCLUT pictures."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from glocal.apps.color.bands import in_bands
from glocal.apps.color.measures import difference_of_maps
from glocal.apps.color.options import ColorFiles
from glocal.atomic import write_whole
from glocal.errors import ArgumentError, GlocalError, InputError
from glocal.files.images.picture import Picture, to_depth
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image

CUBE_SIZES = (33, 65)
_LONGEST = 4096  # characters of a line
HALD_LEVEL = 8
"""A HaldCLUT of level 8 is 512 x 512 pixels for 64 points per axis, the size that editors ship."""


@dataclass(frozen=True, eq=False)
class Lut:
    """A map from sRGB to sRGB, given at `size` points per axis: table (size, size, size, 3), red first, in [0, 1]."""

    table: Tensor

    @property
    def size(self) -> int:
        """The number of points along each axis."""
        return self.table.shape[0]

    def __call__(self, rgb: Tensor) -> Tensor:
        """Look up colours (..., 3) float32 in [0, 1], with linear interpolation. Cost: O(size of rgb)."""
        grid = self.table.permute(3, 0, 1, 2).unsqueeze(0)

        def look_up(part: Tensor) -> Tensor:
            place = (part.flip(1) * 2 - 1).reshape(1, 1, 1, -1, 3)
            found = torch.nn.functional.grid_sample(grid, place, padding_mode="border", align_corners=True)
            return found[0, :, 0, 0].T

        return in_bands(look_up, rgb)


def lut_of(look: Callable[[Tensor], Tensor], size: int) -> Lut:
    """Tabulate a colour map at `size` points per axis. Cost: O(size^3)."""
    if not 2 <= size <= 129:
        message = f"lut_of: `size` (={size}) must be between 2 and 129. Editors read 33 and 65."
        raise ArgumentError(message)
    axis = torch.linspace(0, 1, size)
    return Lut(look(torch.cartesian_prod(axis, axis, axis)).reshape(size, size, size, 3))


def write_lut(path: str | os.PathLike[str], look: Callable[[Tensor], Tensor], *, size: int = 33, overwrite: bool = False) -> Lut:  # fmt: skip
    """Write a map as `.cube` with `size` points per axis, or as a 16-bit HaldCLUT `.png` with 64. Returns the table."""
    suffix = Path(path).suffix.lower()
    if suffix == ".cube":
        lut = lut_of(look, size)
        with write_whole(path, overwrite=overwrite) as beside:
            beside.write_text(cube_text(lut, title=Path(path).stem))
        return lut
    if suffix == ".png":
        lut = lut_of(look, HALD_LEVEL**2)
        write_image(path, Picture(hald_pixels(lut)), overwrite=overwrite)
        return lut
    message = f"write LUT ({path}): the suffix {suffix!r} is unknown. Use .cube, or .png for a HaldCLUT."
    raise ArgumentError(message)


def save_maps(look: Any, files: ColorFiles, photo: Callable[[], Tensor], *, overwrite: bool) -> dict[str, Any]:
    """Write a map into the files that the user named, and say how closely each LUT follows it.

    Parameters
    ----------
    look : ColorMap or Lut
        The map.
    files : ColorFiles
        The names: `save_map`, `lut` and `lut_size`.
    photo : callable() -> Tensor, (..., 3)
        Returns the colours on which a LUT is compared with the map. Only called if there is a LUT.
    overwrite : bool
        Replace files that exist.

    Returns
    -------
    dict
        What `--json` shows: `map`, `luts`, and `lines` for people; empty if no file is named.
    """
    shown: dict[str, Any] = {}
    if files.save_map:
        look.save(files.save_map, overwrite=overwrite)
        shown["map"] = files.save_map
    for path in files.lut:
        lut = write_lut(path, look, size=int(files.lut_size), overwrite=overwrite)
        mean, largest = difference_of_maps(look, lut, photo())
        shown.setdefault("luts", []).append({"path": path, "size": lut.size, "mean": mean, "max": largest})
        text = f"{path}: {lut.size} points, differs from the map by {mean:.2f} on average and {largest:.2f} at most"
        shown.setdefault("lines", []).append(f"{text} (CIE76, on this photo)")
    return shown


def read_lut(path: str | os.PathLike[str]) -> Lut:
    """Read a `.cube` or HaldCLUT `.png`. Raises InputError if it is missing, damaged or not a LUT."""
    if Path(path).suffix.lower() == ".png":
        return _from_hald(path, read_image(path))
    try:
        with Path(path).open(encoding="utf-8") as file:
            return _from_cube(path, file)
    except FileNotFoundError as error:
        message = f"read LUT ({path}): there is no such file. Check the name."
        raise InputError(message) from error
    except OSError as error:
        message = f"read LUT ({path}): {(error.strerror or 'it cannot be read').lower()}. Check the name."
        raise InputError(message) from error
    except UnicodeDecodeError as error:
        message = f"read LUT ({path}): it is not text, so it is not a .cube file. Export it again."
        raise InputError(message) from error


def cube_text(lut: Lut, *, title: str) -> str:
    """Return the text of a `.cube` file: one line per point, red changes fastest."""
    rows = lut.table.permute(2, 1, 0, 3).reshape(-1, 3).clamp(0, 1).tolist()
    safe = title.replace('"', "'").replace("\n", " ")
    head = [f'TITLE "{safe}"', f"LUT_3D_SIZE {lut.size}", "DOMAIN_MIN 0.0 0.0 0.0", "DOMAIN_MAX 1.0 1.0 1.0"]
    return "\n".join([*head, *(f"{r:.6f} {g:.6f} {b:.6f}" for r, g, b in rows)]) + "\n"


def hald_pixels(lut: Lut) -> np.ndarray:
    """Return a HaldCLUT: the points in raster order, red changes fastest, in a square of `size^1.5` pixels, 16 bits."""
    side = math.isqrt(lut.size**3)
    values = lut.table.permute(2, 1, 0, 3).reshape(side, side, 3).clamp(0, 1).numpy()
    return to_depth(np.ascontiguousarray(values), "16")


def _from_cube(path: str | os.PathLike[str], file: TextIO) -> Lut:
    """Read line by line, and only as many lines as the size needs: any number of lines may follow a small header."""
    size, number = 0, 0
    values = array("f")
    while line := file.readline(_LONGEST):
        number += 1
        words = line.split()
        if not words or words[0].startswith("#") or words[0] == "TITLE":
            continue
        if words[0] == "LUT_1D_SIZE":
            message = f"read LUT ({path}): it is one-dimensional, which cannot hold a colour map. Export a 3-D LUT."
            raise InputError(message)
        try:
            if words[0] == "LUT_3D_SIZE":
                size = int(words[1])
                if not 2 <= size <= 256:
                    break
            elif words[0] in ("DOMAIN_MIN", "DOMAIN_MAX", "LUT_3D_INPUT_RANGE"):
                _check_domain(path, words)
            else:
                r, g, b = (float(word) for word in words)
                values.extend((r, g, b))
        except GlocalError:
            raise
        except (ValueError, IndexError) as error:
            message = (
                f"read LUT ({path}): line {number} ({line[:40].rstrip()!r}) cannot be understood. Export it again."
            )
            raise InputError(message) from error
        if len(values) > 3 * size**3:
            break
    if not 2 <= size <= 256:
        message = (
            f"read LUT ({path}): its size is {size}, or comes after its points. A 3-D LUT begins with LUT_3D_SIZE, from 2 "
            "to 256. Export it again."
        )
        raise InputError(message)
    if len(values) != 3 * size**3:
        many = "more" if len(values) > 3 * size**3 else len(values) // 3
        message = (
            f"read LUT ({path}): it has {many} points, but a size of {size} needs {size**3}. "
            "It was cut short or damaged: export it again."
        )
        raise InputError(message)
    table = torch.frombuffer(values, dtype=torch.float32).reshape(size, size, size, 3)
    return _finite(path, table.permute(2, 1, 0, 3))


def _check_domain(path: str | os.PathLike[str], words: list[str]) -> None:
    wanted = {"DOMAIN_MIN": {0.0}, "DOMAIN_MAX": {1.0}, "LUT_3D_INPUT_RANGE": {0.0, 1.0}}[words[0]]
    if {float(word) for word in words[1:]} != wanted:
        message = (
            f"read LUT ({path}): its domain is not 0 to 1 ({' '.join(words)}), so it is meant for log or HDR footage. "
            "Export it for sRGB or Rec. 709."
        )
        raise InputError(message)


def _from_hald(path: str | os.PathLike[str], picture: Picture) -> Lut:
    side = picture.size[0]
    size = round(side ** (2 / 3))
    if picture.gray or picture.size != (side, side) or size < 2 or size**3 != side * side:
        message = (
            f"read LUT ({path}): a picture of {picture.size[1]} x {picture.size[0]} is not a HaldCLUT (level 8 has "
            "512 x 512). Use one that write_lut wrote."
        )
        raise InputError(message)
    values = torch.from_numpy(to_depth(picture.pixels, "float"))
    return _finite(path, values.reshape(size, size, size, 3).permute(2, 1, 0, 3))


def _finite(path: str | os.PathLike[str], table: Tensor) -> Lut:
    if not bool(torch.isfinite(table).all()):
        message = f"read LUT ({path}): it has values that are NaN or infinite. Export it again."
        raise InputError(message)
    return Lut(table.clamp(0, 1).contiguous())
