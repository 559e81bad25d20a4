"""`glocal bench graph`, `conv`, `style`, `presets` and `cuda`: speed and memory compared with peers, in one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.bench.options import BenchOptions
from glocal.cli.shell.console import Console, RunOptions
from glocal.options import device_option, option

if TYPE_CHECKING:
    from torch import Tensor

    from glocal.bench.timing import Row


@dataclass(frozen=True)
class BenchOutput:
    """Where the figures go, and what they are taken on."""

    output: Path | None = option(None, "Write rows and machine as JSON.", short="-o")
    image: Path | None = option(None, "The photo to measure on; a shipped one if not given.")


@dataclass(frozen=True)
class BenchDevice:
    """What the work runs on."""

    device: str = device_option("What to measure on.")


def graph(options: BenchOptions, output: BenchOutput, run: RunOptions) -> None:
    """Exact neighbour search compared with cKDTree and FAISS."""
    import torch

    from glocal import samples
    from glocal.bench import graph as bench
    from glocal.color_space import lab_from_rgb
    from glocal.files.audio.audio_file import open_audio
    from glocal.paper.squares import photo

    side, small = (48, 32) if options.quick else (256, 128)
    gray = _lab(output, small)[..., :1] / 100
    noise = torch.Generator().manual_seed(0)
    with open_audio(samples.path("speech.wav")) as sound:
        signal = torch.as_tensor(sound.read(), dtype=torch.float32).reshape(-1)[: 1000 if options.quick else 16000]
    noisy = gray + 0.07 * torch.randn(gray.shape, generator=noise)
    speech = signal / signal.abs().max() + 0.12 * torch.randn(signal.shape, generator=noise)
    painting = lab_from_rgb(torch.tensor(photo("van_gogh_auvers", side)).float() / 255)
    _finish("graph", bench.run(_lab(output, side), noisy, speech, painting, options), output, run)


def conv(options: BenchOptions, output: BenchOutput, run: RunOptions) -> None:
    """Measure the graph convolution, compared with torch indexing and PyTorch Geometric."""
    from glocal.bench import conv as bench

    _finish("conv", bench.run(_lab(output, 48 if options.quick else 256), options), output, run)


def style(options: BenchOptions, output: BenchOutput, run: RunOptions) -> None:
    """Measure the paper's style transfer, compared with a plain PyTorch version (which takes minutes)."""
    import torch

    from glocal.bench import style as bench
    from glocal.color_space import lab_from_rgb
    from glocal.paper.squares import photo

    side = 64 if options.quick else 256
    painting = lab_from_rgb(torch.tensor(photo("van_gogh_auvers", side)).float() / 255)
    _finish("style", bench.run(_lab(output, side), painting, options), output, run)


def presets(options: BenchOptions, output: BenchOutput, device: BenchDevice, run: RunOptions) -> None:
    """Whole runs of every preset of style transfer, at most three of each: time, and memory on a GPU."""
    from glocal import samples
    from glocal.bench import presets as bench
    from glocal.bench import timing
    from glocal.files.images.picture import to_depth
    from glocal.files.images.read import read_image

    paths = (output.image or samples.path("bridge.jpg"), samples.path("van_gogh_auvers.jpg"))
    photo, painting = (to_depth(read_image(path).pixels, "8") for path in paths)
    lines = bench.run(photo, painting, options, device.device)
    _keep(timing.document("presets", lines), bench.text(lines), output, run)


def cuda(options: BenchOptions, output: BenchOutput, run: RunOptions) -> None:
    """Layers, searches and style transfer on a GPU, compared with plain PyTorch on the same GPU."""
    import torch

    from glocal.bench import cuda as bench
    from glocal.color_space import lab_from_rgb
    from glocal.paper.squares import photo

    pairs = []
    for side in (64,) if options.quick else (256, 1024):
        painting = lab_from_rgb(torch.tensor(photo("van_gogh_auvers", side)).float() / 255)
        pairs.append((_lab(output, side), painting))
    _finish("cuda", bench.run(pairs, options), output, run)


def _lab(output: BenchOutput, size: int) -> Tensor:
    import torch

    from glocal.color_space import lab_from_rgb
    from glocal.paper.squares import photo, square

    pixels = photo("mountains", size) if output.image is None else square(output.image, size)
    return lab_from_rgb(torch.tensor(pixels).float() / 255)


def _finish(name: str, lines: list[Row], output: BenchOutput, run: RunOptions) -> None:
    from glocal.bench import timing

    _keep(timing.document(name, lines), timing.text(lines), output, run)


def _keep(kept: dict[str, Any], text: str, output: BenchOutput, run: RunOptions) -> None:
    from glocal.bench import timing

    if output.output is not None:
        timing.write_json(output.output, kept)
    Console(run).result(kept, text)
