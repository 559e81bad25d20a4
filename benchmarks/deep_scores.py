"""Measure the PSNR of a deep denoiser on folders of test pictures: noise of 15, 25 and 50 of 255, not clipped, fixed seeds.

    python benchmarks/deep_scores.py WEIGHTS FOLDER... [--levels 25] [--like GRAY_FOLDER]

WEIGHTS is an `averaged.npz` of `train_deep.py` or a `.safetensors` model. The noise of picture `i` at a level comes from the seed
`(i, level)`, as in `glocal bench denoise`. A FOLDER may also be an `.npz` file whose arrays are coded pictures. Pictures are read as
gray or colour to match the network. `--like` keeps the pictures of FOLDER whose luma equals one of GRAY_FOLDER (RMSE below 1 of 255) in
the order of GRAY_FOLDER. This selects CBSD68 from BSDS500 val.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from glocal.apps.denoise.bands import denoise_deep
from glocal.apps.denoise.deep import SHAPES, DeepDenoiser
from glocal.apps.denoise.models import load_deep


def main() -> None:
    """Print one row for each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--levels", type=int, nargs="+", default=[15, 25, 50])
    parser.add_argument("--like", type=Path)
    parser.add_argument("--first", type=int)
    options = parser.parse_args()
    net = _network(options.weights).to("cuda" if torch.cuda.is_available() else "cpu")
    mode = "L" if net.shape.channels == 1 else "RGB"
    for folder in options.folders:
        sources = _alike(folder, options.like) if options.like else _coded(folder)
        pictures = _pictures(sources[: options.first], mode)
        row, started = [], time.perf_counter()
        for level in options.levels:
            scores = [_score(net, picture, level, i) for i, picture in enumerate(pictures)]
            row.append(f"{level}: {np.mean(scores):.3f}")
        pixels = sum(p.shape[0] * p.shape[1] for p in pictures) * len(options.levels)
        speed = (time.perf_counter() - started) / pixels * 1e6
        print(f"{folder.stem}, {len(pictures)} pictures: {', '.join(row)} dB, {speed:.1f} s/Mpixel", flush=True)


def gray_pictures(place: Path) -> list[np.ndarray]:
    """Return the gray pictures of a folder or of a packed file (an `.npz` whose arrays are coded pictures) in [0, 1]."""
    return _pictures(_coded(place), "L")


def _pictures(sources: Sequence[Path | io.BytesIO], mode: str) -> list[np.ndarray]:
    return [np.asarray(Image.open(source).convert(mode)) / 255.0 for source in sources]


def _coded(place: Path) -> list[Path | io.BytesIO]:
    if place.suffix != ".npz":
        return list(_files(place))
    with np.load(place) as file:
        return [io.BytesIO(file[name].tobytes()) for name in sorted(file.files)]


def _score(net: DeepDenoiser, picture: np.ndarray, level: int, number: int) -> float:
    noisy = picture + np.random.default_rng((number, level)).normal(0, level / 255, picture.shape)
    planes = torch.from_numpy(noisy.astype(np.float32).reshape(*picture.shape[:2], -1)).permute(2, 0, 1)
    planes = planes.to(net.head.weight.device)
    found = denoise_deep(planes, net, level / 255).permute(1, 2, 0).reshape(picture.shape).cpu().numpy()
    return float(-10 * np.log10(np.mean((found.clip(0, 1) - picture) ** 2)))


def _network(path: Path) -> DeepDenoiser:
    if path.suffix == ".safetensors":
        nets = [net for channels in (1, 3) if (net := _of(path, channels)) is not None]
        return nets[0]
    with np.load(path) as file:
        arrays = dict(file)
    full, channels = arrays["head.weight"].shape[0], arrays["tail.weight"].shape[0]
    maps = arrays["head.weight"].shape[1] - channels
    shape = next(shape for shape in SHAPES.values() if (shape.widths[0], shape.maps) == (full, maps))
    net = DeepDenoiser(replace(shape, channels=channels)).requires_grad_(False)
    net.load_state_dict({name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()})
    return net.to(memory_format=torch.channels_last)


def _of(path: Path, channels: int) -> DeepDenoiser | None:
    from glocal.errors import ArgumentError

    try:
        return load_deep(str(path), channels)
    except ArgumentError:
        return None


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix.lower() in (".png", ".jpg"))


def _alike(folder: Path, grays: Path) -> list[Path]:
    lumas = {path: np.asarray(Image.open(path).convert("L"), np.float32) for path in _files(folder)}
    found = []
    for gray in _files(grays):
        wanted = np.asarray(Image.open(gray).convert("L"), np.float32)
        near = [p for p, v in lumas.items() if v.shape == wanted.shape and np.mean((v - wanted) ** 2) < 1]
        found += near
    return found


if __name__ == "__main__":
    main()
