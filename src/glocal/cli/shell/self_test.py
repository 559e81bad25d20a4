"""Two seconds of everything: each part computes something whose answer is known.

The first time, kernels are compiled for the machine, which takes longer than the tests. So no test is begun when two seconds
are over; what was left out is said, and comes in the next run, which finds the compiled kernels in the cache.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BUDGET = 2.0  # seconds


@dataclass(frozen=True)
class Result:
    """How a check ended: what is wrong, if anything, how long it took, and whether it had to compile kernels."""

    name: str
    problem: str | None = None
    seconds: float = 0.0
    compiled: bool = False
    left_out: bool = False

    def __str__(self) -> str:
        if self.left_out:
            return f"left out, since {BUDGET:.0f} s are over; run `glocal doctor` again when the machine is free"
        compiled = ", kernels compiled now" if self.compiled else ""
        return f"{self.problem or 'good'} ({self.seconds:.2f} s{compiled})"


def run_checks() -> Iterator[Result]:
    """Run the checks while there is time to begin another; loading the libraries does not count."""
    for library in ("torch", "numba"):
        if importlib.util.find_spec(library):
            importlib.import_module(library)
    started = time.perf_counter()
    for name, check in CHECKS.items():
        if time.perf_counter() - started > BUDGET:
            yield Result(name, left_out=True)
        else:
            yield run_check(name, check)


def run_check(name: str, check: Callable[[], str | None]) -> Result:
    """Run one check; an error that it raises is its result."""
    started, compiled = time.perf_counter(), False
    try:
        from numba.core import event

        with event.install_recorder("numba:compile") as recorder:
            problem = check()
        compiled = bool(recorder.buffer)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return Result(name, problem, time.perf_counter() - started, compiled)


def convolution() -> str | None:
    """Compare a graph convolution on a grid with the ordinary one."""
    import torch

    from glocal.graphs.grid import grid_graph
    from glocal.nn import GraphConv

    generator = torch.Generator().manual_seed(0)
    image = torch.rand(1, 3, 12, 10, generator=generator)
    layer = GraphConv(3, 4, degree=9, bias=False)
    filters = layer.filters.detach().permute(2, 1, 0).reshape(4, 3, 3, 3)
    with torch.no_grad():
        result = layer(image[0].permute(1, 2, 0).reshape(-1, 3), grid_graph((12, 10), size=3, boundary="reflect"))
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1), mode="reflect")
    expected = torch.nn.functional.conv2d(padded, filters)[0].permute(1, 2, 0).reshape(-1, 4)
    worst = float((result - expected).abs().max())
    return None if worst < 1e-4 else f"differs from torch's convolution by {worst:.2g}"


def neighbors() -> str | None:
    """Compare the nearest patches of a small image with those found by comparing all pairs."""
    import torch

    from glocal.graphs.patch import patch_graph

    generator = torch.Generator().manual_seed(0)
    image = torch.rand(14, 13, 1, generator=generator)
    found = patch_graph(image, k=5, patch=3).distances
    padded = torch.nn.functional.pad(image[None, :, :, 0], (1, 1, 1, 1), mode="reflect")
    patches = torch.nn.functional.unfold(padded[None], 3)[0].T
    expected = torch.cdist(patches, patches, compute_mode="donot_use_mm_for_euclid_dist").sort(dim=1).values[:, :5]
    if found is None:
        return "the graph has no distances"
    worst = float((found - expected).abs().max())
    return None if worst < 1e-3 else f"wrong neighbours: distances differ by {worst:.2g}"


def images() -> str | None:
    """Write and read a 16-bit picture and compare the pixels."""
    from glocal.files.images.picture import Picture
    from glocal.files.images.read import read_image
    from glocal.files.images.write import write_image

    pixels = np.random.default_rng(0).integers(0, 65535, (40, 50, 3), np.uint16)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.png", "a.tif"):
            write_image(Path(folder) / name, Picture(pixels))
            if not np.array_equal(read_image(Path(folder) / name).pixels, pixels):
                return f"{name[2:]} files come back changed"
    return None


def audio() -> str | None:
    """Write and read a second of sound and compare the samples."""
    from glocal.files.audio.audio_file import create_audio, open_audio

    samples = np.random.default_rng(0).integers(-32768, 32767, (16000, 2)) / 32768
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.wav", "a.flac"):
            with create_audio(Path(folder) / name, rate=16000, channels=2) as out:
                out.write(samples)
            with open_audio(Path(folder) / name) as sound:
                if not np.array_equal(sound.read(), samples.astype(np.float32)):
                    return f"{name[2:]} files come back changed"
    return None


CHECKS = {"images": images, "audio": audio, "convolution": convolution, "neighbours": neighbors}
