"""Denoising compared with its peers: PSNR and time on folders of gray pictures, with the same noise for all.

The peers are scikit-image's NL-means (its documentation's settings for known noise: 5 x 5 patches, distance 6,
`h = 0.8 sigma`, fast mode; and a larger search with `h = 0.6 sigma`), its wavelet denoising (BayesShrink, with its default
wavelet and with db4, mostly better), and BM3D if it is installed.
All know sigma; noise is not clipped, results are clipped to [0, 1].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glocal.errors import InputError
from glocal.training.scores import psnr

Array = npt.NDArray[Any]
Method = Callable[[Array, float], Array]
LEVELS = (15, 25, 50)


@dataclass(frozen=True)
class Row:
    """One method on one set at one level (of 255): mean PSNR in dB and seconds for each megapixel."""

    set: str
    level: int
    method: str
    psnr: float
    seconds_per_megapixel: float
    pictures: int


def peers() -> dict[str, Method]:
    """Return the other libraries' methods that are installed."""
    found: dict[str, Method] = {"noisy": lambda noisy, sigma: noisy}
    try:
        from skimage.restoration import denoise_nl_means, denoise_wavelet
    except ImportError:
        pass
    else:
        found["NL-means (scikit-image)"] = lambda noisy, sigma: denoise_nl_means(
            noisy, patch_size=5, patch_distance=6, h=0.8 * sigma, sigma=sigma, fast_mode=True
        )
        found["NL-means, 7 x 7, distance 11"] = lambda noisy, sigma: denoise_nl_means(
            noisy, patch_size=7, patch_distance=11, h=0.6 * sigma, sigma=sigma, fast_mode=True
        )
        found["wavelet BayesShrink (scikit-image)"] = lambda noisy, sigma: denoise_wavelet(
            noisy, sigma=sigma, method="BayesShrink", mode="soft", rescale_sigma=False
        )
        found["wavelet BayesShrink, db4"] = lambda noisy, sigma: denoise_wavelet(
            noisy, sigma=sigma, method="BayesShrink", mode="soft", wavelet="db4", rescale_sigma=False
        )
    try:
        import bm3d
    except ImportError:
        pass
    else:
        found["BM3D"] = lambda noisy, sigma: bm3d.bm3d(noisy, sigma)
    return found


def run(
    folders: Sequence[Path],
    methods: Mapping[str, Method],
    *,
    levels: Sequence[int] = LEVELS,
    first: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Row]:
    """Measure every method on every folder and level. `first` limits the number of pictures of each folder.

    Return one Row a set, level and method. The noise of picture `i` comes from the seed `(i, level)`.
    """
    scores = []
    works = [(folder, level) for folder in folders for level in levels]
    for number, (folder, level) in enumerate(works):
        pictures = _pictures(folder, first)
        noisies = [
            truth + np.random.default_rng((i, level)).normal(0, level / 255, truth.shape)
            for i, truth in enumerate(pictures)
        ]
        for place, (name, method) in enumerate(methods.items()):
            scores.append(_measure(folder.name, level, name, method, pictures, noisies))
            if progress is not None:
                progress((number + (place + 1) / len(methods)) / len(works))
    return scores


def text(scores: Sequence[Row]) -> str:
    """Return a table for a terminal: one row a method, one column a set and level."""
    columns = list(dict.fromkeys((s.set, s.level) for s in scores))
    by_key = {(s.method, s.set, s.level): s for s in scores}
    width = max(len(s.method) for s in scores)
    lines = [" " * width + "".join(f"  {name + ' ' + str(level):>12}" for name, level in columns) + "    s/Mpixel"]
    for method in dict.fromkeys(s.method for s in scores):
        found = [by_key.get((method, *column)) for column in columns]
        cells = "".join(f"  {'' if s is None else format(s.psnr, '.2f'):>12}" for s in found)
        seconds = np.median([s.seconds_per_megapixel for s in found if s is not None])
        lines.append(f"{method:{width}}{cells}  {seconds:10.2f}")
    return "\n".join(lines)


def _measure(
    name: str, level: int, method: str, function: Method, pictures: Sequence[Array], noisies: Sequence[Array]
) -> Row:
    function(noisies[0][:64, :64], level / 255)  # compiles and loads
    scores, started = [], time.perf_counter()
    for truth, noisy in zip(pictures, noisies, strict=True):
        found = np.clip(function(noisy, level / 255), 0, 1)
        scores.append(psnr(found, truth))
    seconds = (time.perf_counter() - started) / sum(truth.size for truth in pictures) * 1e6
    return Row(name, level, method, float(np.mean(scores)), seconds, len(pictures))


def _pictures(folder: Path, first: int | None) -> list[Array]:
    from glocal.files.images.formats import SUFFIXES
    from glocal.files.images.read import read_image

    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)[:first]
    if not paths:
        message = f"bench denoise: the folder {str(folder)!r} holds no picture. Name folders such as Set12 and BSD68."
        raise InputError(message)
    pictures = []
    for path in paths:
        pixels = read_image(path).pixels
        pictures.append(pixels.mean(2) / np.iinfo(pixels.dtype).max)
    return pictures
