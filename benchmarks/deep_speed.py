"""Time the deep denoisers beside DnCNN on one gray picture, interleaved in one run.

    python benchmarks/deep_speed.py -o benchmarks/results/deep_speed.json

DnCNN is built here in plain PyTorch (17 layers of 64 channels, channels last, random parameters: its time does not depend on
them), in float32 and in bfloat16. Our networks run as `glocal denoise` runs them: in bfloat16 if the CPU multiplies it in
hardware. Each number is the best of the repeats. CPU seconds are printed too; they say more if the machine is busy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from glocal.apps.denoise.bands import denoise_deep
from glocal.apps.denoise.models import load_deep
from glocal.bench.timing import metadata, write_json
from glocal.machine import has_bfloat16


def main() -> None:
    """Time, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    picture = torch.rand(1, options.side, options.side, generator=torch.Generator().manual_seed(0))
    works: dict[str, Callable[[], Tensor]] = {"DnCNN": _dncnn(picture, torch.float32)}
    works["DnCNN in bfloat16"] = _dncnn(picture, torch.bfloat16)
    for name in ("small", "large"):
        net = load_deep(name, 1)
        assert net is not None
        net = net.in_bfloat16() if has_bfloat16() else net
        works[name] = lambda net=net: denoise_deep(picture, net, 0.1)
    best = dict.fromkeys(works, float("inf"))
    busy = dict.fromkeys(works, float("inf"))
    with torch.inference_mode():
        for repeat in range(options.repeats + 1):  # the first one warms up
            for name, work in works.items():
                started, used = time.perf_counter(), time.process_time()
                work()
                if repeat:
                    best[name] = min(best[name], time.perf_counter() - started)
                    busy[name] = min(busy[name], time.process_time() - used)
    for name, seconds in best.items():
        ratios = (
            f"{seconds / best['DnCNN']:.2f} times DnCNN; CPU seconds {busy[name]:.2f}, {busy[name] / busy['DnCNN']:.2f}"
        )
        print(f"{name:18} {seconds:6.2f} s, {ratios}")
    if options.output is not None:
        found = {"benchmark": "deep_speed", "side": options.side, "machine": metadata(), "seconds": best}
        write_json(options.output, found)


def _dncnn(picture: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    inner = [layer for _ in range(15) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())]
    net = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), *inner, nn.Conv2d(64, 1, 3, padding=1))
    net = net.to(memory_format=torch.channels_last, dtype=dtype)
    planes = picture[None].to(dtype).contiguous(memory_format=torch.channels_last)
    return lambda: net(planes)


if __name__ == "__main__":
    main()
