"""Compare variants of style transfer on pairs of photos and paintings, with numbers and pictures.

    python benchmarks/style_quality.py --pictures FOLDER -o benchmarks/results/style_quality.json
        [--variants painterly,paper] [--pairs bridge/auvers] [--size 512] [--device cuda --workers 16] [--seeds 0,1,2]
        [--vgg VGG16.npz] [--alex ALEXNET.npz]

FOLDER contains the pictures of `PAIRS` as .npy (uint8, (h, w, 3)) or as files that Pillow reads. Earlier results in the
same -o file are kept, so a comparison can be made in parts. `--sheets FOLDER` writes each result there as JPEG. Presets run
as they are, except that their graphs are kept between seeds. For the other variants on a GPU, neighbours are searched with
matrix products, without the final check that they are exact. `gatys` needs `--vgg`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from style_gatys import gatys
from style_measures import load_layers, measures
from style_variants import BASE, VARIANTS, Variant
from torch import Tensor

from glocal import stylize
from glocal.apps.style import solve
from glocal.apps.style.levels import resized
from glocal.apps.style.options import StyleOptions, style_options
from glocal.graph import Graph
from glocal.graphs.patch import pad_frames, patch_graph
from glocal.graphs.weights import PercentileGaussian, weighted

PAIRS = (
    "bridge/auvers", "coast/vangogh_starry_night", "astronaut/munch_scream", "lighthouse/turner_shipwreck_minotaur",
    "meadow/monet_water_lilies_1919", "cat/cezanne_trois_baigneuses", "canyon/hoitsu_plum_tree", "coffee/auvers",
)  # fmt: skip


def read(folder: Path, name: str) -> np.ndarray[Any, Any]:
    """Read a picture by its name without suffix, uint8 (h, w, 3)."""
    if (folder / f"{name}.npy").exists():
        found: np.ndarray[Any, Any] = np.load(folder / f"{name}.npy")
        return found
    from PIL import Image

    (path,) = folder.glob(f"{name}.*")
    return np.asarray(Image.open(path).convert("RGB"))


def near(image: Tensor, k: int, patch: int, coords: float) -> Graph:
    """`patch_graph` for a GPU: find candidates with float32 matrix products, then sort them by their exact differences."""
    planes = pad_frames(image.float().unsqueeze(0), (1, patch, patch))[0]
    h, w = image.shape[:2]
    cells = planes.unfold(1, patch, 1).unfold(2, patch, 1).permute(1, 2, 0, 3, 4).reshape(h * w, -1)
    j = torch.arange(h * w, device=image.device)
    features = torch.cat([cells, coords * torch.stack([j // w, j % w], 1)], 1)
    features = features - features.mean(0)
    norms = features.square().sum(1)
    neighbors, distances = [], []
    step = max(1, (1 << 27) // len(features))
    for i in j.split(step):
        rough = torch.addmm(norms.unsqueeze(0), features[i], features.T, alpha=-2)
        found = rough.topk(min(k + 8, len(features)), dim=1, largest=False).indices
        squared = (features[found] - features[i].unsqueeze(1)).square().sum(2)
        squared[found == i.unsqueeze(1)] = -1
        best = squared.topk(k, dim=1, largest=False)
        neighbors.append(found.gather(1, best.indices).int())
        distances.append(best.values.clamp(min=0).sqrt())
    return Graph(torch.cat(neighbors), None, torch.cat(distances))


@contextmanager
def changed(variant: Variant, cache: dict[Any, Graph]) -> Iterator[None]:
    """Make the core build this variant's terms and graphs; graphs are cached for the next variant that needs them."""
    problem, graph = solve._problem, solve.photo_graph

    def build(lab: Tensor, options: StyleOptions) -> Graph:
        key = (
            tuple(lab.shape),
            float(lab.double().sum()),
            options.degree,
            options.patch,
            variant.coords,
            variant.features,
        )
        if key not in cache:
            image = variant.features(lab) if variant.features else lab
            search = (
                near
                if lab.is_cuda and not variant.preset
                else lambda *a: patch_graph(a[0], k=a[1], patch=a[2], coords=a[3])
            )
            cache[key] = weighted(search(image, options.degree, options.patch, variant.coords), PercentileGaussian())
        return cache[key]

    def set_up(run: Any, level: int, previous: Tensor | None) -> Any:
        objective, start = problem(run, level, previous)
        if variant.hook:
            variant.hook(run, level, objective, start)
        return objective, start

    solve.photo_graph, solve._problem = build, set_up
    try:
        yield
    finally:
        solve.photo_graph, solve._problem = graph, problem


def compare(pair: str, names: list[str], arguments: argparse.Namespace) -> None:
    """Run some variants on one pair; each row is written when it is ready, and none is started after the time limit."""
    torch.set_num_threads(1 if arguments.workers > 1 else torch.get_num_threads())
    photo, painting = (read(arguments.pictures, name) for name in pair.split("/"))
    vgg = load_layers(arguments.vgg, arguments.device) if arguments.vgg else None
    cache: dict[Any, Graph] = {}
    alex = load_layers(arguments.alex, arguments.device) if arguments.alex else None
    for seed, name in [(seed, name) for seed in arguments.seeds for name in names]:
        if VARIANTS[name].peer and seed != arguments.seeds[0]:
            continue  # nothing in it is random
        if time.time() > arguments.until:
            return
        try:
            row, rgb = run(photo, painting, VARIANTS[name], arguments, (vgg, alex), cache, seed)
        except Exception as error:  # one variant that fails must not lose the others
            print(f"{pair} {name}: {error!r}", file=sys.stderr, flush=True)
            continue
        if arguments.sheets and seed == arguments.seeds[0]:
            save(arguments.sheets / f"{pair.replace('/', '+')}+{name}", rgb)
        with arguments.output.with_suffix(".jsonl").open("a") as file:
            file.write(json.dumps({"pair": pair, "variant": name, "seed": seed} | row) + "\n")
        print(f"{pair:42s} {name:16s} {row['seconds']:7.2f} s", file=sys.stderr, flush=True)


def run(
    photo: np.ndarray[Any, Any],
    painting: np.ndarray[Any, Any],
    variant: Variant,
    arguments: argparse.Namespace,
    judges: tuple[Any, Any],
    cache: dict[Any, Graph],
    seed: int = 0,
) -> tuple[dict[str, float], np.ndarray[Any, Any]]:
    """Run one variant on one pair; return its numbers and its picture."""
    began = time.perf_counter()
    if variant.peer:
        images = [torch.from_numpy(p).to(arguments.device).float() / 255 for p in (photo, painting)]
        sizes = tuple(round(size * arguments.size / 512) for size in variant.peer)
        few = {} if arguments.iterations is None else {"iterations": arguments.iterations}
        rgb = gatys(images[0], images[1], judges[0], sizes, **few).cpu().numpy()
    else:
        changes = {"size": arguments.size, "seed": seed, **variant.changes}
        if arguments.iterations is not None and variant.preset != "patches":
            changes["iterations"] = arguments.iterations
        inside = variant.inside(photo, painting) if variant.inside else nullcontext({})
        with changed(variant, cache), inside as more:
            options = style_options(variant.preset, changes) if variant.preset else StyleOptions(**{**BASE, **changes})
            rgb = stylize(photo, painting, options=options, device=arguments.device, **more).rgb
    seconds = time.perf_counter() - began
    result, own, style = (torch.from_numpy(p).to(arguments.device) for p in (rgb, photo / 255.0, painting / 255.0))
    factor = min(1.0, max(rgb.shape) / max(style.shape))
    shape = round(style.shape[0] * factor), round(style.shape[1] * factor)
    with torch.no_grad():
        numbers = measures(result, resized(own.float(), rgb.shape[:2]), resized(style.float(), shape), *judges)
    if arguments.device == "cuda":
        torch.cuda.empty_cache()
    return {"seconds": round(seconds, 2)} | {key: round(value, 4) for key, value in numbers.items()}, rgb


def save(path: Path, rgb: np.ndarray[Any, Any]) -> None:
    """Write a result as JPEG with any library that is installed."""
    path = path.with_name(path.name.replace(" ", "_") + ".jpg")
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = (rgb * 255).round().astype(np.uint8)
    try:
        from PIL import Image
    except ImportError:
        from torchvision.io import write_jpeg

        write_jpeg(torch.from_numpy(pixels).permute(2, 0, 1).contiguous(), str(path), 90)
    else:
        Image.fromarray(pixels).save(path, quality=90)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per variant that ran on all pairs: the mean of every number, in the order of `VARIANTS`."""
    lines = []
    for name, variant in VARIANTS.items():
        mine = [row for row in rows if row["variant"] == name and row["pair"] in PAIRS]
        seeds = sorted({row.get("seed", 0) for row in mine})
        if mine and len(mine) == len(PAIRS) * len(seeds):
            keys = [key for key in mine[0] if key not in ("pair", "variant", "seed", "seconds")]
            line = {"variant": name, "about": variant.about} | {k: mean(r[k] for r in mine) for k in keys}
            if len(seeds) > 1:  # how far the means of the seeds lie apart
                means = {k: [mean(r[k] for r in mine if r["seed"] == seed) for seed in seeds] for k in keys}
                line |= {"seeds": len(seeds)} | {f"{k} spread": max(v) - min(v) for k, v in means.items()}
            lines.append(line)
    return lines


def join(path: Path, size: int) -> None:
    """Add the rows of this run (in the .jsonl next to `path`) to the results; they replace older rows of the same name."""
    log = path.with_suffix(".jsonl")
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    new = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    rows = [
        row
        for _, row in sorted({(row["variant"], row["pair"], row.get("seed", 0)): row for row in [*old, *new]}.items())
    ]
    held = ",\n".join("  " + json.dumps(row) for row in rows)
    lines = ",\n".join("  " + json.dumps(_rounded(line)) for line in summary(rows))
    head = f'"benchmark": "style_quality", "size": {size}'
    path.write_text(f'{{{head},\n "summary": [\n{lines}\n ],\n "rows": [\n{held}\n ]}}\n')
    log.unlink(missing_ok=True)


def _rounded(line: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in line.items()}


def main() -> None:
    """Read the arguments, run, and merge the rows with earlier ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--sheets", type=Path)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--iterations", type=int, help="instead of the variants' own, for a quick try")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="processes; each takes one pair, or half its variants")
    parser.add_argument("--vgg", type=Path)
    parser.add_argument("--alex", type=Path)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    parser.add_argument("--limit", type=float, default=1e9, help="begin nothing after so many seconds")
    arguments = parser.parse_args()
    arguments.until = time.time() + arguments.limit
    names, pairs = arguments.variants.split(","), arguments.pairs.split(",")
    parts = max(1, arguments.workers // len(pairs))
    jobs = [(pair, names[part::parts], arguments) for part in range(parts) for pair in pairs]
    if arguments.workers > 1:
        with torch.multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
            pool.starmap(compare, jobs, chunksize=1)
    else:
        for job in jobs:
            compare(*job)
    join(arguments.output, arguments.size)


if __name__ == "__main__":
    main()
