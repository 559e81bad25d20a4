"""Measure how close float32 runs are to the losses of float64: `python benchmarks/style_agreement.py -o benchmarks/results/style_agreement.json`.

For all shipped photos and four seeds at each level, run 20 iterations of the paper's preset from noise. The reference is the
plain version in float64 on the same graphs with the same random numbers. The plain version in float32 is measured too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from glocal.apps.style.levels import resized
from glocal.bench.style import differences
from glocal.bench.timing import metadata, write_json
from glocal.color_space import lab_from_rgb
from glocal.paper.squares import PAINTING, PHOTOS, photo

SIDES, SEEDS = (32, 64, 128, 256), 4


def main(arguments: list[str]) -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    rows = []
    for side in SIDES:
        for name in PHOTOS:
            pair = [
                resized(lab_from_rgb(torch.tensor(photo(n, 256)).float() / 255), (side, side)) for n in (name, PAINTING)
            ]
            for seed in range(SEEDS):
                ours, plain = differences(pair[0], pair[1], seed)
                rows.append({"side": side, "photo": name, "seed": seed, "ours": ours, "plain": plain})
                print(f"{side:4} {name:10} {seed}  ours {ours:.1e}  plain float32 {plain:.1e}", flush=True)
    write_json(chosen.output, {"benchmark": "style_agreement", "machine": metadata(), "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
