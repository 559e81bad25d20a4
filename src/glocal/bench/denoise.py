"""Denoising compared with its peers: PSNR, SSIM and time on folders of pictures, with the same noise for all.

Gray or colour pictures get white noise of 15, 25 and 50 of 255. Pairs of real photos (NAME_real.*, NAME_mean.*) are denoised as
they are; every method has to find out the noise.
The peers are scikit-image's NL-means (its documentation's settings for known noise: 5 x 5 patches, distance 6,
`h = 0.8 sigma`, fast mode; and a larger search with `h = 0.6 sigma`), its wavelet denoising (BayesShrink, with its default
wavelet and with db4, mostly better), and BM3D if it is installed.
For white noise all know sigma; noise is not clipped, results are clipped to [0, 1].
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
    """One method on one set at one level (of 255; 0 for real pairs): mean PSNR in dB, SSIM, seconds for each megapixel.

    `worse` is the number of pictures with a lower PSNR than the noisy one.
    """

    set: str
    level: int
    method: str
    psnr: float
    ssim: float
    worse: int
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
            noisy, **_axis(noisy), patch_size=5, patch_distance=6, h=0.8 * sigma, sigma=sigma, fast_mode=True
        )
        found["NL-means, 7 x 7, distance 11"] = lambda noisy, sigma: denoise_nl_means(
            noisy, **_axis(noisy), patch_size=7, patch_distance=11, h=0.6 * sigma, sigma=sigma, fast_mode=True
        )
        found["wavelet BayesShrink (scikit-image)"] = lambda noisy, sigma: denoise_wavelet(
            noisy, **_axis(noisy), sigma=sigma, method="BayesShrink", mode="soft", rescale_sigma=False
        )
        found["wavelet BayesShrink, db4"] = lambda noisy, sigma: denoise_wavelet(
            noisy, **_axis(noisy), sigma=sigma, method="BayesShrink", mode="soft", wavelet="db4", rescale_sigma=False
        )
    try:
        import bm3d
    except ImportError:
        pass
    else:
        found["BM3D"] = lambda noisy, sigma: (bm3d.bm3d_rgb if noisy.ndim == 3 else bm3d.bm3d)(noisy, sigma)
    return found


def _axis(noisy: Array) -> dict[str, Any]:
    return {"channel_axis": 2} if noisy.ndim == 3 else {}


def run(
    folders: Sequence[Path],
    methods: Mapping[str, Method],
    *,
    levels: Sequence[int] = LEVELS,
    color: bool = False,
    first: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Row]:
    """Measure every method on every folder and level. `first` limits the number of pictures of each folder.

    Return one Row for each set, level and method. The noise of picture `i` comes from the seed `(i, level)`.
    """
    scores = []
    works = [(folder, level) for folder in folders for level in levels]
    for number, (folder, level) in enumerate(works):
        pictures = _pictures(folder, first, color=color)
        noisies = [
            truth + np.random.default_rng((i, level)).normal(0, level / 255, truth.shape)
            for i, truth in enumerate(pictures)
        ]
        for place, (name, method) in enumerate(methods.items()):
            scores.append(_measure(folder.name, level, name, method, pictures, noisies))
            if progress is not None:
                progress((number + (place + 1) / len(methods)) / len(works))
    return scores


def run_pairs(
    folders: Sequence[Path],
    methods: Mapping[str, Callable[[Array], Array]],
    *,
    first: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Row]:
    """Measure blind methods on folders of real pairs: NAME_real.* is noisy, NAME_mean.* is the truth."""
    scores = []
    for number, folder in enumerate(folders):
        pairs = _pairs(folder, first)
        truths, noisies = [truth for truth, _ in pairs], [noisy for _, noisy in pairs]
        for place, (name, method) in enumerate(methods.items()):
            scores.append(_measure(folder.name, 0, name, _without_sigma(method), truths, noisies))
            if progress is not None:
                progress((number + (place + 1) / len(methods)) / len(folders))
    return scores


def _without_sigma(method: Callable[[Array], Array]) -> Method:
    return lambda noisy, sigma: method(noisy)


def text(scores: Sequence[Row]) -> str:
    """Return a table for a terminal: one row for each method, one column for each set and level (PSNR / SSIM)."""
    columns = list(dict.fromkeys((s.set, s.level) for s in scores))
    by_key = {(s.method, s.set, s.level): s for s in scores}
    width = max(len(s.method) for s in scores)
    lines = [
        " " * width
        + "".join(f"  {name + ' ' + (str(level) if level else 'pairs'):>16}" for name, level in columns)
        + "    s/Mpixel"
    ]
    for method in dict.fromkeys(s.method for s in scores):
        found = [by_key.get((method, *column)) for column in columns]
        cells = "".join(f"  {'' if s is None else f'{s.psnr:.2f} / {s.ssim:.3f}':>16}" for s in found)
        seconds = np.median([s.seconds_per_megapixel for s in found if s is not None])
        lines.append(f"{method:{width}}{cells}  {seconds:10.2f}")
    return "\n".join(lines)


def _measure(
    name: str, level: int, method: str, function: Method, pictures: Sequence[Array], noisies: Sequence[Array]
) -> Row:
    function(noisies[0][:64, :64], level / 255)  # compiles and loads
    psnrs, ssims, worse, seconds = [], [], 0, 0.0
    for truth, noisy in zip(pictures, noisies, strict=True):
        started = time.perf_counter()
        found = np.clip(function(noisy, level / 255), 0, 1)
        seconds += time.perf_counter() - started
        psnrs.append(psnr(found, truth))
        ssims.append(ssim(found, truth))
        worse += psnrs[-1] < psnr(np.clip(noisy, 0, 1), truth)
    pixels = sum(truth.shape[0] * truth.shape[1] for truth in pictures)
    mean, likeness = float(np.mean(psnrs)), float(np.mean(ssims))
    return Row(name, level, method, mean, likeness, worse, seconds / pixels * 1e6, len(pictures))


def ssim(found: Array, truth: Array) -> float:
    """Return the structural similarity of pictures (h, w) or (h, w, 3) in [0, 1], with a Gaussian window of 1.5 pixels.

    The settings are those of Wang et al. 2004; colours are the mean over the channels.

    >>> picture = np.random.default_rng(0).random((32, 32))
    >>> ssim(picture, picture)
    1.0
    """
    from scipy.ndimage import gaussian_filter

    def blur(x: Array) -> Array:
        blurred: Array = gaussian_filter(x, 1.5, truncate=3.5, axes=(0, 1))
        return blurred

    x, y = np.asarray(found, np.float64), np.asarray(truth, np.float64)
    mx, my = blur(x), blur(y)
    vx, vy, vxy = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    c1, c2 = 0.01**2, 0.03**2
    values = ((2 * mx * my + c1) * (2 * vxy + c2)) / ((mx * mx + my * my + c1) * (vx + vy + c2))
    inner = values[5:-5, 5:-5] if min(values.shape[:2]) > 10 else values
    return float(inner.mean())


def _paths(folder: Path) -> list[Path]:
    from glocal.files.images.formats import SUFFIXES

    return sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)


def _pictures(folder: Path, first: int | None, *, color: bool) -> list[Array]:
    paths = _paths(folder)[:first]
    if not paths:
        message = f"bench denoise: the folder {str(folder)!r} holds no picture. Name folders such as Set12 and BSD68."
        raise InputError(message)
    return [_read(path) if color else _read(path).mean(2) for path in paths]


def _pairs(folder: Path, first: int | None) -> list[tuple[Array, Array]]:
    noisy = {path.stem.removesuffix("_real"): path for path in _paths(folder) if path.stem.endswith("_real")}
    truth = {path.stem.removesuffix("_mean"): path for path in _paths(folder) if path.stem.endswith("_mean")}
    names = sorted(noisy.keys() & truth.keys())[:first]
    if not names:
        message = f"bench denoise: the folder {str(folder)!r} holds no pair. Name the files A_real.jpg and A_mean.jpg."
        raise InputError(message)
    return [(_read(truth[name]), _read(noisy[name])) for name in names]


def _read(path: Path) -> Array:
    from glocal.files.images.read import read_image

    pixels = read_image(path).pixels
    values: Array = pixels / np.iinfo(pixels.dtype).max
    return values
