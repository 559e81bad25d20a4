"""Measure how many megapixels the deep denoisers compute in a second on a GPU, as `glocal denoise --device cuda` runs them.

    python benchmarks/deep_throughput.py -o benchmarks/results/deep_throughput.json [--profile]

"network" is the time of `denoise_deep` on a colour picture that lies in the GPU's memory. "from array to array" is
`glocal.denoise` of a uint8 array, with all transfers and conversions. The networks compute in bfloat16 if the GPU has it; the PSNR
on a shipped photo with noise 25 is measured for both types of numbers. Each time is the median of the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import glocal
from glocal.apps.denoise.bands import denoise_deep, tile_pixels, tiles
from glocal.apps.denoise.deep import DeepDenoiser
from glocal.apps.denoise.models import load_deep
from glocal.bench.timing import metadata, write_json
from glocal.files.images.read import read_image
from glocal.machine import has_bfloat16
from glocal.samples import path as sample

SIGMA = 25 / 255


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--size", type=int, nargs=2, default=[4000, 6000], metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=["small", "large"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profile", action="store_true", help="also print the ten longest operations")
    options = parser.parse_args()
    height, width = options.size
    photo = read_image(sample("bridge.jpg")).pixels / np.float32(255)
    whole = np.tile(photo, (-(-height // len(photo)), -(-width // photo.shape[1]), 1))[:height, :width]
    noisy = whole + np.random.default_rng(0).normal(0, SIGMA, whole.shape).astype(np.float32)
    rows = []
    for name in options.models:
        net = _network(name, options.device)
        planes = torch.from_numpy(noisy).permute(2, 0, 1).contiguous().to(options.device)
        parts = tiles(height, width, net.shape, pixels=tile_pixels(net))
        seconds = _median(lambda net=net, planes=planes: denoise_deep(planes, net, SIGMA), options.repeats)
        if options.profile:
            _profile(net, planes)
        del planes
        file = (noisy.clip(0, 1) * 255).round().astype(np.uint8)
        whole_way = _median(
            lambda name=name, file=file: glocal.denoise(file, SIGMA, model=name, device=options.device), 2
        )
        row = {
            "model": name,
            "tiles": len(parts),
            "network": height * width / seconds / 1e6,
            "array": height * width / whole_way / 1e6,
            "psnr": _psnr(net, photo),
            "psnr_float32": _psnr(_network(name, options.device, short=False), photo),
            "memory": torch.cuda.max_memory_allocated() if options.device != "cpu" else 0,
        }
        rows.append(row)
        print(row, flush=True)
    if options.output is not None:
        found = {"benchmark": "deep_throughput", "size": options.size, "machine": metadata(), "rows": rows}
        write_json(options.output, found)


def _network(name: str, device: str, *, short: bool = True) -> DeepDenoiser:
    net = load_deep(name, 3)
    assert net is not None
    return (net.in_bfloat16() if short and has_bfloat16(device) else net).to(device)


def _median(work: Callable[[], object], repeats: int) -> float:
    found = []
    for repeat in range(repeats + 1):  # the first one compiles
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if repeat:
            found.append(time.perf_counter() - started)
    return statistics.median(found)


def _psnr(net: DeepDenoiser, photo: np.ndarray) -> float:
    noise = np.random.default_rng(1).normal(0, SIGMA, photo.shape).astype(np.float32)
    planes = torch.from_numpy(photo + noise).permute(2, 0, 1).to(net.head.weight.device)
    found = denoise_deep(planes, net, SIGMA).permute(1, 2, 0).cpu().numpy()
    return float(-10 * np.log10(np.mean((found.clip(0, 1) - photo) ** 2)))


def _profile(net: DeepDenoiser, planes: torch.Tensor) -> None:
    with torch.profiler.profile() as found:
        denoise_deep(planes, net, SIGMA)
    print(found.key_averages().table(sort_by="self_device_time_total", row_limit=14, max_name_column_width=70))


if __name__ == "__main__":
    main()
