"""`ColorMap`: a fitted colour transfer as one function from colour to colour, to apply, save, load and export."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glocal.apps.color import mapping
from glocal.apps.color.bands import in_bands
from glocal.apps.color.gamut import chroma_limits, compressed
from glocal.apps.color.options import ColorOptions
from glocal.apps.color.protect import freedom
from glocal.apps.color.tone import toned
from glocal.atomic import write_whole
from glocal.color_space import lab_from_rgb, rgb_from_lab
from glocal.errors import GlocalError, InputError
from glocal.kernels.cpu.threads import one_thread
from glocal.tensor_files import read_tensors

_FORMAT, _VERSION = "glocal-color-map", "1"


@dataclass(frozen=True, eq=False)
class ColorMap:
    """The function that a colour transfer applies to each colour. It does not depend on the position of the pixel.

    Parameters
    ----------
    palette, new : Tensor, (n, 2) float64
        Chrominances of the photo's palette before and after, in units of Lab.
    options : ColorOptions
        Mapping, strength, gamut and protection. The other options only record how the palette was computed.
    curve : Tensor, (101,) float32, or None
        The tone curve for `luminance="match"`.
    """

    palette: Tensor
    new: Tensor
    options: ColorOptions
    curve: Tensor | None = None

    @cached_property
    def width(self) -> float:
        """The width of the smooth mapping's kernel, in units of Lab."""
        return mapping.bandwidth(self.palette)

    @cached_property
    def _field(self) -> Tensor:
        with one_thread():
            return mapping.field(self.palette, self.new, width=self.width)

    def with_strength(self, strength: float) -> ColorMap:
        """Return the same map, weaker or stronger."""
        return replace(self, options=replace(self.options, strength=strength))

    def __call__(self, rgb: Tensor) -> Tensor:
        """Map colours to colours: sRGB in [0, 1], (..., 3) float32. Cost: O(size) time, memory for the result.

        One band at a time: sRGB to Lab, displacement of the chrominance, protection, tone, gamut, back to sRGB.
        """
        if self.options.strength == 0:
            return rgb.clone()  # to Lab and back would change the last bits
        if self.options.mapping == "smooth":
            _ = self._field  # computed once, before the threads start
        if self.options.gamut == "compress":
            chroma_limits()
        return in_bands(self._changed, rgb)

    def _changed(self, rgb: Tensor) -> Tensor:
        before = lab_from_rgb(rgb)
        ab = before[:, 1:].contiguous()
        if self.options.mapping == "nearest":
            move = self.new.float()[mapping.nearest(ab, self.palette.float())] - ab
        else:
            move = mapping.looked_up(ab, self._field)
        move = move * self.options.strength
        if self.options.protect:
            move = move * freedom(before, self.options.protect).unsqueeze(1)
        level = before[:, :1]
        if self.curve is not None:
            level = level + self.options.strength * (toned(level, self.curve) - level)
        after = torch.cat([level.clamp(0, 100), ab + move], 1)
        if self.options.gamut == "compress":
            after = compressed(after, before)
        return rgb_from_lab(after).clamp_(0, 1)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the map to `path` (safetensors with the options as text). The file appears complete or not at all."""
        from safetensors.torch import save

        tensors = {"palette": self.palette, "new": self.new}
        if self.curve is not None:
            tensors["curve"] = self.curve
        about = {"format": _FORMAT, "version": _VERSION, "options": json.dumps(asdict(self.options), sort_keys=True)}
        data = save({name: t.contiguous() for name, t in tensors.items()}, metadata=about)
        with write_whole(path, overwrite=overwrite) as beside:
            beside.write_bytes(data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ColorMap:
        """Read a map that `save` wrote. Raises InputError if the file is missing, damaged or of another version."""
        from safetensors import SafetensorError

        try:
            about, tensors = read_tensors(path)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)  # safetensors leaves strerror empty
            why = "there is no such file" if missing else (error.strerror or "it cannot be read").lower()
            message = f"read color map ({path}): {why}. Check the name."
            raise InputError(message) from error
        except SafetensorError as error:
            message = f"read color map ({path}): it is damaged or not a color map. Make it again with ColorMap.save."
            raise InputError(message) from error
        if about.get("format") != _FORMAT:
            message = f"read color map ({path}): it is not a color map. Use a file that ColorMap.save wrote."
            raise InputError(message)
        if about.get("version") != _VERSION:
            message = (
                f"read color map ({path}): its version is {about.get('version')!r}, not {_VERSION!r}. "
                "Use the glocal version that wrote it, or make the map again."
            )
            raise InputError(message)
        return _checked(path, about.get("options", ""), tensors)


def _checked(path: str | os.PathLike[str], options: str, tensors: dict[str, Tensor]) -> ColorMap:
    """Return a map from the parts of a file, after checking that they belong together."""
    try:
        fields: dict[str, Any] = json.loads(options)
        chosen = ColorOptions(**fields)
        palette, new, curve = tensors["palette"].double(), tensors["new"].double(), tensors.get("curve")
        whole = palette.ndim == 2 and palette.shape == new.shape and palette.shape[1] == 2 and len(palette) > 0
        whole = whole and (curve is None or (curve.shape == (101,) and bool(torch.isfinite(curve).all())))
        whole = whole and bool(torch.isfinite(palette).all() and torch.isfinite(new).all())
    except (ValueError, TypeError, KeyError, AttributeError, GlocalError) as error:
        message = f"read color map ({Path(path)}): its contents are damaged. Make it again with ColorMap.save."
        raise InputError(message) from error
    if not whole:
        message = f"read color map ({Path(path)}): its palettes are damaged. Make it again with ColorMap.save."
        raise InputError(message)
    return ColorMap(palette, new, chosen, None if curve is None else curve.float())
