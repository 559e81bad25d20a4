"""Measure what the graph of similar frames adds: train the speech model `frames` with it and with the local graph in time.

    python benchmarks/frames_graph.py train FOLDER -o RUNS [--device cuda] [--seeds 0 1] [--steps 3000]
    python benchmarks/frames_graph.py test NAME=FOLDER [NAME=FOLDER ...] --trained RUNS

Both have the same layers, sizes, steps and seeds; only the graph of the two non-local layers differs. `test` writes the
SI-SDR of both on the test clips to benchmarks/results/frames_graph.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glocal.apps.speech.data import SpeechData, load_speech
from glocal.apps.speech.evaluate import at_level, frame_method, run, summarised
from glocal.apps.speech.frames import FrameNet, FrameShape
from glocal.apps.speech.metrics import si_sdr
from glocal.apps.speech.train import train_frames
from glocal.graph import Graph

RESULTS = Path(__file__).resolve().parent / "results" / "frames_graph.json"
LEVELS = (-5.0, 0.0, 5.0, 10.0, 15.0)


class LineFrameNet(FrameNet):
    """`FrameNet` whose non-local layers use the frame itself and its nearest frames in time: 0, -1, 1, -2, 2, ..."""

    def graph(self, above: Tensor) -> Graph:
        """Return the local graph with distances 0, so that all weights are 1; the ends repeat the last frame."""
        b, t, _ = above.shape
        k = self.shape.neighbors
        shifts = torch.tensor([(-1) ** i * ((i + 1) // 2) for i in range(k)], device=above.device)
        found = (torch.arange(t, device=above.device).unsqueeze(1) + shifts).clamp(0, t - 1)
        found = found + torch.arange(b, device=above.device).view(b, 1, 1) * t
        return Graph(found.reshape(b * t, k), None, torch.zeros(b * t, k, device=above.device))


KINDS = {"similar frames": FrameNet, "local in time": LineFrameNet}


def train(data: SpeechData, folder: Path, *, kind: str, seed: int, steps: int, device: str) -> None:
    """Train one network with the three step sizes of `glocal train speech`, in the same proportions; write its parameters."""
    from safetensors.torch import save_file

    first, second = steps * 55 // 100, steps // 4
    stages = ((first, 1e-3), (second, 3e-4), (steps - first - second, 1e-4))
    place = folder / f"{kind.replace(' ', '-')}-{seed}"
    net, fits = train_frames(data, kind=KINDS[kind], seed=seed, stages=stages, folder=place, device=device)
    save_file({name: value.cpu().contiguous() for name, value in net.state_dict().items()}, f"{place}.safetensors")
    place.with_suffix(".json").write_text(json.dumps({"steps": steps, "validation": fits[-1].records[-1].validation}))


def test(name: str, folder: Path, trained: Path, seeds: list[int]) -> None:
    """Compute the SI-SDR of both networks at every level, averaged over the seeds, and their difference for each clip."""
    from safetensors.torch import load_file

    clips = load_speech(folder).test
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sets": {}}
    entry = found["sets"][name] = {"clips": len(clips), "seeds": seeds, "levels": {}}
    found["steps"] = json.loads((trained / f"similar-frames-{seeds[0]}.json").read_text())["steps"]
    for level in LEVELS:
        condition, values = at_level(clips, level), {}
        for kind, make in KINDS.items():
            values[kind] = []
            for seed in seeds:
                net = make(FrameShape())
                net.load_state_dict(load_file(trained / f"{kind.replace(' ', '-')}-{seed}.safetensors"))
                values[kind].append(run(frame_method(net.eval()), condition, {"SI-SDR": _si_sdr})["SI-SDR"])
        gain = [a - b for a, b in zip(values["similar frames"], values["local in time"], strict=True)]
        scores = [summarised(kind, "SI-SDR", v) for kind, v in {**values, "difference": gain}.items()]
        entry["levels"][str(level)] = [vars(score) for score in scores]
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def _si_sdr(estimate: np.ndarray, clean: np.ndarray) -> float:
    return float(si_sdr(torch.from_numpy(estimate), torch.from_numpy(clean)))


def main() -> None:
    """Train or test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("train", "test"))
    parser.add_argument("data", nargs="+", metavar="FOLDER or NAME=FOLDER")
    parser.add_argument("-o", "--trained", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.job == "train":
        data = load_speech(Path(given.data[0]))
        for kind in KINDS:
            for seed in given.seeds:
                train(data, given.trained, kind=kind, seed=seed, steps=given.steps, device=given.device)
        return
    for one in given.data:
        name, _, folder = one.partition("=")
        test(name, Path(folder), given.trained, given.seeds)


if __name__ == "__main__":
    main()
