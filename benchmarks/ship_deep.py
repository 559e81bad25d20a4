"""Convert the result of `train_deep.py` to a model of the package: a float16 file and its entry in the index.

    python benchmarks/ship_deep.py RUN image-small-gray --model small [--after EARLIER] [--folder src/glocal/models]

`--after` names the runs whose result this one started from. Their steps and seconds are added.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from deep_scores import _network as network

from glocal.apps.denoise.models import SHIPPED, save_deep

DATA = "BSDS500 train and test, 1,000 photos of a one-per-class sample of ImageNet, 676 freely licensed photos; 48 of them held out"


def main() -> None:
    """Write the model file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--model", required=True)
    parser.add_argument("--after", type=Path, nargs="*", default=[])
    parser.add_argument("--data", default=DATA, help="what it was trained on, in words")
    parser.add_argument("--folder", type=Path, default=SHIPPED)
    options = parser.parse_args()
    logs = [json.loads((run / "log.json").read_text()) for run in (*options.after, options.run)]
    log = logs[-1]
    validation = [round(score, 2) for score in log["validation"]["end"]]
    info = {
        "model": options.model,
        "data": options.data,
        "steps": sum(one["history"][-1]["steps"][1] for one in logs),
        "seconds": round(sum(part["seconds"] for one in logs for part in one["history"]), 1),
        "device": log["history"][-1]["device"],
        "validation_psnr_before_after" if options.model == "photo" else "validation_psnr_15_25_50": validation,
        "seed": [one.get("seed", 0) for one in logs],
    }
    path = save_deep(network(options.run / "averaged.npz"), options.name, options.folder, info=info)
    print(path, f"{path.stat().st_size / 1e6:.2f} MB", validation)


if __name__ == "__main__":
    main()
