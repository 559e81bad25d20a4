"""Train a deep denoiser on packed photos for a given time, or continue an earlier run.

    python benchmarks/train_deep.py photos.npz OUT --shape small --channels 1 --seconds 330 --fall 0.35

The number of steps follows from the time: the speed is measured on the first 400 steps. `--resume FOLDER` continues from a trunk
(OUT/trunk of an earlier run), `--start FILE` begins a new training with the result of an earlier one. The files in OUT are `trunk/`
(the state before the step size falls), `averaged.npz` (the result, float16) and `log.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from glocal.apps.denoise.crops import PackedPhotos
from glocal.apps.denoise.deep import SHAPES
from glocal.apps.denoise.deep_recipe import material, validate
from glocal.apps.denoise.deep_training import Plan, Training


def options_of(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, or a list of words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--more", type=Path, nargs="*", default=[], help="further packed photos, for training only")
    parser.add_argument("--shape", default="small", choices=SHAPES)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=330, help="for the steps, not for reading and validating")
    parser.add_argument("--fall", type=float, default=0.35, help="share of all steps in which the step size falls")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument(
        "--power", type=float, default=0.55, help="the loss is RMSE / sigma^power; more for low noise if larger"
    )
    parser.add_argument(
        "--decay", type=float, default=0.0, help="a step shrinks the matrices by this times the step size"
    )
    parser.add_argument("--steps", type=int, help="instead of --seconds")
    parser.add_argument("--widths", type=int, nargs=3, help="other widths than the shape's, for trials on a CPU")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--side", type=int, default=128, help="of a crop")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--start", type=Path, help="an averaged.npz with which the training begins")
    parser.add_argument("--pairs", type=int, default=32768, help="pairs of synthetic cameras, for photo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="list the kernels of five steps and stop")
    return parser.parse_args(words)


def main() -> None:
    """Read, train, validate, write."""
    options = options_of()
    train(options, [PackedPhotos.load(path) for path in (options.photos, *options.more)])


def train(options: argparse.Namespace, photos: list[PackedPhotos]) -> None:
    """Train as the options say."""
    started = time.perf_counter()
    cuda = torch.cuda.is_available()
    torch.backends.cudnn.benchmark = True
    device = "cuda" if cuda else "cpu"
    channels = 3 if options.shape == "photo" else options.channels
    plan = Plan(
        10**9,
        1,
        rate=options.rate,
        batch=options.batch,
        side=options.side,
        power=options.power,
        matrix_decay=options.decay,
    )
    stuff = material(
        photos,
        model=options.shape,
        channels=channels,
        side=plan.side,
        pairs=options.pairs,
        seed=options.seed,
        device=device,
    )
    shape = replace(SHAPES[options.shape], channels=channels)
    shape = replace(shape, widths=tuple(options.widths)) if options.widths else shape
    dtype = torch.bfloat16 if cuda else torch.float32
    start = None
    if options.start is not None:
        with np.load(options.start) as file:
            start = {name: torch.from_numpy(array.astype(np.float32)) for name, array in file.items()}
    training = Training(shape, stuff.examples, plan, seed=options.seed, dtype=dtype, start=start)
    print(f"{stuff.pictures} pictures, {time.perf_counter() - started:.1f} s", flush=True)
    if options.resume is not None:
        training.load(options.resume)
    if options.profile:
        _profile(training)
        return
    if cuda:
        training.record()
        print(f"recorded, {time.perf_counter() - started:.1f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    losses: list[tuple[int, float]] = []

    def told(step: int, loss: float) -> None:
        losses.append((step, loss))
        if step % 5000 == 0:
            print(f"step {step}: loss {loss:.5f}, {time.perf_counter() - started:.1f} s", flush=True)

    first, clock = training.done, time.perf_counter()
    training.run(first + (400 if cuda else 2), told=told)
    speed = (training.done - first) / (time.perf_counter() - clock)  # steps a second
    left = options.seconds - (time.perf_counter() - clock)
    steps = options.steps or training.done + max(1, int(speed * left))
    training.plan = replace(plan, steps=steps, decay=max(1, int(options.fall * steps)))
    print(f"{speed:.1f} steps/s, {speed * plan.batch * plan.side**2 / 1e6:.1f} Mpixel/s, {steps} steps", flush=True)
    training.run(max(training.done, steps - training.plan.decay), told=told)
    training.save(options.out / "trunk")
    scores = {"trunk": validate(training, stuff.checks)}
    print("trunk", training.done, scores["trunk"], flush=True)
    training.run(steps, told=told)
    scores["end"] = validate(training, stuff.checks)
    np.savez(options.out / "averaged.npz", **{name: t.half().numpy() for name, t in training.averaged().items()})
    log = {
        "history": training.history,
        "validation": scores,
        "losses": losses,
        "photos": stuff.pictures,
        "seed": options.seed,
    }
    (options.out / "log.json").write_text(json.dumps(log, indent=1) + "\n")
    print("end", training.done, scores["end"], f"{time.perf_counter() - started:.1f} s in all", flush=True)


def _profile(training: Training) -> None:
    from torch.profiler import ProfilerActivity, profile

    for _ in range(5):
        training.step()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for _ in range(5):
            training.step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    key = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


if __name__ == "__main__":
    main()
