"""The results of the four jobs: the picture or the sound, its recipe, and a method to save both."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from glocal.files.audio.formats import AudioInfo
from glocal.files.images.colors import from_srgb
from glocal.files.images.image_like import ImageLike, Layout, as_given
from glocal.files.images.picture import Array, Picture, to_depth

if TYPE_CHECKING:
    from torch import Tensor

AudioLike: TypeAlias = "Array | Tensor | str | os.PathLike[str]"
"""Samples (n,) or (n, channels) as floats with full scale 1 or as signed integers, a tensor of them, or a path."""
_SHOWN = 1024  # longer side of a picture in a notebook
_HEARD = 60  # seconds of sound in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of a job.

    seconds : the time that the call took; `phases` says where it went, as far as it is known.
    recipe : options, seed, versions, and names and hashes of the inputs.
    notes : what is worth knowing about the input and the result, in words.
    stopped : whether the callback ended the run early; the result is then the best so far.
    """

    seconds: float
    recipe: dict[str, Any]
    notes: tuple[str, ...] = ()
    stopped: bool = False
    phases: dict[str, float] = field(default_factory=dict)

    def saved_recipe(self, **output: Any) -> dict[str, Any]:
        """Return the recipe as it is stored in a file, with the settings of the output."""
        recipe = self.recipe | {"arguments": self.recipe["arguments"] | output}
        return recipe | {"stopped": True} if self.stopped else recipe


@dataclass(frozen=True, eq=False, repr=False)
class ImageResult(Result):
    """A picture and how it came about.

    image : of the input's type and shape (an array for a path); see `at_depth` for other depths. Only a gray photo
        (h, w) that style or colour transfer gives colours comes back as (h, w, 3).
    original : the input with its depth, profile and metadata, which the result keeps.
    """

    original: Picture = field(kw_only=True)
    given: ImageLike = field(kw_only=True)
    layout: Layout | None = field(default=None, kw_only=True)

    @abstractmethod
    def at_depth(self, depth: str) -> Picture:
        """Return the result with the metadata of the input, at depth "8", "16", "float", or "keep" for the input's."""

    @cached_property
    def picture(self) -> Picture:
        """The result with the depth, profile and metadata of the input."""
        return self.at_depth("keep")

    @cached_property
    def image(self) -> Any:
        """The result in the type and shape of the input; a gray photo that got colours has three channels."""
        return as_given(self.picture, self.given, self.layout)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        depth: str = "keep",
        quality: int = 95,
        metadata: str = "keep",
        overwrite: bool = False,
    ) -> tuple[str, ...]:
        """Write the result with everything that the command line keeps: depth, alpha, profile, EXIF, XMP and recipe.

        Parameters
        ----------
        path : path
            The suffix decides the format.
        depth, quality, metadata, overwrite
            See `glocal.files.images.write.write_image`.

        Returns
        -------
        Notes on what the format could not hold; empty if everything was kept.

        Raises
        ------
        ArgumentError, OutputError
            The format is unknown, the file exists, or it cannot be written.
        """
        from glocal.files.images.write import write_image

        recipe = self.saved_recipe(depth=depth, quality=quality, metadata=metadata)
        return write_image(
            path,
            self.at_depth(depth),
            depth=depth,
            quality=quality,
            metadata=metadata,
            recipe=recipe,
            overwrite=overwrite,
        )

    def __repr__(self) -> str:
        h, w = self.picture.size
        depth = "float" if self.picture.depth == "float" else f"{self.picture.depth} bit"
        return f"{type(self).__name__}({w} x {h}, {depth}, {self.seconds:.1f} s{_noted(self.notes)})"

    def _repr_png_(self) -> bytes:
        """Return the picture for notebooks."""
        import io

        from PIL import Image

        from glocal.files.images.colors import to_srgb

        shown = Image.fromarray(to_depth(to_srgb(self.picture), "8"))
        shown.thumbnail((_SHOWN, _SHOWN))
        buffer = io.BytesIO()
        shown.save(buffer, "PNG")
        return buffer.getvalue()


@dataclass(frozen=True, eq=False, repr=False)
class SrgbResult(ImageResult):
    """A picture that was computed in sRGB: `rgb` is (h, w, 3) float32 in [0, 1]."""

    rgb: Array = field(kw_only=True)

    def at_depth(self, depth: str) -> Picture:
        """Return the result with the profile and metadata of the input."""
        return from_srgb(self.original, self.rgb, depth=depth)


@dataclass(frozen=True, eq=False, repr=False)
class AudioResult(Result):
    """A sound and how it came about.

    audio : of the input's type and shape; an array (n,) or (n, channels) of floats for a path.
    rate : samples a second.
    info : what the input file was; None for samples in memory.
    """

    audio: Any = field(kw_only=True)
    rate: int = field(kw_only=True)
    info: AudioInfo | None = field(default=None, kw_only=True)

    def samples(self) -> Array:
        """Return the sound as floats (n, channels) with full scale 1."""
        array = self.audio.detach().cpu().numpy() if hasattr(self.audio, "detach") else np.asarray(self.audio)
        if array.dtype.kind == "i":
            array = array.astype(np.float64) / (float(np.iinfo(array.dtype).max) + 1)
        return array.reshape(len(array), -1)

    def save(
        self, path: str | os.PathLike[str], *, subtype: str | None = None, overwrite: bool = False
    ) -> tuple[str, ...]:
        """Write the sound with everything that the command line keeps: sample type, rate, tags and recipe.

        Parameters
        ----------
        path : path
            The suffix decides the format.
        subtype : str or None
            How samples are stored, such as "PCM_24"; None keeps the input's type where the format has it.
        overwrite : bool
            Replace an existing file.

        Returns
        -------
        Notes on what the format could not hold; empty if everything was kept.
        """
        from glocal.files.audio.audio_file import create_audio

        samples = self.samples()
        recipe = self.saved_recipe(subtype=subtype)
        if subtype is None and self.info is None and str(path).lower().endswith(".wav"):
            subtype = _wav_subtype(np.asarray(self.audio).dtype if not hasattr(self.audio, "detach") else samples.dtype)
        with create_audio(
            path,
            like=self.info,
            rate=self.rate,
            channels=samples.shape[1],
            subtype=subtype,
            recipe=recipe,
            overwrite=overwrite,
        ) as out:
            out.write(samples)
        return out.notes

    def __repr__(self) -> str:
        samples = self.samples()
        length = f"{len(samples) / self.rate:.1f} s of sound, {self.rate} Hz, {samples.shape[1]} channel(s)"
        return f"{type(self).__name__}({length}, {self.seconds:.1f} s{_noted(self.notes)})"

    def _repr_html_(self) -> str:
        """Return a player with the first minute for notebooks."""
        import base64
        import io

        import soundfile

        samples = self.samples()[: _HEARD * self.rate]
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, self.rate, format="WAV", subtype="PCM_16")
        data = base64.b64encode(buffer.getvalue()).decode()
        return f'<audio controls src="data:audio/wav;base64,{data}"></audio>'


def _wav_subtype(dtype: Any) -> str:
    return {"int16": "PCM_16", "int32": "PCM_32", "float64": "DOUBLE"}.get(np.dtype(dtype).name, "FLOAT")


def _noted(notes: tuple[str, ...]) -> str:
    return f", {len(notes)} note(s)" if notes else ""


def image_inputs(pictures: Mapping[str, Picture]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return what a recipe stores about pictures: (path, SHA-256) of files, and the hash of the pixels of others."""
    import hashlib

    files = [(str(one.path), one.sha256) for one in pictures.values() if one.path is not None and one.sha256]
    pixels = {
        name: hashlib.sha256(np.ascontiguousarray(one.pixels).tobytes()).hexdigest()
        for name, one in pictures.items()
        if one.path is None
    }
    return files, pixels
