"""Compare colour transfer by graph and transport with Reinhard and the linear Monge-Kantorovitch map.

    python benchmarks/color.py --data FOLDER_OF_PAIRS      measure, write benchmarks/results/color.json and the docs
    python benchmarks/color.py --docs-only                 write the tables again from the results

The pairs in `PAIRS` come from `--data` (photos that we may not redistribute) and from glocal/samples. The pictures of
docs/color.md use only the samples. Every picture is scaled to a width of `WIDTH` pixels. All methods use the same gamut
compression. All measures are computed before rounding to 8 bits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from glocal import samples
from glocal.apps.color import baselines, mapping
from glocal.apps.color.draw import palette_sheet
from glocal.apps.color.fit import fit
from glocal.apps.color.gamut import compressed
from glocal.apps.color.look import ColorMap
from glocal.apps.color.measures import Quality, quality
from glocal.apps.color.options import ColorOptions
from glocal.color_space import lab_from_rgb, rgb_from_lab

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "color.json"
PAGE = HERE.parent / "docs" / "color.md"
PICTURES = HERE.parent / "docs" / "pictures"
WIDTH = 400

PAIRS = {
    "data": [
        ("ocean_day.jpg", "ocean_sunset.jpg"), ("autumn.jpg", "woods.jpg"), ("woods.jpg", "autumn.jpg"),
        ("scotland_house.png", "scotland_plain.png"), ("dps01_content.jpg", "dps01_palette.jpg"),
        ("dps02_content.jpg", "dps02_palette.jpg"), ("dps03_content.jpg", "dps03_palette.jpg"),
        ("fallingwater.jpg", "autumn.jpg"), ("storm.jpg", "ocean_sunset.jpg"),
    ],
    "samples": [
        ("meadow.jpg", "sunset.jpg"), ("temple.jpg", "van_gogh_auvers.jpg"), ("mountains.jpg", "sunset.jpg"),
        ("citrus.jpg", "temple.jpg"),
    ],
}  # fmt: skip
METHODS = ("graph", "transport", "Reinhard", "linear MK")
PAPER = ("graph, nearest", "transport, nearest")
PIXELS = ("graph, by pixels", "transport, by pixels")
FIELDS = {  # name: (kind, factor on the width)
    "nearest entry (the paper)": None,
    "mean of displacements, h / 2": ("mean", 0.5),
    "mean of displacements, h (the default)": ("mean", 1.0),
    "mean of displacements, 2 h": ("mean", 2.0),
    "local affine fit, h": ("affine", 1.0),
}
SHOWN = ("meadow", "temple", "mountains")  # of the samples, as pictures


@dataclass(frozen=True)
class Pair:
    """Return a photo and a reference as sRGB (h, w, 3)."""

    name: str
    photo: Tensor
    reference: Tensor


def load(path: Path) -> Tensor:
    """Return a picture of width WIDTH, in [0, 1]."""
    image = Image.open(path).convert("RGB")
    image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    return torch.from_numpy(np.asarray(image).astype(np.float32) / 255)


def pairs(data: Path, samples: Path, only: str) -> Iterable[Pair]:
    """Iterate over the pairs whose name contains `only`."""
    for folder, names in ((data, PAIRS["data"]), (samples, PAIRS["samples"])):
        for photo, reference in names:
            name = f"{Path(photo).stem} -> {Path(reference).stem}"
            if only in name:
                yield Pair(name, load(folder / photo), load(folder / reference))


def affine(rule: Callable[[Tensor, Tensor], Tensor], pair: Pair) -> Tensor:
    """Apply a baseline to the chrominances; keep the luminance and compress the gamut as our own methods do."""
    lab = lab_from_rgb(pair.photo)
    ab = rule(lab[..., 1:].reshape(-1, 2), lab_from_rgb(pair.reference)[..., 1:].reshape(-1, 2))
    after = torch.cat([lab[..., :1], ab.reshape(*lab.shape[:2], 2)], -1)
    return rgb_from_lab(compressed(after, lab)).clamp(0, 1)


def results_of(pair: Pair) -> tuple[dict[str, Tensor], dict[str, ColorMap]]:
    """Return the picture of every method by name, and the two fitted maps."""
    maps, out = {}, {}
    for method in ("graph", "transport"):
        maps[method] = fit(pair.photo, [(pair.reference, None)], ColorOptions(method=method)).map
        out[method] = maps[method](pair.photo)
        hard = replace(maps[method], options=replace(maps[method].options, mapping="nearest"))
        out[f"{method}, nearest"] = hard(pair.photo)
        options = ColorOptions(method=method, weigh="pixels")
        out[f"{method}, by pixels"] = fit(pair.photo, [(pair.reference, None)], options).map(pair.photo)
    out["Reinhard"] = affine(baselines.reinhard, pair)
    out["linear MK"] = affine(baselines.linear_monge, pair)
    return out, maps


def affine_fit(ab: Tensor, palette: Tensor, new: Tensor, *, width: float, ridge: float = 0.1) -> Tensor:
    """Compute the displacement by a local affine fit: `v~ + S_vp (S_pp + ridge h^2 I)^-1 (x - p~)`, weights as in the mean."""
    w, v = mapping.kernel_weights(ab, palette, width=width), new - palette
    mean_p, mean_v = w @ palette, w @ v
    outer, cross = ((q.unsqueeze(2) * palette.unsqueeze(1)).flatten(1) for q in (palette, v))
    s_pp = (w @ outer).unflatten(1, (2, 2)) - mean_p.unsqueeze(2) * mean_p.unsqueeze(1)
    s_vp = (w @ cross).unflatten(1, (2, 2)) - mean_v.unsqueeze(2) * mean_p.unsqueeze(1)
    s_pp = s_pp + ridge * width * width * torch.eye(2, dtype=ab.dtype)
    return mean_v + (s_vp @ torch.linalg.solve(s_pp, (ab - mean_p).unsqueeze(2))).squeeze(2)


def fields_of(pair: Pair, look: ColorMap) -> dict[str, Tensor]:
    """Apply the graph's palette to the photo with other mappings, to justify the default."""
    lab = lab_from_rgb(pair.photo)
    ab = lab[..., 1:].reshape(-1, 2).double()
    rules = {"mean": mapping.displacement, "affine": affine_fit}
    out = {}
    for name, choice in FIELDS.items():
        if choice is None:
            continue
        rule, width = rules[choice[0]], choice[1] * look.width
        move = torch.cat([rule(part, look.palette, look.new, width=width) for part in ab.split(1 << 15)])
        after = torch.cat([lab[..., :1], (ab + move).float().reshape(*lab.shape[:2], 2)], -1)
        out[name] = rgb_from_lab(compressed(after, lab)).clamp(0, 1)
    return out


def measured(pair: Pair, result: Tensor) -> dict[str, float]:
    """Compute the four measures of a result."""
    found: Quality = quality(*(lab_from_rgb(x) for x in (pair.photo, result, pair.reference)))
    return {name: round(value, 4) for name, value in found.as_dict().items()}


def measure(found: dict[str, dict], data: Path, samples: Path, only: str) -> None:
    """Measure the pairs whose name contains `only` and store them in `found`; draw the pictures of the samples."""
    rows, others = found["pairs"], found["mappings"]
    started = time.perf_counter()
    for pair in pairs(data, samples, only):
        out, maps = results_of(pair)
        rows[pair.name] = {name: measured(pair, image) for name, image in {"photo": pair.photo, **out}.items()}
        others[pair.name] = {name: measured(pair, image) for name, image in fields_of(pair, maps["graph"]).items()}
        others[pair.name][next(iter(FIELDS))] = rows[pair.name]["graph, nearest"]
        if pair.name.split()[0] in SHOWN and (samples / f"{pair.name.split()[0]}.jpg").exists():
            draw(pair, out, maps)
        print(f"{pair.name}: {time.perf_counter() - started:.0f} s", flush=True)


def draw(pair: Pair, out: dict[str, Tensor], maps: dict[str, ColorMap]) -> None:
    """Draw a strip of all methods and, for one pair, the palettes and a crop that shows banding."""
    stem = pair.name.split()[0]
    h = pair.photo.shape[0]
    reference = torch.nn.functional.interpolate(pair.reference.permute(2, 0, 1)[None], (h, WIDTH), mode="area")[0]
    shown = {"photo": pair.photo, "reference": reference.permute(1, 2, 0)} | {name: out[name] for name in METHODS}
    order = ("photo", "graph", "Reinhard", "reference", "transport", "linear MK")
    rows = [torch.cat([shown[name] for name in order[k : k + 3]], 1) for k in (0, 3)]
    sheet = to_image(torch.cat(rows))
    for k, name in enumerate(order):
        label(sheet, name, k % 3 * WIDTH, k // 3 * h)
    sheet.save(PICTURES / f"color_{stem}.jpg", quality=82, optimize=True)
    if stem == "mountains":
        sky = (slice(0, 90), slice(250, 400))
        kinds = ("photo", "graph", "graph, nearest", "transport, nearest")
        crops = torch.cat([{**shown, **out}[name][sky] for name in kinds], 1)
        zoomed = to_image(crops).resize((1200, 180), Image.Resampling.NEAREST)
        for k, name in enumerate(kinds):
            label(zoomed, name.replace("graph", "graph, smooth") if name == "graph" else name, 300 * k, 0)
        zoomed.save(PICTURES / "color_banding.jpg", quality=88, optimize=True)
    if stem == "temple":
        goal = fit(pair.photo, [(pair.reference, None)], ColorOptions()).palettes.reference
        drawn = palette_sheet(maps["graph"].palette, maps["graph"].new, maps["transport"].new, goal)
        Image.fromarray(drawn).save(PICTURES / "color_palettes.jpg", quality=85, optimize=True)


def to_image(rgb: Tensor) -> Image.Image:
    """Convert a picture to 8 bits."""
    return Image.fromarray((rgb.numpy() * 255).round().astype(np.uint8))


def label(sheet: Image.Image, text: str, x: int, y: int) -> None:
    """Write a name into a corner."""
    pen = ImageDraw.Draw(sheet)
    box = pen.textbbox((x + 6, y + 4), text, font_size=15)
    pen.rectangle((box[0] - 4, box[1] - 3, box[2] + 4, box[3] + 3), fill=(0, 0, 0))
    pen.text((x + 6, y + 4), text, fill=(255, 255, 255), font_size=15)


def averages(rows: dict[str, dict[str, dict[str, float]]], name: str) -> str:
    """Format one line of a table: the mean of each measure over the pairs."""
    values = [mean(row[name][field] for row in rows.values()) for field in ("distance", "torn", "flat", "distortion")]
    return f"| {name} | {values[0]:.2f} | {values[1]:.2f} | {values[2]:.1f} | {values[3]:.2f} |"


def tables(found: dict[str, dict]) -> dict[str, str]:
    """Return the generated parts of the page, by the name of their marker."""
    rows, head = found["pairs"], "| distance | torn % | flat % | distortion |\n|---|---|---|---|---|"
    means = [f"| method {head}", *(averages(rows, name) for name in ("photo", *METHODS, *PAPER, *PIXELS))]
    kinds = [f"| mapping of the graph's palette {head}", *(averages(found["mappings"], name) for name in FIELDS)]
    columns = (*METHODS, PIXELS[0])
    each = ["| photo -> reference | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for pair, row in rows.items():
        cells = [f"{row[m]['distance']:.1f} / {row[m]['torn']:.2f} / {row[m]['distortion']:.2f}" for m in columns]
        each.append(f"| {pair} | " + " | ".join(cells) + " |")
    return {"methods": "\n".join(means), "mappings": "\n".join(kinds), "pairs": "\n".join(each)}


def write_page(found: dict[str, dict]) -> None:
    """Put the tables between their markers."""
    text = PAGE.read_text()
    for name, table in tables(found).items():
        start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        before, rest = text.split(start, 1)
        text = f"{before}{start}\n{table}\n{end}{rest.split(end, 1)[1]}"
    PAGE.write_text(text)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the pairs named in PAIRS")
    parser.add_argument("--samples", type=Path, default=samples.path("bridge.jpg").parent)
    parser.add_argument("--only", default="", help="measure only pairs whose name contains this, keep the others")
    parser.add_argument("--docs-only", action="store_true", help="only write the tables from the results")
    given = parser.parse_args()
    if not given.docs_only:
        if given.data is None:
            parser.error("name the folder of pairs with --data")
        PICTURES.mkdir(exist_ok=True)
        RESULTS.parent.mkdir(exist_ok=True)
        found = {"width": WIDTH, "pairs": {}, "mappings": {}}
        if given.only and RESULTS.exists():
            found = json.loads(RESULTS.read_text())
        measure(found, given.data, given.samples, given.only)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
