"""Random noisy crops of photos for training, drawn on the device that trains.

The photos are stored on the device as one long array of 8-bit pixels. A crop is a gather from it, so that drawing,
flipping, rotating and adding noise can be part of a recorded step.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.errors import InputError
from glocal.training.ranks import ALONE, Ranks

Array = npt.NDArray[Any]
# Which reduced copies of a source are used. BSDS500 and ImageNet are JPEG files with halved chroma. Colour networks see them
# as they are, because most photos are like that, and reduced to about a half, where nothing of the halving is left.
SCALES: dict[int, dict[str, tuple[float, ...]]] = {
    1: {"bsds": (1.0, 0.75), "imagenet": (1.0, 0.75), "extra": (1.0, 0.75)},
    3: {"bsds": (1.0, 0.75, 0.6, 0.5), "imagenet": (1.0, 0.6), "extra": (1.0, 0.75)},
}
SHARES = {1: {"bsds": 0.6, "imagenet": 0.2, "extra": 0.2}, 3: {"bsds": 0.6, "imagenet": 0.15, "extra": 0.25}}
_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
DRAWS = 7  # uniform numbers for each crop


@dataclass(frozen=True)
class PackedPhotos:
    """Coded photos, the source each comes from, and its part ("train" or "validation")."""

    files: tuple[bytes, ...]
    sources: tuple[str, ...]
    parts: tuple[str, ...]

    @staticmethod
    def of_folder(folder: Path, *, validation: int, seed: int = 0, ranks: Ranks = ALONE) -> PackedPhotos:
        """Read the photos of a folder and its subfolders. `validation` of them, drawn at random, are held out.

        Of several processes, each reads its share of the files and sends them to the others. Raises InputError if there are too few.
        """
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
        mine = [path.read_bytes() for path in paths[ranks.rank :: ranks.count]]
        files = [data for data in ranks.gathered([data if _readable(data) else b"" for data in mine]) if data]
        if len(files) <= validation:
            message = f"train: {str(folder)!r} has {len(files)} readable photos and {validation} are for validation. Use more photos."
            raise InputError(message)
        held = set(np.random.default_rng(seed).permutation(len(files))[:validation].tolist())
        parts = tuple("validation" if number in held else "train" for number in range(len(files)))
        return PackedPhotos(tuple(files), ("photos",) * len(files), parts)

    @staticmethod
    def load(path: Path) -> PackedPhotos:
        """Read the `.npz` that `benchmarks/pack_photos.py` writes. Raises InputError for anything else."""
        try:
            with np.load(path, allow_pickle=False) as file:
                data, ends = file["data"].tobytes(), file["ends"].tolist()
                sources, parts = file["sources"].tolist(), file["parts"].tolist()
        except Exception as error:  # of a damaged archive, zipfile, zlib and NumPy may raise anything
            message = f"PackedPhotos: {str(path)!r} is not a file of packed photos ({error}). Pack them again."
            raise InputError(message) from error
        files = tuple(data[start:end] for start, end in zip([0, *ends], ends, strict=False))
        return PackedPhotos(files, tuple(sources), tuple(parts))

    def pictures(self, part: str, channels: int) -> list[tuple[str, Array]]:
        """Decode the photos of a part: (source, (h, w, channels) uint8)."""
        mode = "L" if channels == 1 else "RGB"
        chosen = [number for number, name in enumerate(self.parts) if name == part]
        with ThreadPoolExecutor() as pool:
            pictures = pool.map(lambda number: _decoded(self.files[number], mode), chosen)
            return [(self.sources[number], picture) for number, picture in zip(chosen, pictures, strict=True)]


def _readable(data: bytes) -> bool:
    try:
        _decoded(data, "L")
    except Exception:  # Pillow raises anything for a damaged file
        return False
    return True


def _decoded(data: bytes, mode: str) -> Array:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        pixels = np.asarray(image.convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)


def reduced(picture: Array, scale: float) -> Array:
    """Reduce (h, w, c) uint8 by `scale` (bicubic, antialiased)."""
    if scale == 1:
        return picture
    size = tuple(int(n * scale) for n in picture.shape[:2])
    planes = torch.from_numpy(picture.copy()).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(planes, size=size, mode="bicubic", antialias=True)
    return small[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()


@dataclass(frozen=True)
class Example:
    """Noisy crops (b, c, h, w), the noise level or maps that the network gets, the clean crops, and the noise levels (b,)."""

    noisy: Tensor
    noise: Tensor
    clean: Tensor
    level: Tensor


def turned(line: Tensor, flips: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns (b, side, side) of crops, mirrored and transposed as three flags (b, 3) say."""
    side = len(line)
    y, x = line.view(1, -1, 1), line.view(1, 1, -1)
    y = torch.where(flips[:, 0].view(-1, 1, 1), side - 1 - y, y)
    x = torch.where(flips[:, 1].view(-1, 1, 1), side - 1 - x, x)
    transposed = flips[:, 2].view(-1, 1, 1)
    return torch.where(transposed, x, y), torch.where(transposed, y, x)


class Crops:
    """Photos on a device, and batches of random crops of them.

    A crop is drawn in two steps. First a picture is drawn: its source by the source's probability, and within the source
    in proportion to its area. Then a position, a flip and a rotation are drawn.

    Parameters
    ----------
    pictures : list of (source, (h, w, c) uint8)
        The photos.
    side : int
        The side of a crop. Pictures with a shorter side are left out.
    device : torch.device or str
        Where the photos are stored.
    """

    def __init__(
        self, pictures: list[tuple[str, Array]], *, side: int, shares: dict[str, float], device: torch.device | str
    ) -> None:
        chosen = [(source, p) for source, p in pictures if min(p.shape[:2]) >= side]
        if not chosen:
            message = f"Crops: no picture is at least {side} pixels high and wide. Use larger photos."
            raise InputError(message)
        self.side, self.channels = side, chosen[0][1].shape[2]
        sizes = np.array([p.shape[:2] for _, p in chosen])
        areas = sizes.prod(1)
        sources = np.array([source for source, _ in chosen])
        weights = np.array([shares[s] for s in sources]) * areas
        for source in shares:
            own = sources == source
            weights[own] /= max(1, areas[own].sum())
        self.pixels = torch.from_numpy(np.concatenate([p.reshape(-1, self.channels) for _, p in chosen])).to(device)
        self.sizes = torch.from_numpy(sizes).to(device)
        self.starts = torch.from_numpy(np.concatenate([[0], areas.cumsum()[:-1]])).to(device)
        self.edges = torch.from_numpy((weights.cumsum() / weights.sum()).astype(np.float32)).to(device)
        self.line = torch.arange(side, device=device)

    def batch(self, draws: Tensor) -> Tensor:
        """Cut crops (b, c, side, side) float32 in [0, 1] as uniform numbers `draws` (b, 7) in [0, 1) say."""
        number = torch.searchsorted(self.edges, draws[:, 0].contiguous()).clamp(max=len(self.edges) - 1)
        height, width = self.sizes[number].unbind(1)
        top = (draws[:, 1] * (height - self.side + 1)).long()
        left = (draws[:, 2] * (width - self.side + 1)).long()
        row, column = turned(self.line, draws[:, 3:6] < 0.5)
        at = (self.starts[number] + top * width + left).view(-1, 1, 1) + row * width.view(-1, 1, 1) + column
        return (self.pixels[at].float() / 255).permute(0, 3, 1, 2)

    def example(self, draws: Tensor, noise: Tensor, sigma: float) -> Example:
        """Cut crops and add white noise: `noise` has variance 1, the level of a crop is uniform between 0 and `sigma`."""
        clean = self.batch(draws)
        level = draws[:, 6] * sigma
        return Example(clean + level.view(-1, 1, 1, 1) * noise, level, clean, level)
